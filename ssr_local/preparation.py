"""From a request to what its course needs: template, thinking format, sampling, limits.

Everything that can be wrong with a request is found here, before it is queued.
"""

from __future__ import annotations

import secrets

from ssr_local.chat.profiles import ReasoningProfile, detect_profile
from ssr_local.chat.prompt import PreparedPrompt, prepare_prompt
from ssr_local.chat.special import SpecialTexts
from ssr_local.chat.template import CHATML, ChatTemplate
from ssr_local.decoding.format import CourseSpec, ThinkingFormat
from ssr_local.decoding.sampling import SamplerSettings
from ssr_local.errors import ContextOverflow, InvalidRequest
from ssr_local.llama.vocab import Vocab
from ssr_local.request import Policy, Request, Sampling, Thinking

GENERAL_SAMPLING = Sampling(temperature=0.7, top_k=40, top_p=0.95, min_p=0.05)
"""For a model whose makers recommend nothing that we know of."""


class Preparation:
    """Resolves requests against one model.

    Args:
        template_source: the model's chat template, or None if it has none (ChatML is used then).
        recommended, recommended_off: the sampling that the model's makers recommend, with thinking
            and without.
        default_thinking: what `Thinking.AUTO` means for this model; AUTO to go by the template.
        speculates: whether the model's memory can roll back a rejected draft.
    """

    def __init__(
        self,
        vocab: Vocab,
        *,
        template_source: str | None,
        recommended: Sampling,
        recommended_off: Sampling,
        default_thinking: Thinking,
        n_ctx: int,
        speculates: bool,
    ) -> None:
        self._vocab = vocab
        source = CHATML if template_source is None else template_source
        self._specials = SpecialTexts.of_vocabulary(*vocab.special_texts(), source)
        self._profiles: dict[Thinking, ReasoningProfile] = {}
        self._template = ChatTemplate(
            source,
            bos_token=_token_text(vocab, vocab.bos),
            eos_token=_token_text(vocab, vocab.eos),
        )
        self._recommended, self._recommended_off = recommended, recommended_off
        self._default_thinking = default_thinking
        self._n_ctx = n_ctx
        self._speculates = speculates

    def profile(self, wanted: Thinking) -> ReasoningProfile:
        """The reasoning profile that a request gets.

        Raises:
            InvalidRequest: native thinking is wanted of a model that has none.
        """
        if wanted is Thinking.AUTO:
            wanted = self._default_thinking
        if wanted not in self._profiles:
            self._profiles[wanted] = detect_profile(self._template, wanted)
        return self._profiles[wanted]

    def spec(self, request: Request) -> CourseSpec:
        """Everything the request's course needs.

        Raises:
            InvalidRequest: the template refuses the messages, or a field does not fit the model.
            ContextOverflow: the prompt leaves no room for an answer.
        """
        prepared = prepare_prompt(
            self._template, request.messages, self.profile(request.thinking), self._specials
        )
        thinking = self._thinking_format(prepared)
        prompt = tuple(self._vocab.tokenize_prompt(prepared.segments))
        forced = len(thinking.forced_tokens) if thinking else 0
        if len(prompt) + forced >= self._n_ctx:
            raise ContextOverflow(len(prompt), self._n_ctx)
        policy = request.policy if self._speculates else Policy.PLAIN
        return CourseSpec(
            prompt=prompt,
            thinking=thinking,
            thinking_budget=request.thinking_budget,
            max_tokens=request.max_tokens,
            n_ctx=self._n_ctx,
            stops=tuple(request.stop),
            prediction=tuple(self._vocab.tokenize(request.prediction or "")),
            drafts=policy in (Policy.PREFIX, Policy.SSR),
            suffixes=policy in (Policy.LOOKUP, Policy.SSR),
        )

    def recommended_for(self, wanted: Thinking) -> Sampling:
        """What is used where a request with this kind of thinking says nothing."""
        off = self.profile(wanted).mode is Thinking.OFF
        return self._recommended_off if off else self._recommended

    def sampler_settings(self, request: Request) -> SamplerSettings:
        """The request's sampling, completed by the recommended one, and a seed if it has none.

        Raises:
            InvalidRequest: a token id of `logit_bias` is not in the vocabulary.
        """
        sampling = request.sampling
        for token in sampling.logit_bias:
            if not 0 <= token < self._vocab.n_tokens:
                raise InvalidRequest(
                    f"logit_bias: {token} is not a token id; the model has {self._vocab.n_tokens}"
                )
        given = self.recommended_for(request.thinking).model_dump(exclude_none=True)
        given |= sampling.model_dump(exclude_none=True)
        given.setdefault("seed", secrets.randbits(63))
        return SamplerSettings(**given)

    def _thinking_format(self, prepared: PreparedPrompt) -> ThinkingFormat | None:
        profile = prepared.profile
        if profile.mode is Thinking.OFF:
            return None
        close, lead = _split_close(prepared.forced_close, profile.close)
        markers = self._tokens(profile.open) + self._tokens(profile.close)
        return ThinkingFormat(
            open=profile.open,
            close=profile.close,
            opened=prepared.opened,
            forced_close=prepared.forced_close,
            open_tokens=self._tokens(profile.open + "\n") if profile.open else (),
            close_tokens=self._tokens(close),
            lead_tokens=self._tokens(lead),
            marker_tokens=frozenset(markers),
        )

    def _tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self._vocab.tokenize(text, special=True))


def _split_close(forced: str, marker: str) -> tuple[str, str]:
    """A forced close up to its marker's end, and what follows the marker."""
    if not marker:
        return forced, ""
    end = forced.index(marker) + len(marker)
    return forced[:end], forced[end:]


def _token_text(vocab: Vocab, token: int | None) -> str:
    return "" if token is None else vocab.control_text(token)
