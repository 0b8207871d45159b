"""A model's weights in memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ssr_local.errors import EngineClosed, UnsupportedModel
from ssr_local.llama.backends import uses_amx
from ssr_local.llama.library import clear_log, lib, log_tail
from ssr_local.llama.vocab import Vocab
from ssr_local.settings import EngineSettings

_ALL_LAYERS = -1


class LlamaModel:
    """The weights of one GGUF file, loaded by llama.cpp.

    Raises:
        UnsupportedModel: llama.cpp refuses the file: an architecture it does not know, or not
            enough memory. The file's soundness is checked before (`ssr_local.gguf`).
    """

    def __init__(
        self,
        path: Path,
        settings: EngineSettings,
        on_progress: Callable[[float], None] | None = None,
    ) -> None:
        self.path = path
        self._pointer = _load(path, settings, on_progress)
        self.vocab = Vocab(lib.llama_model_get_vocab(self._pointer), self)
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(self._pointer)
        self.description = self._describe()
        self.size_bytes: int = lib.llama_model_size(self._pointer)
        self.is_recurrent: bool = lib.llama_model_is_recurrent(
            self._pointer
        ) or lib.llama_model_is_hybrid(self._pointer)

    @property
    def pointer(self) -> Any:
        if self._pointer is None:
            raise EngineClosed("The model was unloaded.")
        return self._pointer

    def chat_template(self) -> str | None:
        """The Jinja source in the file, if there is one."""
        raw = lib.llama_model_chat_template(self.pointer, None)
        return raw.decode("utf-8", "replace") if raw else None

    def close(self) -> None:
        """Free the weights. No context of this model may be in use any more."""
        if self._pointer is not None:
            lib.llama_model_free(self._pointer)
            self._pointer = None

    def _describe(self) -> str:
        buffer = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self._pointer, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")


def _load(path: Path, settings: EngineSettings, on_progress: Callable[[float], None] | None) -> Any:
    params = _params(settings)
    if on_progress:
        # The reference must outlive the call; ctypes keeps none.
        callback = lib.llama_progress_callback(lambda done, _data: (on_progress(done), True)[1])
        params.progress_callback = callback
    clear_log()
    pointer = lib.llama_model_load_from_file(str(path).encode(), params)
    if not pointer:
        raise UnsupportedModel(f"llama.cpp could not load {path.name}: {log_tail()}")
    return pointer


def _params(settings: EngineSettings) -> Any:
    params = lib.llama_model_default_params()
    layers, repack = settings.n_gpu_layers, settings.repack_weights
    params.n_gpu_layers = _ALL_LAYERS if layers is None else layers
    params.use_extra_bufts = not uses_amx() if repack is None else repack
    return params
