"""Markdown that is safe, marked by origin, and the same whether it comes at once or bit by bit."""

import re
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssr_chat.growing import GrowingMarkdown


def grown(*parts: tuple[str, str]) -> str:
    document = GrowingMarkdown()
    for text, mark in parts:
        document.append(text, mark)
    return "".join(document.blocks())


def plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def marked(html: str) -> list[tuple[str, str]]:
    """(mark, text) of all marked stretches."""
    found = re.findall(r'<span class="by-(\w+)">(.*?)</span>', html, re.S)
    return [(mark, unescape(text)) for mark, text in found]


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onmouseover=alert(1)>b</b>",
        "<iframe src='https://example.com'></iframe>",
        "```html\n<script>alert(1)</script>\n```",
        "`<script>alert(1)</script>`",
        '```"><script>alert(1)</script>\ncode\n```',
        "| <script>alert(1)</script> |\n|---|\n| <img src=x onerror=alert(1)> |",
    ],
)
def test_html_in_markdown_is_text(text: str) -> None:
    html = grown((text, "draft"))
    tags = re.findall(r"<\s*/?\s*(\w+)", html)
    assert not {"script", "img", "b", "iframe"} & {tag.lower() for tag in tags}
    assert not re.search(r"<[^>]*\son\w+=", html)


@pytest.mark.parametrize(
    "link",
    [
        "[a](javascript:alert(1))",
        "[a](JaVaScRiPt:alert(1))",
        "[a](&#106;avascript:alert(1))",
        "[a](data:text/html,<script>alert(1)</script>)",
        "[a](vbscript:x)",
        "[a](file:///etc/passwd)",
        "<javascript:alert(1)>",
    ],
)
def test_links_that_run_code_are_text(link: str) -> None:
    assert "href" not in grown((link, ""))


def test_an_ordinary_link_opens_elsewhere_and_tells_nothing() -> None:
    html = grown(("[docs](https://example.com/a?b=1&c=2)", ""))
    assert 'href="https://example.com/a?b=1&amp;c=2"' in html
    assert 'rel="noopener noreferrer nofollow"' in html


def test_an_image_is_never_fetched() -> None:
    html = grown(("![alt](https://example.com/pixel.png)", ""))
    assert "<img" not in html
    assert "alt" in html


def test_marks_follow_the_text_through_markdown() -> None:
    html = grown(("It **kee", "draft"), ("ps** `co", "model"), ("de` & more", "suffix"))
    assert marked(html) == [
        ("draft", "It"),
        ("draft", "kee"),
        ("model", "ps"),
        ("model", "co"),
        ("suffix", "de"),
        ("suffix", "& more"),
    ]
    assert "<strong>" in html


def test_marks_find_their_text_again_after_a_link_and_an_entity() -> None:
    html = grown(("[a](https://x.org) &copy; ", "draft"), ("b", "suffix"))
    assert ("suffix", "b") in marked(html)
    assert ("draft", "a") in marked(html)


def test_indentation_and_line_ends_are_not_marked() -> None:
    html = grown(("```python\ndef f():\n    return 1\n```", "draft"))
    assert [text for _, text in marked(html)] == ["def f():", "return 1"]
    assert "\n    " in plain(html)


def test_code_has_its_language() -> None:
    assert 'data-language="python"' in grown(("```python title=x\n1\n```", ""))


pieces = st.sampled_from(
    [
        "a", "b c", " ", "\n", "\n\n", "#", "# ", "- ", "  - ", "1. ", "> ", "*", "**", "`", "```",
        "```py\n", "    ", "|", "|-|-|\n", "---\n", "===\n", "~~", "[x](y)", "&amp;", "<", "é🦙",
        "\\",
    ]
)  # fmt: skip
texts = st.lists(pieces, max_size=25).map("".join)


@given(texts, st.data())
def test_a_document_that_grew_looks_like_one_that_came_at_once(
    text: str, data: st.DataObject
) -> None:
    """Guards the settling of blocks: a block rendered too early would stay wrong for ever."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    document = GrowingMarkdown()
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        document.append(text[start:end])
        document.blocks()
    assert document.blocks() == blocks_at_once(text)
    assert document.text == text


def blocks_at_once(text: str) -> list[str]:
    document = GrowingMarkdown()
    document.append(text)
    return document.blocks()


def test_only_the_end_of_a_long_document_is_rendered_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = GrowingMarkdown()
    for number in range(200):
        document.append(f"Paragraph {number} has some words.\n\n")
        document.blocks()
    seen: list[str] = []
    monkeypatch.setattr("ssr_chat.growing.render", lambda b, source, m: seen.append(source) or "")
    document.append("The last one.")
    assert len(document.blocks()) == 201
    assert len(seen) <= 3
