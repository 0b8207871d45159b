"""The event stream on a terminal, or in a pipe.

The answer goes to stdout; everything else (thinking, progress, the closing line) goes to stderr, so
that a pipe gets the answer and nothing else. On a terminal thinking is dimmed above a status line
that tells of the draft, and answer tokens are coloured by their origin.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text

from ssr_local.events import (
    AnswerDelta,
    DraftDelta,
    DraftFinished,
    DraftStarted,
    Event,
    Failed,
    Finished,
    Origin,
    PromptProgress,
    ReasoningDelta,
    ThinkingEnded,
)
from ssr_local.report import closing_line

DIM = Style(dim=True)
ORIGIN_STYLES = {
    Origin.MODEL: Style(),
    Origin.DRAFT: Style(color="green"),
    Origin.SUFFIX: Style(color="cyan"),
}
_CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Text that can't steer the terminal: without control characters, but with tabs and newlines.

    A model may write any byte, escape sequences included.
    """
    return text.translate(_CONTROL)


def fold(line: str, width: int) -> list[str]:
    """A line in parts that fit the width, cut at spaces where there are any."""
    parts = []
    while cell_len(line) > width:
        end = _fitting(line, width)
        space = line.rfind(" ", 1, end + 1)
        cut = space if space > 0 else end
        parts.append(line[:cut])
        line = line[cut:].removeprefix(" ")
    return [*parts, line]


def _fitting(line: str, width: int) -> int:
    """Characters of the line that fit the width; wide ones take two columns."""
    end = min(width, len(line))
    while end > 1 and cell_len(line[:end]) > width:
        end -= 1
    return end


class LineFolder:
    """Cuts streamed text into lines that fit the terminal: whole ones for above the status line,
    and the unfinished rest."""

    def __init__(self, width: int) -> None:
        self._width = max(width, 10)
        self.rest = ""

    def feed(self, text: str) -> list[str]:
        """Lines that are complete now."""
        *lines, last = (self.rest + text.expandtabs(4)).split("\n")
        whole = [part for line in lines for part in fold(line, self._width)]
        *full, self.rest = fold(last, self._width)
        return whole + full


class Status:
    """What the engine is doing before the answer, in a few words."""

    def __init__(self) -> None:
        self._prompt = ""
        self._thinking = 0
        self._draft = ""
        self._draft_tokens = 0

    def hear(self, event: Event) -> None:
        match event:
            case PromptProgress():
                done = event.processed == event.total
                self._prompt = "" if done else f"reading… {event.processed} of {event.total} tokens"
            case ReasoningDelta():
                self._thinking += event.tokens
            case DraftStarted():
                self._draft, self._draft_tokens = "drafting…", 0
            case DraftDelta():
                self._draft_tokens += event.tokens
            case DraftFinished():
                self._draft, self._draft_tokens = f"draft {event.end}:", event.tokens

    def __str__(self) -> str:
        thinking = f"thinking… {self._thinking} tokens" if self._thinking else ""
        draft = f"{self._draft} {self._draft_tokens} tokens" if self._draft else ""
        return " · ".join(filter(None, (self._prompt, thinking, draft)))


class ThinkingView:
    """Dimmed thinking above a status line; where nobody watches, plain text and no status."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = Status()
        self._folder = LineFolder(console.width)
        self._live: Live | None = None
        self._wrote = self._mid_line = self._over = False

    def hear(self, event: Event) -> None:
        if self._over:  # a draft may end after the thinking did
            return
        if not self._console.is_terminal:
            if isinstance(event, ReasoningDelta):
                self._write_plain(event.text)
            return
        self._status.hear(event)
        lines: list[str] = []
        if isinstance(event, ReasoningDelta):
            self._wrote = True
            lines = self._folder.feed(printable(event.text))
        live = self._start()
        for line in lines:
            live.console.print(Text(line, DIM), soft_wrap=True)
        live.update(Group(Text(self._folder.rest, DIM), Text(str(self._status), "italic dim")))

    def stop(self) -> None:
        """Leave the thinking on the screen, and nothing else. May be called twice."""
        if self._over:
            return
        self._over = True
        if self._live:
            self._live.stop()
            if self._folder.rest:
                self._console.print(Text(self._folder.rest, DIM), soft_wrap=True)
            if self._wrote:
                self._console.print()
        elif self._mid_line:
            self._write_plain("\n")

    def _start(self) -> Live:
        if not self._live:
            self._live = Live(
                console=self._console,
                transient=True,
                refresh_per_second=8,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self._live

    def _write_plain(self, text: str) -> None:
        print(text, end="", file=self._console.file, flush=True)
        self._mid_line = not text.endswith("\n") if text else self._mid_line


class AnswerView:
    """The answer on stdout: coloured by origin on a terminal, verbatim in a pipe."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._mid_line = False

    def write(self, event: AnswerDelta) -> None:
        if self._console.is_terminal:
            segment = Segment(printable(event.text), ORIGIN_STYLES[event.origin])
            self._console.print(Segments([segment]), end="", soft_wrap=True)
        else:
            print(event.text, end="", file=self._console.file)
        self._console.file.flush()
        self._mid_line = not event.text.endswith("\n") if event.text else self._mid_line

    def end_line(self) -> None:
        """A shell's prompt, and the closing line, begin on a line of their own."""
        if self._mid_line:
            print(file=self._console.file, flush=True)
            self._mid_line = False


class TerminalView:
    """Shows one request. Feed it every event; leave the context and the terminal is as before.

    Args:
        out: for the answer.
        err: for everything else.
        legend: whether to explain the colours of the answer.
    """

    def __init__(self, out: Console, err: Console, *, legend: bool) -> None:
        self._err = err
        self._thinking = ThinkingView(err)
        self._answer = AnswerView(out)
        self._legend = legend and out.is_terminal and err.is_terminal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thinking.stop()

    def show(self, event: Event) -> None:
        match event:
            case AnswerDelta():
                self._thinking.stop()
                self._explain()
                self._answer.write(event)
            case ThinkingEnded():
                self._thinking.stop()
            case Finished():
                self._end()
                self._err.print(Text(closing_line(event), DIM), soft_wrap=True)
            case Failed():
                self._end()
            case _:
                self._thinking.hear(event)

    def _end(self) -> None:
        self._thinking.stop()
        self._answer.end_line()

    def _explain(self) -> None:
        if self._legend:
            self._legend = False
            self._err.print(
                Text.assemble(
                    ("answer: ", DIM),
                    ("from the draft", ORIGIN_STYLES[Origin.DRAFT] + DIM),
                    (", ", DIM),
                    ("from a suffix match", ORIGIN_STYLES[Origin.SUFFIX] + DIM),
                    (", the model alone", DIM),
                ),
                soft_wrap=True,
            )


def consoles() -> tuple[Console, Console]:
    """For stdout and stderr, as they are now. What the stream's encoding lacks becomes '?'."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")
    return Console(highlight=False), Console(stderr=True, highlight=False)
