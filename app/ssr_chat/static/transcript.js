// Brings the transcript to what the server says it is, touching only the blocks that changed.
// All HTML in `props.value` was made and escaped by the server (view.py, marked.py).
const exchanges = element.querySelector(".exchanges");
const welcome = element.querySelector(".welcome");
const announcer = element.querySelector(".announcer");
const MESSAGES = {
  waiting: "Waiting", reading: "Reading the prompt", thinking: "Thinking", answering: "Answering",
  done: "The answer is complete", failed: "An error occurred",
};
const SKELETON = `
  <div class="user" aria-label="You"></div>
  <div class="assistant" aria-label="Model">
    <p class="status" hidden></p>
    <details class="thought" hidden><summary>
      <span class="title"></span><span class="detail"></span></summary>
      <div class="blocks"></div></details>
    <section class="ghost" aria-label="Provisional answer" hidden>
      <header><b>Draft, not final</b><span class="detail"></span></header>
      <div class="blocks"></div></section>
    <div class="answer blocks"></div>
    <div class="notice"></div>
    <div class="figures"></div>
  </div>`;

function setHTML(node, html) {
  if (node.shownHTML === html) return;
  node.shownHTML = html;
  node.innerHTML = html;
}

function setBlocks(node, blocks) {
  while (node.children.length > blocks.length) node.lastElementChild.remove();
  blocks.forEach((html, index) => {
    const block = node.children[index] || node.appendChild(document.createElement("div"));
    setHTML(block, html);
  });
}

function keepAtBottom(scroller, change) {
  const near = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  change();
  if (near) scroller.scrollTop = scroller.scrollHeight;
}

function makeExchange(id) {
  const node = document.createElement("article");
  node.id = id;
  node.className = "exchange";
  node.innerHTML = SKELETON;
  const thought = node.querySelector(".thought");
  thought.querySelector("summary").addEventListener("click", () => { thought.touched = true; });
  return node;
}

// Open while it is live, folded afterwards, unless the user decided otherwise.
function showThought(node, thought) {
  node.hidden = !thought;
  if (!thought) return;
  if (!node.touched && node.open !== thought.live) node.open = thought.live;
  node.classList.toggle("live", thought.live);
  node.querySelector(".title").textContent = thought.title;
  node.querySelector(".detail").textContent = thought.detail;
  const blocks = node.querySelector(".blocks");
  keepAtBottom(blocks, () => setBlocks(blocks, thought.blocks));
}

function showGhost(node, ghost) {
  node.hidden = !ghost;
  if (!ghost) return;
  node.querySelector(".detail").textContent = ghost.detail;
  const blocks = node.querySelector(".blocks");
  keepAtBottom(blocks, () => setBlocks(blocks, ghost.blocks));
}

function showExchange(node, view) {
  node.dataset.phase = view.phase;
  setHTML(node.querySelector(".user"), view.user);
  const status = node.querySelector(".status");
  status.hidden = !view.status;
  setHTML(status, view.status);
  showThought(node.querySelector(".thought"), view.thought);
  showGhost(node.querySelector(".ghost"), view.ghost);
  setBlocks(node.querySelector(".answer"), view.answer);
  setHTML(node.querySelector(".notice"), view.notice);
  setHTML(node.querySelector(".figures"), view.figures);
}

function announce(phase) {
  if (document.body.dataset.phase !== phase) announcer.textContent = MESSAGES[phase] || "";
  document.body.dataset.phase = phase;
}

function show() {
  const views = props.value.exchanges;
  const grew = views.length > exchanges.children.length;
  keepAtBottom(document.scrollingElement, () => {
    welcome.hidden = views.length > 0;
    while (exchanges.children.length > views.length) exchanges.lastElementChild.remove();
    views.forEach((view, index) => {
      let node = exchanges.children[index];
      if (!node || node.id !== view.id) {
        node?.remove();
        node = makeExchange(view.id);
        exchanges.insertBefore(node, exchanges.children[index] || null);
      }
      showExchange(node, view);
    });
  });
  if (grew) document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
  announce(views.length ? views[views.length - 1].phase : "idle");
}

welcome.addEventListener("click", (event) => {
  const example = event.target.closest("button");
  const box = document.querySelector("#message textarea");
  if (!example || !box) return;
  box.value = example.textContent;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  box.focus();
});
watch("value", show);
show();
