"""Every error that a user of SSR Local can cause or meet, in one tree.

Front ends map these types to exit codes, HTTP statuses and dialogs; the message always says what
went wrong and what to do about it. A broken promise of our own is an `AssertionError`, never one
of these.
"""

from __future__ import annotations


class SSRError(Exception):
    """Base of all errors raised by SSR Local."""


class ModelNotFound(SSRError):
    """No registry entry, file or download answers to the given model name."""


class ModelCorrupt(SSRError):
    """A model file is truncated, damaged, or not a GGUF file."""


class UnsupportedModel(SSRError):
    """The file is sound, but this build of llama.cpp, or this machine, can't run it."""


class DownloadFailed(SSRError):
    """A model's source could not be reached, or what it sent was not what was asked for."""


class InvalidRequest(SSRError):
    """A setting of a request is impossible; the message names the field."""


class ContextOverflow(SSRError):
    """The prompt does not fit the context.

    Attributes:
        prompt_tokens: length of the prompt in tokens.
        context_tokens: tokens that one request may hold in all (prompt, thinking and answer).
    """

    def __init__(self, prompt_tokens: int, context_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.context_tokens = context_tokens
        super().__init__(
            f"The prompt has {prompt_tokens} tokens, but the context holds {context_tokens} and "
            "needs room for an answer. Shorten the conversation, or load the model with a larger "
            "context (n_ctx)."
        )


class EngineClosed(SSRError):
    """The engine was closed before or while it worked on the request."""


class BackendError(SSRError):
    """llama.cpp reported a failure that a user can't have caused by a setting."""
