"""The engine's state as the page shows it: a line in the header, and a banner when there is more to
say. Pure."""

from __future__ import annotations

from html import escape

from ssr_chat.host import State, Status
from ssr_chat.view import error_html, with_code
from ssr_local.engine import ModelInfo
from ssr_local.registry import EMBEDDED
from ssr_local.request import Thinking

GET_ANOTHER = "Choose another model above, or get one in a terminal: `ssr models pull NAME`."
_THINKING = {
    Thinking.NATIVE: "native thinking",
    Thinking.PROMPTED: "prompted thinking",
    Thinking.OFF: "no thinking of its own",
}


def status_html(status: Status) -> str:
    """The header's line."""
    if status.state is State.LOADING:
        return f'<span class="loading" role="status">{_loading(status)}</span>'
    if status.info is None:
        return '<span class="failed">No model is loaded</span>'
    return f'<span class="ready" role="status">{escape(model_line(status.info))}</span>'


def banner_html(status: Status) -> str:
    """What the user should know about the model: why there is none, or that it is a tiny one."""
    if status.error:
        return f'{error_html(status.error)}<p class="hint">{with_code(GET_ANOTHER)}</p>'
    if status.note and status.info and status.info.name == EMBEDDED:
        return f'<p class="note">{with_code(status.note)}</p>'
    return ""


def model_line(info: ModelInfo) -> str:
    """What was loaded, in a line."""
    parts = [f"{info.n_ctx:,} tokens of context", _THINKING.get(info.thinking, "")]
    if not info.speculates:
        parts.append("no speculation with this architecture yet")
    return " · ".join(part for part in parts if part)


def _loading(status: Status) -> str:
    text = escape(status.doing)
    if status.share is None:
        return f"{text}…"
    percent = f"{status.share:.0%}"
    return f'{text}, {percent}<span class="track"><i style="width:{percent}"></i></span>'
