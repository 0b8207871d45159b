"""Markdown to safe HTML, with stretches of the source marked in the result.

A mark says who proposed the text (or that a draft's text is stale). Marks belong to characters of
the source, but what the page shows is rendered: syntax is gone, entities are decoded. So every
piece of rendered text is found again in the source, in order, and takes the marks from there.

Safe: raw HTML is text, links go only where markdown-it lets them (no `javascript:`), images are
links, so that looking at an answer never makes a request.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

Env = MutableMapping[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block of a document: its tokens, and the line of the source it starts in."""

    tokens: Sequence[Token]
    line: int


@dataclass(slots=True)
class Cursor:
    """Where in a block's source the rendering is. `marks` has one entry for each character."""

    source: str
    marks: Sequence[str]
    position: int = 0

    def take(self, content: str) -> Iterator[tuple[str, str]]:
        """Rendered text as (text, mark) stretches; moves past it in the source."""
        at = self.source.find(content, self.position)
        if at >= 0:
            self.position = at + len(content)
            marks = self.marks[at : self.position]
        else:
            marks = [self._step(character) for character in content]
        for mark, stretch in groupby(zip(content, marks, strict=True), key=lambda pair: pair[1]):
            yield "".join(character for character, _ in stretch), mark

    def _step(self, character: str) -> str:
        """The mark of one character. One that is not in the source (of an entity) takes the mark of
        where we are."""
        at = self.source.find(character, self.position)
        if at >= 0:
            self.position = at + 1
            return self.marks[at]
        return self.marks[min(self.position, len(self.marks) - 1)] if self.marks else ""


class _Renderer(RendererHTML):
    """markdown-it's renderer, with text from a cursor (`env["cursor"]`) in marked spans."""

    def text(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return _spans(tokens[idx].content, env)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return f"<code>{_spans(tokens[idx].content, env)}</code>"

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        return f"<pre><code>{_spans(tokens[idx].content, env)}</code></pre>\n"

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        language = tokens[idx].info.strip().split(" ")[0]
        label = f' data-language="{escape(language)}"' if language else ""
        return f"<pre{label}><code>{_spans(tokens[idx].content, env)}</code></pre>\n"

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Env) -> str:
        tokens[idx].attrSet("target", "_blank")
        tokens[idx].attrSet("rel", "noopener noreferrer nofollow")
        return self.renderToken(tokens, idx, options, env)


_BLANKS = re.compile(r"(\n\s*|^\s+|\s+$)")

# References are off so that a block's meaning never depends on a later block.
_MARKDOWN = (
    MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=_Renderer)
    .enable(["table", "strikethrough"])
    .disable(["image", "reference"])
)


def parse(source: str) -> list[Block]:
    """The top-level blocks of a document, in order."""
    blocks: list[Block] = []
    group: list[Token] = []
    for token in _MARKDOWN.parse(source):
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            line = group[0].map[0] if group[0].map else 0
            blocks.append(Block(group, line))
            group = []
    return blocks


def render(block: Block, source: str, marks: Sequence[str]) -> str:
    """A block's HTML. `source` and `marks` are the block's own part of the document."""
    env = {"cursor": Cursor(source, marks)}
    html: str = _MARKDOWN.renderer.render(block.tokens, _MARKDOWN.options, env)
    return html


def _spans(content: str, env: Env) -> str:
    cursor: Cursor = env["cursor"]
    return "".join(_span(text, mark) for text, mark in cursor.take(content))


def _span(text: str, mark: str) -> str:
    """Marked text; line ends, indentation and outer blanks are left unmarked: lines under nothing
    look odd."""
    if not mark:
        return escape(text)
    return "".join(
        f'<span class="by-{mark}">{escape(part)}</span>' if part.strip() else part
        for part in _BLANKS.split(text)
    )
