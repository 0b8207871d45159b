"""The model taken when none is named: the best that is here, told, and never a surprise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.models_on_disk import entry_for, write_gguf

from ssr_local import default_model
from ssr_local.default_model import choose_default, recommend
from ssr_local.device import Machine, Memory
from ssr_local.llama.backends import Device, DeviceKind
from ssr_local.registry import EMBEDDED, Checked, Entry, Registry
from ssr_local.request import Thinking

GB = 10**9


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


LAPTOP = Machine(8, Memory(16 * GB, 12 * GB), ())
TINY = Machine(2, Memory(GB, GB // 2), ())
WITH_GPU = Machine(
    8, Memory(32 * GB, 28 * GB), (Device("CUDA0", "card", DeviceKind.GPU, 24 * GB, 24 * GB),)
)


def having(*names: str) -> Callable[[Entry], bool]:
    return lambda known: known.name in names


class TestDefault:
    @pytest.mark.parametrize(
        ("machine", "here", "chosen"),
        [
            (LAPTOP, [], EMBEDDED),
            (LAPTOP, [EMBEDDED], EMBEDDED),
            (LAPTOP, [EMBEDDED, "qwen3-0.6b"], "qwen3-0.6b"),
            (LAPTOP, ["qwen3-0.6b", "qwen3-4b"], "qwen3-4b"),
            # Bearable speed beats size on a CPU, and a GPU changes that.
            (LAPTOP, ["qwen3-4b", "qwen3-14b"], "qwen3-4b"),
            (WITH_GPU, ["qwen3-4b", "qwen3-14b"], "qwen3-14b"),
            # Native reasoning beats prompted, prompted beats none.
            (LAPTOP, ["qwen2.5-coder-1.5b", "qwen3-0.6b"], "qwen3-0.6b"),
            (LAPTOP, [EMBEDDED, "qwen2.5-coder-0.5b"], "qwen2.5-coder-0.5b"),
            # What does not fit is not chosen, though it is here.
            (LAPTOP, ["qwen3-32b"], EMBEDDED),
            (TINY, ["qwen3-4b", EMBEDDED], EMBEDDED),
            # Slow but reasoning beats fast but not.
            (LAPTOP, ["qwen3-8b", EMBEDDED], "qwen3-8b"),
        ],
    )
    def test_choice(
        self, shipped: Registry, machine: Machine, here: list[str], chosen: str
    ) -> None:
        choice = choose_default(
            shipped, machine, is_present=having(*here), hub_reachable=lambda: False
        )
        assert choice.entry.name == chosen
        assert choice.present is (chosen in here)

    def test_the_demo_model_is_explained_and_a_better_one_named(self, shipped: Registry) -> None:
        choice = choose_default(shipped, LAPTOP, is_present=having(), hub_reachable=lambda: True)
        better = recommend(shipped, LAPTOP)
        assert better is not None
        message = str(choice.message)
        assert "135 million parameters" in message
        assert "does not reason" in message
        assert f"ssr models pull {better.name}" in message

    def test_offline_is_said(self, shipped: Registry) -> None:
        choice = choose_default(shipped, LAPTOP, is_present=having(), hub_reachable=lambda: False)
        assert "can't be reached" in str(choice.message)

    def test_the_hub_is_not_asked_when_a_model_is_here(self, shipped: Registry) -> None:
        def fail() -> bool:
            raise AssertionError("asked")

        choose_default(shipped, LAPTOP, is_present=having("qwen3-4b"), hub_reachable=fail)

    @pytest.mark.parametrize("machine", [LAPTOP, WITH_GPU])
    def test_what_is_recommended_reasons_and_was_not_guessed(
        self, shipped: Registry, machine: Machine
    ) -> None:
        best = recommend(shipped, machine)
        assert best is not None
        assert best.profile is Thinking.NATIVE
        assert best.checked is not Checked.ASSUMED

    def test_a_gpu_is_made_use_of_and_a_laptop_gets_no_huge_download(
        self, shipped: Registry
    ) -> None:
        small, large = recommend(shipped, LAPTOP), recommend(shipped, WITH_GPU)
        assert small is not None
        assert large is not None
        assert small.size <= 6 * GB < large.size
        assert large.size <= 24 * GB

    def test_a_machine_too_small_for_any_reasoning_model_is_told_so(
        self, shipped: Registry
    ) -> None:
        assert recommend(shipped, TINY) is None
        choice = choose_default(shipped, TINY, is_present=having(), hub_reachable=lambda: True)
        assert "don't fit this machine" in str(choice.message)

    def test_nothing_large_is_downloaded_unasked(
        self, shipped: Registry, monkeypatch: pytest.MonkeyPatch, folder: Path
    ) -> None:
        pulled: list[str] = []

        def pull(wanted: Entry, **_: object) -> Path:
            pulled.append(wanted.name)
            return write_gguf(folder / wanted.file)

        monkeypatch.setattr(default_model.download, "pull", pull)
        monkeypatch.setattr(default_model, "choose_default", _choose_offline)
        said: list[str] = []
        small = entry_for(write_gguf(folder / "x.gguf"), EMBEDDED, file="small.gguf")
        registry = Registry(shipped.entries | {EMBEDDED: small})
        found = default_model.prepare(
            None, notify=said.append, on_progress=lambda _: None, registry=registry
        )
        assert pulled == [EMBEDDED]
        assert found.name == EMBEDDED
        assert said


def _choose_offline(registry: Registry, machine: Machine) -> default_model.DefaultChoice:
    return choose_default(registry, machine, hub_reachable=lambda: False)
