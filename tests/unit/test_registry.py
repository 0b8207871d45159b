"""Names become checked files, and half a file never counts."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.models_on_disk import entry, entry_for, write_gguf

from ssr_local import model_files
from ssr_local.errors import InvalidRequest, ModelCorrupt, ModelNotFound
from ssr_local.model_files import Status, file_state, verify
from ssr_local.registry import (
    EMBEDDED,
    Checked,
    HubSource,
    Registry,
    WheelSource,
    models_dir,
    resolve,
)
from ssr_local.request import Thinking

REQUIRED = {
    "qwen3-0.6b",
    "qwen3-1.7b",
    "qwen3-4b",
    "qwen3-8b",
    "qwen3-14b",
    "qwen3-32b",
    "qwen3-30b-a3b",
    "qwen3.5-0.8b",
    "qwen3.5-2b",
    "qwen3.5-4b",
    "qwen3.5-9b",
    "qwen3.5-27b",
    "qwen3.5-35b-a3b",
    "gemma-4-e2b",
    "gemma-4-e4b",
    "gemma-4-12b",
    "gemma-4-26b-a4b",
    "gemma-4-31b",
    "deepseek-r1-qwen-1.5b",
    "deepseek-r1-qwen-7b",
    "deepseek-r1-qwen-14b",
    "deepseek-r1-qwen-32b",
    "deepseek-r1-llama-8b",
    "deepseek-r1-0528-qwen3-8b",
    "gpt-oss-20b",
    "qwen2.5-coder-0.5b",
    "qwen2.5-coder-1.5b",
    "smollm2-135m",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder and a config folder of the test's own."""
    monkeypatch.setenv("SSR_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


@pytest.fixture
def shipped(tmp_path: Path) -> Registry:
    return Registry.load(tmp_path / "no-such-file.toml")


class TestShippedEntries:
    def test_all_families_are_there(self, shipped: Registry) -> None:
        assert set(shipped.entries) >= REQUIRED

    def test_every_hub_pattern_finds_the_entry_s_own_file(self, shipped: Registry) -> None:
        for known in shipped.entries.values():
            if isinstance(known.source, HubSource) and known.source.pattern:
                assert Path(known.file).match(known.source.pattern), known.name

    def test_what_was_fetched_has_its_sha256_and_size(self, shipped: Registry) -> None:
        fetched = [e for e in shipped.entries.values() if e.checked is Checked.WEIGHTS]
        assert fetched
        assert all(known.sha256 and known.size_exact for known in fetched)

    def test_files_are_distinct(self, shipped: Registry) -> None:
        files = [known.file for known in shipped.entries.values()]
        assert len(set(files)) == len(files)

    def test_the_embedded_model_needs_no_hub_and_does_not_reason(self, shipped: Registry) -> None:
        embedded = shipped.get(EMBEDDED)
        assert isinstance(embedded.source, WheelSource)
        assert embedded.profile is Thinking.OFF

    def test_every_entry_recommends_a_sampling(self, shipped: Registry) -> None:
        for known in shipped.entries.values():
            assert known.sampling.temperature is not None, known.name

    def test_sampling_depends_on_thinking(self, shipped: Registry) -> None:
        qwen3 = shipped.get("qwen3-8b")
        assert qwen3.sampling_for(thinking=True).temperature == 0.6
        assert qwen3.sampling_for(thinking=False).temperature == 0.7


OWN = """
[[model]]
name = "mine"
family = "llama"
architecture = "llama"
parameters = 1.0
source = {{ kind = "path", path = "{path}" }}
file = "mine.gguf"
size = 1000
license = "mit"
context = 512
profile = "off"
"""


class TestOwnFile:
    def test_adds_an_entry(self, tmp_path: Path) -> None:
        file = write_gguf(tmp_path / "mine.gguf")
        own = tmp_path / "own.toml"
        own.write_text(OWN.format(path=file))
        registry = Registry.load(own)
        assert registry.get("mine").checked is Checked.USER
        assert resolve("mine", registry).path == file

    def test_replaces_an_entry_of_the_same_name(self, tmp_path: Path) -> None:
        own = tmp_path / "own.toml"
        own.write_text(OWN.format(path="/x.gguf").replace('"mine"', '"qwen3-8b"'))
        assert Registry.load(own).get("qwen3-8b").license == "mit"

    def test_is_found_in_the_config_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            "platformdirs.user_config_path", lambda app, appauthor: tmp_path / "config" / app
        )
        (tmp_path / "config" / "ssr-local").mkdir(parents=True)
        (tmp_path / "config" / "ssr-local" / "models.toml").write_text(OWN.format(path="/x.gguf"))
        assert "mine" in Registry.load().entries

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("[[model]\n", "not valid TOML"),
            ("models = 3\n", r"\[\[model\]\] tables only"),
            ('[[model]]\nname = "x"\n', "family: Field required"),
            (OWN.replace("license", "licence"), "licence: Extra inputs"),
            (OWN.replace('file = "mine.gguf"', 'file = "../mine.gguf"'), "plain file name"),
            (OWN.replace('profile = "off"', 'profile = "auto"'), "profile: Input should be"),
        ],
    )
    def test_a_mistake_is_named(self, tmp_path: Path, text: str, told: str) -> None:
        own = tmp_path / "own.toml"
        own.write_text(text.format(path="/x.gguf") if "{path}" in text else text)
        with pytest.raises(InvalidRequest, match=told):
            Registry.load(own)


