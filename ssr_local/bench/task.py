"""Benchmark tasks: prompts as data, one TOML file each, and how they are chosen.

A task knows nothing of policies or of how it is run; see benchmarks/README.md for the format.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ssr_local.errors import InvalidRequest
from ssr_local.request import describe

_HERE = Path(__file__).resolve().parent


class Kind(StrEnum):
    """What a task's answer looks like, which is what speculation depends on."""

    CODE = "code"
    """New code of a given shape."""
    DOCUMENT = "document"
    """Structured text: JSON, YAML, SQL, HTML, a plan."""
    EDIT = "edit"
    """The prompt holds a file, the answer repeats it with changes."""
    SHORT = "short"
    """A few words: speculation should do nothing, and cost nothing."""
    PROSE = "prose"
    """Free text that nothing predicts: the adversarial kind."""


class Task(BaseModel):
    """One prompt, with the limits that make its runs comparable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    kind: Kind
    prompt: Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)]
    """Thinking and answer together."""
    thinking_budget: Annotated[int, Field(ge=0)] | None = None


def tasks_dir() -> Path:
    """Where the tasks of this installation are: in the wheel, or in the repository."""
    packaged = _HERE / "tasks"
    return packaged if packaged.is_dir() else _HERE.parents[1] / "benchmarks" / "tasks"


def load_task(path: Path) -> Task:
    """Read one task.

    Raises:
        InvalidRequest: the file can't be read, is not TOML, or a field is wrong.
    """
    try:
        return Task.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"The task {path} can't be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"The task {path} is not valid TOML: {error}") from error
    except ValidationError as error:
        raise InvalidRequest(f"The task {path}: {describe(error)}") from error


def shipped_tasks() -> list[Task]:
    """All tasks of this installation, in the order of their file names."""
    return [load_task(path) for path in sorted(tasks_dir().glob("*.toml"))]


def choose_tasks(patterns: Sequence[str]) -> list[Task]:
    """The tasks that the patterns name, each once, in the order in which they are named.

    Args:
        patterns: names or globs of shipped tasks, or paths of task files; none means all.

    Raises:
        InvalidRequest: a pattern fits nothing; the message lists the names there are.
    """
    shipped = shipped_tasks()
    if not patterns:
        return shipped
    chosen: dict[str, Task] = {}
    for pattern in patterns:
        chosen |= {task.name: task for task in _matching(pattern, shipped)}
    return list(chosen.values())


def _matching(pattern: str, shipped: Iterable[Task]) -> list[Task]:
    if pattern.endswith(".toml"):
        return [load_task(Path(pattern))]
    found = [task for task in shipped if fnmatchcase(task.name, pattern)]
    if not found:
        names = ", ".join(task.name for task in shipped)
        raise InvalidRequest(f"No task is named {pattern!r}. There are: {names}.")
    return found
