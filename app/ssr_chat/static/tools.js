// The legend's switch, light and dark, and keys. Runs once, when the page is there.
const marks = element.querySelector(".marks");
const stored = (key) => { try { return localStorage.getItem(key); } catch { return null; } };
const store = (key, value) => { try { localStorage.setItem(key, value); } catch { /* private tab */ } };

const showMarks = (shown) => {
  document.body.dataset.marks = shown ? "on" : "off";
  marks.setAttribute("aria-pressed", String(shown));
};
showMarks(stored("ssr-chat-marks") !== "off");
marks.addEventListener("click", () => {
  const shown = document.body.dataset.marks !== "on";
  showMarks(shown);
  store("ssr-chat-marks", shown ? "on" : "off");
});

const theme = stored("ssr-chat-theme");
if (theme) document.body.classList.toggle("dark", theme === "dark");
element.querySelector(".theme").addEventListener("click", () => {
  const dark = document.body.classList.toggle("dark");
  store("ssr-chat-theme", dark ? "dark" : "light");
});

document.addEventListener("keydown", (event) => {
  const running = !["idle", "done", "failed"].includes(document.body.dataset.phase || "idle");
  if (event.key === "Escape" && running) document.querySelector("#stop")?.click();
});
