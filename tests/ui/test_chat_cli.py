"""`ssr-chat` from the shell: what it says, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ssr_chat.cli import app
from ssr_chat.network import credentials, is_local
from support.tiny_gguf import tiny_model
from typer.testing import CliRunner, Result

from ssr_local.errors import InvalidRequest
from ui.conftest import free_port


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["--no-open", *arguments])


def assert_refused(result: Result, *words: str) -> None:
    """One line that says what to do."""
    error = [line for line in result.stderr.splitlines() if line.startswith("Error:")]
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert len(error) == 1
    assert not [word for word in words if word not in error[0]]


def test_a_port_in_use_names_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert_refused(run("--port", str(port)), f"Port {port} is in use", "--port ")


def test_other_machines_need_a_password() -> None:
    assert_refused(run("--host", "0.0.0.0"), "--auth USER:PASSWORD")


def test_an_address_of_another_machine() -> None:
    assert_refused(run("--host", "192.0.2.1", "--auth", "me:secret"), "192.0.2.1", "--host")


def test_an_unknown_model() -> None:
    result = run("--port", str(free_port()), "--model", "no-such-model")
    assert_refused(result, "no-such-model", "ssr models list")


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"not a model")
    result = run("--port", str(free_port()), "--model", str(path))
    assert_refused(result, "broken.gguf", "damaged or not a GGUF")


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    # Ctrl-C is ignored by what a shell script starts in the background; a terminal's is not.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}; from ssr_chat.cli import main; main()", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_WAIT_POLICY": "passive"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_it_says_where_the_window_is_and_ctrl_c_ends_it() -> None:
    port = free_port()
    with started("--no-open", "--port", str(port), "--model", str(tiny_model())) as process:
        assert process.stderr
        said = [process.stderr.readline()]
        while said[-1] and "Ctrl-C" not in said[-1]:
            said.append(process.stderr.readline())
        url = f"http://127.0.0.1:{port}"
        assert url in said[-1]
        with urllib.request.urlopen(url) as page:
            assert b"SSR Local" in page.read()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=30)
    assert process.returncode == 0
    assert rest.strip() == "Ending."
    assert "Traceback" not in "".join(said)


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.5", False),
        ("example.com", False),
    ],
)
def test_which_addresses_only_this_machine_reaches(host: str, local: bool) -> None:
    assert is_local(host) is local


@pytest.mark.parametrize("auth", ["", "me", "me:", ":secret"])
def test_malformed_passwords_are_refused(auth: str) -> None:
    with pytest.raises(InvalidRequest, match="USER:PASSWORD"):
        credentials("127.0.0.1", auth)


def test_a_password_may_hold_a_colon() -> None:
    assert credentials("0.0.0.0", "me:a:b") == ("me", "a:b")
