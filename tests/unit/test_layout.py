"""The dependency direction, read from the import statements, and what the wheel ships.

app and integrations -> engine -> decoding, chat -> llama. Imports inside functions and for type
checking count as well: an exception that is invisible is how layers rot.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FRONT_ENDS = {"gradio", "fastapi", "starlette", "uvicorn", "langchain", "langchain_core"}
FRONT_END_PACKAGES = {"ssr_chat", "ssr_server", "langchain_ssr"}
CONCURRENCY = {"threading", "asyncio", "queue", "concurrent", "multiprocessing", "anyio"}
ABOVE_DECODING = {
    f"ssr_local.{name}" for name in ("engine", "worker", "generation", "preparation", "registry")
}


def imports(path: Path) -> Iterator[str]:
    """Full names of all that a module imports: `from a import b` gives a and a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def offences(folder: str, forbidden: set[str], *, outside: str | None = None) -> list[str]:
    """Imports below `folder` that are, or lie within, a forbidden module."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        if outside and path.is_relative_to(ROOT / outside):
            continue
        for name in imports(path):
            if any(f"{name}.".startswith(f"{module}.") for module in forbidden):
                found.append(f"{path.relative_to(ROOT)} imports {name}")
    return found


@pytest.mark.parametrize("statement", ["import a.b", "from a.b import c", "from a import b"])
def test_the_check_sees_every_form_of_import(tmp_path: Path, statement: str) -> None:
    """A check that finds nothing must not be a check that looks at nothing."""
    module = tmp_path / "module.py"
    module.write_text(f"def f():\n    {statement}\n")
    assert any(f"{name}.".startswith("a.b.") for name in imports(module))


def test_the_engine_knows_no_front_end() -> None:
    assert offences("ssr_local", FRONT_ENDS | FRONT_END_PACKAGES) == []


def test_only_the_llama_package_touches_llama_cpp() -> None:
    folders = ("ssr_local", "integrations", "app")
    for folder in folders:
        assert offences(folder, {"llama_cpp"}, outside="ssr_local/llama") == []


def test_no_test_loads_a_model_past_the_guards() -> None:
    """`llama_cpp.Llama` crashes the whole run on CPUs with AMX (`support.bare_model`)."""
    assert offences("tests", {"llama_cpp.Llama"}) == []


@pytest.mark.parametrize("folder", ["decoding", "chat", "llama"])
def test_nothing_below_the_engine_knows_threads_or_the_engine(folder: str) -> None:
    above = {"llama": {"ssr_local.decoding", "ssr_local.chat"}, "chat": {"ssr_local.decoding"}}
    forbidden = CONCURRENCY | ABOVE_DECODING | above.get(folder, set())
    assert offences(f"ssr_local/{folder}", forbidden) == []


def test_decoding_and_chat_know_no_ctypes() -> None:
    assert offences("ssr_local/decoding", {"ctypes"}) == []
    assert offences("ssr_local/chat", {"ctypes"}) == []


def test_front_ends_use_the_public_engine_only() -> None:
    private = {"ssr_local.decoding", "ssr_local.worker", "ssr_local.llama.context"}
    assert offences("integrations", private) + offences("app", private) == []


def test_importing_the_engine_loads_no_front_end() -> None:
    """What the import statements can't show: that no dependency drags one in."""
    program = "import sys, ssr_local.engine; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (FRONT_ENDS | FRONT_END_PACKAGES) & set(done.stdout.split()) == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this tree, built without network."""
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_ships_the_four_packages_and_their_data(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    packages = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert packages == {"ssr_local"} | FRONT_END_PACKAGES
    assert {"ssr_local/models.toml", "ssr_local/py.typed"} <= names
    assert any(n.startswith("ssr_local/bench/tasks/") and n.endswith(".toml") for n in names)


def test_the_wheel_holds_all_modules_and_no_strangers(wheel: zipfile.ZipFile) -> None:
    """A module that .gitignore hides, or a stray weight or cache that it does not."""
    shipped = {name for name in wheel.namelist() if name.startswith("ssr_local/")}
    modules = {str(p.relative_to(ROOT)) for p in (ROOT / "ssr_local").rglob("*.py")}
    assert modules <= shipped
    assert {Path(name).suffix for name in shipped} <= {".py", ".toml", ".typed", ".json", ".jinja"}


def test_the_wheel_states_its_license_and_entry_points(wheel: zipfile.ZipFile) -> None:
    info = next(n.partition("/")[0] for n in wheel.namelist() if ".dist-info/" in n)
    assert "Apache License" in wheel.read(f"{info}/licenses/LICENSE").decode()
    scripts = wheel.read(f"{info}/entry_points.txt").decode()
    assert "ssr = ssr_local.cli:main" in scripts
    assert "ssr-chat = ssr_chat.cli:main" in scripts