class TestNames:
    @pytest.mark.parametrize(
        ("typed", "meant"), [("qwen3-8", "qwen3-8b"), ("Gemma-4-E4B", "gemma-4-e4b")]
    )
    def test_a_misspelt_name_is_answered_with_near_ones(
        self, shipped: Registry, typed: str, meant: str
    ) -> None:
        with pytest.raises(ModelNotFound, match=meant):
            resolve(typed, shipped)

    def test_a_strange_name_points_to_the_list(self, shipped: Registry) -> None:
        with pytest.raises(ModelNotFound, match="ssr models list"):
            resolve("zzzzzz", shipped)

    def test_an_absent_model_says_how_to_get_it(self, shipped: Registry) -> None:
        with pytest.raises(ModelNotFound, match="ssr models pull qwen3-4b"):
            resolve("qwen3-4b", shipped)

    def test_any_path_works(self, tmp_path: Path, shipped: Registry) -> None:
        file = write_gguf(tmp_path / "some.gguf")
        found = resolve(str(file), shipped)
        assert (found.name, found.path, found.entry) == ("some", file, None)

    def test_a_path_to_a_known_file_brings_its_entry(self, folder: Path) -> None:
        known = entry_for(write_gguf(folder / "test-model.gguf"))
        registry = Registry({known.name: known})
        assert resolve(str(folder / "test-model.gguf"), registry).entry == known

    def test_a_missing_path_is_not_found(self, shipped: Registry) -> None:
        with pytest.raises(ModelNotFound, match=r"no file .*nothing\.gguf"):
            resolve("./nothing.gguf", shipped)

    def test_a_file_without_weights_is_refused(self, tmp_path: Path, shipped: Registry) -> None:
        file = write_gguf(tmp_path / "mmproj.gguf", arch="clip")
        with pytest.raises(ModelCorrupt, match="no language model"):
            resolve(str(file), shipped)


