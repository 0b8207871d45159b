"""`ssr models` and `ssr doctor`: exit codes, what stands on which stream, and JSON for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support.models_on_disk import entry_for, write_gguf
from support.stand_in_hub import stand_in_hub
from typer.testing import CliRunner

from ssr_local import cli_models, doctor
from ssr_local.accelerator import IdleGPU
from ssr_local.cli_tables import human_size
from ssr_local.registry import Registry

app = typer.Typer()
app.add_typer(cli_models.models)
app.command()(cli_models.doctor)
runner = CliRunner()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder with one small model, registered under a name of its own."""
    models = tmp_path / "models"
    models.mkdir()
    monkeypatch.setenv("SSR_MODELS_DIR", str(models))
    known = entry_for(write_gguf(models / "test-model.gguf"))
    shipped = Registry.load(tmp_path / "none.toml")
    registry = Registry(shipped.entries | {known.name: known})
    monkeypatch.setattr(cli_models.Registry, "load", lambda: registry)
    return models


def run(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    result = runner.invoke(app, list(arguments), input=stdin)
    return result.exit_code, result.stdout, result.stderr


def row(name: str, table: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"{name} "))


def test_list_shows_what_is_known_and_what_is_here() -> None:
    code, out, _ = run("models", "list")
    assert code == 0
    assert "~5.0 GB" in row("qwen3-8b", out)
    assert "native" in row("qwen3-8b", out)
    assert "present, verified" in row("test-model", out)


def test_list_here_leaves_out_the_rest() -> None:
    _, out, _ = run("models", "list", "--here")
    assert "test-model" in out
    assert "qwen3-8b" not in out


def test_list_json_is_one_document() -> None:
    _, out, _ = run("models", "list", "--json")
    by_name = {model["name"]: model for model in json.loads(out)}
    assert by_name["test-model"]["status"] == "present"
    assert by_name["qwen3-8b"]["status"] == "absent"
    assert by_name["qwen3-8b"]["fits"] in ("gpu", "memory", "too large")


def test_path_prints_the_path_alone(folder: Path) -> None:
    assert run("models", "path", "test-model") == (0, f"{folder}/test-model.gguf\n", "")


def test_an_unknown_name_is_an_error_on_stderr() -> None:
    code, out, err = run("models", "path", "qwen3-8")
    assert (code, out) == (1, "")
    assert "qwen3-8b" in err
    assert "Traceback" not in err


def test_an_absent_model_says_how_to_get_it() -> None:
    code, _, err = run("models", "path", "qwen3-8b")
    assert code == 1
    assert "ssr models pull qwen3-8b" in err


def test_a_missing_argument_is_a_usage_error() -> None:
    assert run("models", "pull")[0] == 2


def test_pull_of_a_present_model_says_how_to_use_it() -> None:
    code, out, _ = run("models", "pull", "test-model")
    assert code == 0
    assert "--model test-model" in out


def test_pull_offline_fails_with_advice() -> None:
    """The tests run with HF_HUB_OFFLINE."""
    code, _, err = run("models", "pull", "qwen3-0.6b")
    assert code == 1
    assert "HF_HUB_OFFLINE" in err


def test_ctrl_c_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def press_ctrl_c(*_: object, **__: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_models.download, "pull", press_ctrl_c)
    code, _, err = run("models", "pull", "test-model")
    assert code == 130
    assert "Interrupted" in err


def test_verify_reads_what_is_here() -> None:
    code, out, _ = run("models", "verify")
    assert code == 0
    assert "test-model: sound, sha256" in out


def test_verify_reports_damage_and_fails(folder: Path) -> None:
    file = folder / "test-model.gguf"
    file.write_bytes(file.read_bytes()[:-1])
    code, out, _ = run("models", "verify", "test-model")
    assert code == 1
    assert "test-model: WRONG" in out


def test_rm_asks_first(folder: Path) -> None:
    assert run("models", "rm", "test-model", stdin="n\n")[0] == 1
    assert (folder / "test-model.gguf").exists()
    assert run("models", "rm", "test-model", stdin="y\n")[0] == 0
    assert not (folder / "test-model.gguf").exists()


def test_rm_yes_does_not_ask(folder: Path) -> None:
    code, out, _ = run("models", "rm", "test-model", "--yes")
    assert code == 0
    assert "freed" in out
    assert not (folder / "test-model.gguf").exists()


def test_rm_of_an_absent_model_says_so() -> None:
    assert run("models", "rm", "qwen3-8b", "--yes")[1] == "qwen3-8b is not here.\n"


@pytest.mark.parametrize("command", ["list", "pull", "path", "verify", "rm"])
def test_every_help_has_an_example(command: str) -> None:
    assert "ssr models" in run("models", command, "--help")[1]


def test_doctor_tells_the_build_the_memory_and_the_models() -> None:
    code, out, _ = run("doctor")
    assert code == 0
    for told in ("llama-cpp-python", "CPU features", "memory", "Models here", "What would fit"):
        assert told in out
    assert "test-model" in out


def test_doctor_json_is_one_document() -> None:
    _, out, _ = run("doctor", "--json")
    report = json.loads(out)
    assert report["machine"]["cores"] >= 1
    assert "CPU" in report["backends"]
    assert {model["name"] for model in report["models"]} >= {"test-model", "qwen3-8b"}


def test_doctor_gives_the_command_for_an_idle_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = IdleGPU("NVIDIA RTX 4090", "CMAKE_ARGS=... pip install ...", "the CUDA toolkit")
    monkeypatch.setattr(doctor.accelerator, "idle_gpus", lambda *_: [found])
    _, out, _ = run("doctor")
    assert "NVIDIA RTX 4090 is not used" in out
    assert "CMAKE_ARGS=... pip install ..." in out


def test_doctor_names_a_damaged_model(folder: Path) -> None:
    file = folder / "test-model.gguf"
    file.write_bytes(file.read_bytes()[:-1])
    assert "test-model is damaged" in run("doctor")[1]


@pytest.mark.parametrize(
    ("size", "text"), [(98_362_432, "98 MB"), (2.5e9, "2.5 GB"), (999_900_000, "1.0 GB")]
)
def test_sizes_are_for_people(size: float, text: str) -> None:
    assert human_size(size) == text


OWN_ENTRY = """
[[model]]
name = "served"
family = "test"
architecture = "llama"
parameters = 0.001
source = { kind = "hf", repo = "makers/served-GGUF" }
file = "served.gguf"
size = 1500
license = "mit"
context = 512
profile = "off"
"""


def test_pull_end_to_end_in_a_fresh_process(tmp_path: Path) -> None:
    """The command, the library's own HF_ENDPOINT, and the user's registry file, all together."""
    config = tmp_path / "config" / "ssr-local"
    config.mkdir(parents=True)
    (config / "models.toml").write_text(OWN_ENTRY)
    models = tmp_path / "fresh"
    content = write_gguf(tmp_path / "original.gguf", seed=3).read_bytes()
    with stand_in_hub() as hub:
        hub.files["makers/served-GGUF/served.gguf"] = content
        environment = os.environ | {
            "HF_ENDPOINT": hub.url,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(tmp_path / "hf"),
            "SSR_MODELS_DIR": str(models),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        code = "from ssr_local.cli_models import models; models()"
        done = subprocess.run(
            [sys.executable, "-c", code, "pull", "served"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert (models / "served.gguf").read_bytes() == content
    assert "ssr chat --model served" in done.stdout
