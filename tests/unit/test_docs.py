"""What README and docs show must exist: Python that compiles, commands, options, files, links."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from ssr_local import cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "benchmarks" / "README.md",
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
MAKE_TARGET = re.compile(r"^([a-z]+):", re.MULTILINE)

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, *languages: str) -> Iterator[str]:
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language in languages:
            yield text


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command in a page's shell blocks, pipes taken apart."""
    for block in blocks(page, "sh", "bash", "console"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words:
                end = next((i for i, word in enumerate(words) if word in ("|", "&&")), len(words))
                if words[:end]:
                    yield words[:end]
                words = words[end + 1 :]


def check_ssr(words: list[str]) -> None:
    """Follow the words down the command tree; every option must be one of the command's."""
    command = typer.main.get_command(cli.app)
    rest = words[1:]
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        context = typer.Context(command, resilient_parsing=True)
        _, found, rest = command.resolve_command(context, rest)
        assert found, f"`{shlex.join(words)}` names a command that does not exist"
        command = found
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    used = {word.partition("=")[0] for word in rest if word.startswith("--")}
    assert used <= known, f"`{shlex.join(words)}` has unknown options"


@pages
def test_python_snippets_compile_and_their_imports_exist(page: Path) -> None:
    for snippet in blocks(page, "python"):
        for node in ast.walk(ast.parse(snippet)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                missing = [a.name for a in node.names if not hasattr(module, a.name)]
                assert not missing, f"{node.module} has no {missing}"


@pages
def test_commands_exist_with_their_options(page: Path) -> None:
    targets = MAKE_TARGET.findall((ROOT / "Makefile").read_text())
    for words in commands(page):
        while "=" in words[0]:
            words = words[1:]
        if words[0] == "ssr":
            check_ssr(words)
        elif words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= set(targets), words
        elif "/" in words[0]:
            assert words[0].startswith(".venv/") or (ROOT / words[0]).exists(), words


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for link in ("".join(found) for found in LINK.findall(page.read_text(encoding="utf-8"))):
        if "://" not in link:
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name} links to {link}"
            if anchor:
                titles = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                assert anchor in {title.lower().replace(" ", "-") for title in titles}, link


@pytest.mark.parametrize(
    "line", ["ssr no-such-command", "ssr bench --no-such-option", "ssr models no-such-command"]
)
def test_the_check_of_commands_finds_what_does_not_exist(line: str) -> None:
    with pytest.raises(AssertionError):
        check_ssr(shlex.split(line))