class TestPresence:
    def test_a_file_put_there_by_hand_counts_if_it_is_right(self, folder: Path) -> None:
        known = entry_for(write_gguf(folder / "test-model.gguf"))
        state = file_state(known)
        assert (state.status, state.verified) == (Status.PRESENT, True)

    def test_without_a_known_sha256_a_sound_file_counts(self, folder: Path) -> None:
        write_gguf(folder / "test-model.gguf")
        state = file_state(entry())
        assert (state.status, state.verified) == (Status.PRESENT, False)

    @pytest.mark.parametrize("cut", [1, 200, 1400])
    def test_half_a_file_does_not_count(self, folder: Path, cut: int) -> None:
        file = write_gguf(folder / "test-model.gguf")
        known = entry_for(file)
        file.write_bytes(file.read_bytes()[:-cut])
        assert file_state(known).status is Status.DAMAGED
        with pytest.raises(ModelCorrupt, match="bytes"):
            resolve(known.name, Registry({known.name: known}))

    def test_a_file_of_the_wrong_size_is_told_with_both_sizes(self, folder: Path) -> None:
        file = write_gguf(folder / "test-model.gguf")
        known = entry_for(file)
        size = file.stat().st_size
        file.write_bytes(file.read_bytes() + b"more")
        told = f"{size + 4:,} bytes long, and test-model should have {size:,}"
        assert told in str(file_state(known).problem)

    def test_other_weights_of_the_same_size_do_not_count(self, folder: Path) -> None:
        known = entry_for(write_gguf(folder / "test-model.gguf"))
        write_gguf(folder / "test-model.gguf", seed=1)
        with pytest.raises(ModelCorrupt, match="sha256"):
            model_files.checked_path(known)

    def test_an_unfinished_download_is_partial(self, folder: Path) -> None:
        part = model_files.partial_dir(entry()) / "abc.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"123")
        assert file_state(entry()) == model_files.FileState(Status.PARTIAL, 3)
        with pytest.raises(ModelNotFound, match="partly downloaded"):
            model_files.checked_path(entry())


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every file that is read in full."""
    read: list[Path] = []
    hash_file = model_files.hash_file

    def counting(path: Path, on_bytes: Callable[[int], None] | None = None) -> str:
        read.append(path)
        return hash_file(path, on_bytes)

    monkeypatch.setattr(model_files, "hash_file", counting)
    return read


class TestNotes:
    def test_a_file_is_read_in_full_once(self, folder: Path, readings: list[Path]) -> None:
        known = entry_for(write_gguf(folder / "test-model.gguf"))
        for _ in range(3):
            assert file_state(known).present
        assert len(readings) == 1

    def test_and_again_when_it_changed(self, folder: Path, readings: list[Path]) -> None:
        file = write_gguf(folder / "test-model.gguf")
        known = entry_for(file)
        file_state(known)
        os.utime(file, ns=(1, 1))
        assert file_state(known).present
        assert len(readings) == 2

    def test_a_note_that_is_damaged_is_made_anew(self, folder: Path) -> None:
        known = entry_for(write_gguf(folder / "test-model.gguf"))
        file_state(known)
        note = folder / ".verified" / "test-model.json"
        note.write_text("{")
        assert file_state(known).present
        assert json.loads(note.read_text())["sha256"] == known.sha256

    def test_a_note_can_not_vouch_for_another_file(self, folder: Path) -> None:
        known = entry_for(write_gguf(folder / "test-model.gguf"))
        file_state(known)
        write_gguf(folder / "test-model.gguf", seed=1)
        assert file_state(known).status is Status.DAMAGED

    def test_verify_reads_whatever_the_note_says(self, folder: Path, readings: list[Path]) -> None:
        known = entry_for(write_gguf(folder / "test-model.gguf"))
        file_state(known)
        assert verify(known) == known.sha256
        assert len(readings) == 2

    def test_verify_notices_silent_changes_where_the_registry_knows_no_sha256(
        self, folder: Path
    ) -> None:
        """Bit rot: same size, same time, other bytes."""
        file = write_gguf(folder / "test-model.gguf")
        verify(entry())
        stat = file.stat()
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        with pytest.raises(ModelCorrupt, match="has changed"):
            verify(entry())


class TestRemove:
    def test_frees_the_file_the_note_and_what_is_unfinished(self, folder: Path) -> None:
        known = entry_for(write_gguf(folder / "test-model.gguf"))
        file_state(known)
        part = model_files.partial_dir(known) / "x.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"123")
        assert model_files.remove(known) == known.size + 3
        assert file_state(known).status is Status.ABSENT
        assert not (folder / ".verified" / "test-model.json").exists()

    def test_never_touches_a_file_that_is_only_pointed_to(self, tmp_path: Path) -> None:
        file = write_gguf(tmp_path / "precious.gguf")
        model_files.remove(entry(source={"kind": "path", "path": str(file)}))
        assert file.exists()


def test_the_models_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSR_MODELS_DIR", "/somewhere")
    assert models_dir() == Path("/somewhere")


@pytest.mark.skipif(os.name != "posix", reason="XDG")
def test_the_models_folder_is_in_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSR_MODELS_DIR")
    monkeypatch.setattr("platformdirs.user_cache_path", lambda app, appauthor: Path("/c") / app)
    assert models_dir() == Path("/c/ssr-local/models")
