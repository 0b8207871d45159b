"""What the engine's settings become in llama.cpp, where this depends on the machine."""

from __future__ import annotations

import pytest

from ssr_local.llama import backends, context, model
from ssr_local.settings import EngineSettings


@pytest.mark.parametrize(
    ("chosen", "amx", "rearranged"),
    [
        (None, False, True),
        (None, True, False),
        (True, True, True),
        (False, False, False),
    ],
)
def test_weights_are_not_rearranged_for_amx_unless_asked(
    monkeypatch: pytest.MonkeyPatch, chosen: bool | None, amx: bool, rearranged: bool
) -> None:
    features = ["AVX2", "AMX_INT8"] if amx else ["AVX2"]
    monkeypatch.setattr(backends, "cpu_features", lambda: features)
    params = model._params(EngineSettings(repack_weights=chosen))
    assert params.use_extra_bufts is rearranged


@pytest.mark.parametrize(
    ("gpu", "changes", "rows"),
    [
        (False, {}, 128),
        (True, {}, 512),
        (True, {"n_gpu_layers": 0}, 128),
        (False, {"micro_batch_rows": 512}, 512),
        (False, {"batch_rows": 32}, 32),
        (True, {"batch_rows": 64, "micro_batch_rows": 512}, 64),
    ],
)
def test_a_cpu_computes_few_rows_at_once_so_that_a_cancel_is_quick(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, changes: dict[str, int], rows: int
) -> None:
    monkeypatch.setattr(context.lib, "llama_supports_gpu_offload", lambda: gpu)
    settings = EngineSettings.model_validate(changes)
    assert context._micro_batch_rows(settings) == rows
