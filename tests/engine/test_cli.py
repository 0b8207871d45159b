"""`ssr` as people call it, on a tiny random model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from support.tiny_gguf import NEVER, PREOPENED_TEMPLATE, Character, tiny_model
from typer.testing import CliRunner

import ssr_local
from ssr_local.cli import app

ENDLESS = Character(end_bias=NEVER, close_bias=NEVER)
PROGRAM = [sys.executable, "-c", "from ssr_local.cli import main; main()", "generate"]
LIMITS = ["--thinking-budget", "12", "--max-tokens", "40", "--n-ctx", "512", "--seed", "3"]


@pytest.fixture(scope="module")
def model() -> Path:
    return tiny_model(chat_template=PREOPENED_TEMPLATE, character=ENDLESS)


def ssr(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


def generate(model: Path, *arguments: str | Path, stdin: str | None = None) -> Result:
    return ssr("generate", "--model", model, *LIMITS, *arguments, stdin=stdin)


# Help


def test_the_version() -> None:
    assert ssr("--version").output.strip() == f"ssr-local {ssr_local.__version__}"


@pytest.mark.parametrize("command", [[], ["generate"], ["models"], ["models", "pull"], ["doctor"]])
def test_every_command_has_help(command: list[str]) -> None:
    found = ssr(*command, "--help")
    assert found.exit_code == 0
    assert "Usage: " in found.output


def test_the_help_loads_no_llama_cpp() -> None:
    program = (
        "import sys, ssr_local.cli as c\n"
        "try: c.app(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit('llama_cpp' in sys.modules or 'ssr_local.engine' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


# Generate


def test_stdout_gets_the_answer_and_stderr_the_rest(model: Path) -> None:
    done = generate(model, "begin")
    as_json = json.loads(generate(model, "--json", "begin").stdout)
    assert done.exit_code == 0
    assert done.stdout.removesuffix("\n") == as_json["answer"].removesuffix("\n")
    assert as_json["reasoning"].strip() in done.stderr
    assert "tokens/step" in done.stderr


def test_json_is_one_object_with_text_usage_and_stats(model: Path) -> None:
    found = json.loads(generate(model, "--json", "begin").stdout)
    assert list(found) == ["answer", "reasoning", "finish_reason", "usage", "stats"]
    assert found["finish_reason"] == "length"
    assert found["usage"]["reasoning_tokens"] == 12
    assert found["usage"]["answer_tokens"] == 28
    assert set(found["stats"]["seconds"]) == {"queue", "prefill", "thinking", "answer", "total"}


def test_speculation_changes_nothing_but_the_figures(model: Path) -> None:
    plain = generate(model, "--no-speculation", "begin")
    speculated = generate(model, "--prediction", __file__, "begin")
    assert plain.stdout == speculated.stdout
    assert "1.0 tokens/step" in plain.stderr


def test_the_prompt_may_be_piped_in(model: Path) -> None:
    given = generate(model, "begin").stdout
    assert generate(model, stdin="begin").stdout == given
    assert generate(model, "-", stdin="begin").stdout == given


def test_stats_are_a_table(model: Path) -> None:
    assert "What speculation did" in generate(model, "--stats", "begin").stderr


# Errors


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--model", "no-such-model", "x"], 1, "no-such-model"),
        (["--model", "no/such/file.gguf", "x"], 1, "file.gguf"),
        (["--no-speculation", "--policy", "ssr", "x"], 2, "contradicts"),
        (["--temperature", "-1", "x"], 1, "temperature"),
        (["--n-ctx", "3", "x"], 1, "n_ctx"),
        (["--prediction", "no/such/file", "x"], 1, "no/such/file"),
        (["--thinking", "hard", "x"], 2, "hard"),
    ],
)
def test_a_mistake_gets_a_message_and_an_exit_code(
    model: Path, arguments: list[str], code: int, says: str
) -> None:
    given = [] if "--model" in arguments else ["--model", str(model)]
    failed = ssr("generate", *given, *arguments)
    assert failed.exit_code == code, failed.output
    assert says in failed.stderr
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""


def test_an_empty_pipe_is_refused(model: Path) -> None:
    assert "no prompt" in generate(model, stdin=" \n").stderr


def test_a_truncated_file_is_named_damaged(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(model.read_bytes()[:-5000])
    failed = generate(broken, "x")
    assert failed.exit_code == 1
    assert "broken.gguf" in failed.stderr


def test_a_prompt_over_the_context_is_explained_with_counts(model: Path) -> None:
    failed = generate(model, "long " * 600)
    assert failed.exit_code == 1
    assert "512" in failed.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_full_disk_is_one_clear_line(model: Path, options: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "--model", model, *LIMITS, *options, "begin"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    assert done.returncode == 1
    assert b"Reading or writing failed: " in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGPIPE there")
def test_a_reader_that_leaves_ends_it_in_silence(model: Path) -> None:
    options = ["--model", model, "--thinking-budget", "0", "--n-ctx", "8000", "--quiet", "begin"]
    process = subprocess.Popen([*PROGRAM, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    process.stdout.read(20)
    process.stdout.close()
    messages = process.stderr.read()
    process.wait(timeout=20)
    assert b"Traceback" not in messages
    assert b"failed" not in messages


# Ctrl-C


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for child processes there")
def test_ctrl_c_keeps_what_was_written_and_exits_with_130(model: Path) -> None:
    options = ["--model", str(model), "--thinking-budget", "0", "--n-ctx", "8000", "begin"]
    process = subprocess.Popen(
        [*PROGRAM, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    )
    assert process.stdout
    begun = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    rest, messages = process.communicate(timeout=20)
    assert process.returncode == 130
    assert len(begun) == 20
    assert rest.endswith(b"\n")
    assert b"cancelled" in messages
    assert b"Traceback" not in messages
