"""How an engine is set up: context, devices, threads. Fixed for the engine's life."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator


class KVType(StrEnum):
    """Number format of the KV cache."""

    F16 = "f16"
    F32 = "f32"
    Q8_0 = "q8_0"


class EngineSettings(BaseModel):
    """Set-up of an engine.

    The defaults run anywhere: the context is as long as the model was trained for, up to 16,384
    tokens and to what fits in memory; all layers go to the GPU where the build has one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_ctx: Annotated[int, Field(ge=128)] | None = None
    """Tokens that one request may hold: prompt, thinking and answer."""
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    """Requests that run at the same time; each has `n_ctx` tokens of its own."""
    draft_cells: Annotated[int, Field(ge=0)] | None = None
    """KV cells for drafts beside each slot's `n_ctx`. None: a quarter of n_ctx, at most 2,048."""
    n_gpu_layers: int | None = None
    """Layers on the GPU; None or -1 for all."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads for one-row steps; None for the number of physical cores."""
    threads_batch: Annotated[int, Field(ge=1)] | None = None
    """CPU threads for larger batches; None for the same as `threads`."""
    kv_type: KVType = KVType.F16
    flash_attention: bool = True
    batch_rows: Annotated[int, Field(ge=32, le=4096)] = 512
    """Most rows that one llama.cpp call decodes; long prompts are read in chunks of this size."""
    micro_batch_rows: Annotated[int, Field(ge=8, le=4096)] | None = None
    """Rows that llama.cpp computes at once. None: `batch_rows` on a GPU, and 128 on a CPU, where
    more is hardly faster but holds up a cancel."""
    repack_weights: bool | None = None
    """Let llama.cpp rearrange weights for this CPU: faster, but rows of a batch then round
    differently from single rows. None: yes, save where it would use Intel's AMX, whose code in
    llama.cpp crashes in many builds (`ssr_local.llama.backends.uses_amx`)."""

    @model_validator(mode="after")
    def _quantized_values_need_flash_attention(self) -> EngineSettings:
        if self.kv_type is KVType.Q8_0 and not self.flash_attention:
            raise ValueError("kv_type q8_0 needs flash_attention")
        return self

    @classmethod
    def exact(cls, **changes: object) -> EngineSettings:
        """The recipe that makes a batch's rows bit-equal to single rows (docs/lossless.md).

        Together with the environment variable GGML_CPU_TILED_MM=0 (set before the import of
        ssr_local) speculation then can't even change a rounding. Used by the lossless tests.
        """
        recipe: dict[str, object] = {
            "threads": 1,
            "threads_batch": 1,
            "micro_batch_rows": 63,
            "repack_weights": False,
            "draft_cells": 4096,  # so that no parked draft has to be given up
        }
        return cls.model_validate(recipe | changes)
