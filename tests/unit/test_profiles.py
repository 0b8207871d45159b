"""Profiles are read off what templates render. The templates here are our own, one for each way in
which families differ."""

import pytest
from support.tiny_gguf import NATIVE_TEMPLATE, PLAIN_TEMPLATE, PREOPENED_TEMPLATE

from ssr_local.chat.profiles import ReasoningProfile, detect_profile, ends_open
from ssr_local.errors import InvalidRequest, UnsupportedModel
from ssr_local.request import Thinking


def turns(past: str = "{{ m.content }}") -> str:
    """Plain turns, and how an answer that was thought about is shown again."""
    return (
        "{% for m in messages %}<{{ m.role }}>"
        "{% if m.role == 'assistant' %}" + past + "{% else %}{{ m.content }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}<assistant>"
    )


PAST = "<think>{{ m.reasoning_content }}</think>{{ m.content }}"

CLOSED_AT_ONCE = turns(PAST) + "{{ '<think>' if enable_thinking else '</think>' }}{% endif %}"
"""As GLM-4.7: no line breaks, and thinking is switched off by a lone close."""

ON_REQUEST = turns() + "<think>{{ '</think>' if not thinking }}{% endif %}"
"""As DeepSeek-V3.1: another variable, off unless it is set."""

SWITCHLESS = turns("<think>\n{{ m.reasoning_content }}\n</think>\n{{ m.content }}") + (
    "<think>\n{% endif %}"
)
"""As StepFun's: always opened."""

OWN_INITIATIVE = turns(PAST) + "{% endif %}"
"""As LFM2.5: nothing but an earlier turn tells that the model thinks."""

FORGETFUL = turns() + "<think>\n{{ '</think>' if not enable_thinking }}{% endif %}"
"""As QwQ: earlier thoughts are not shown, nor what follows the close."""

OTHER_TAG = turns("<x:think>{{ m.reasoning_content }}</x:think>{{ m.content }}") + "{% endif %}"


@pytest.mark.parametrize(
    ("template", "open", "forced_close"),
    [
        pytest.param(NATIVE_TEMPLATE, "<think>", "\n</think>\n\n", id="Qwen3"),
        pytest.param(PREOPENED_TEMPLATE, "<think>", "\n</think>\n\n", id="Qwen3.5"),
        pytest.param(CLOSED_AT_ONCE, "<think>", "</think>", id="GLM-4.7"),
        pytest.param(ON_REQUEST, "<think>", "</think>", id="DeepSeek-V3.1"),
        pytest.param(SWITCHLESS, "<think>", "\n</think>\n", id="StepFun"),
        pytest.param(OWN_INITIATIVE, "<think>", "</think>", id="LFM2.5"),
        pytest.param(FORGETFUL, "<think>", "\n</think>\n\n", id="QwQ"),
        pytest.param(OTHER_TAG, "<x:think>", "</x:think>", id="another tag"),
    ],
)
def test_native_thinking_is_found(template: str, open: str, forced_close: str) -> None:
    profile = detect_profile(template, Thinking.AUTO)
    assert profile == detect_profile(template, Thinking.NATIVE)
    assert profile.mode is Thinking.NATIVE
    assert (profile.open, profile.close) == (open, open.replace("<", "</"))
    assert profile.forced_close == forced_close
    assert profile.prompt_suffix == ""


@pytest.mark.parametrize(
    ("template", "variables", "suffix"),
    [
        pytest.param(PLAIN_TEMPLATE, {}, "", id="never thinks"),
        pytest.param(NATIVE_TEMPLATE, {"enable_thinking": False}, "", id="switched"),
        pytest.param(ON_REQUEST, {"thinking": False}, "", id="switched by another name"),
        pytest.param(SWITCHLESS, {}, "\n</think>\n", id="closed by us"),
        pytest.param(OWN_INITIATIVE, {}, "<think></think>", id="opened and closed by us"),
    ],
)
def test_thinking_is_switched_off(template: str, variables: dict[str, bool], suffix: str) -> None:
    profile = detect_profile(template, Thinking.OFF)
    assert profile == ReasoningProfile(
        name="off", mode=Thinking.OFF, prompt_suffix=suffix, template_variables=variables
    )


def test_thinking_is_switched_on_where_it_is_off_by_default() -> None:
    assert detect_profile(ON_REQUEST, Thinking.AUTO).template_variables == {"thinking": True}


@pytest.mark.parametrize("template", [PLAIN_TEMPLATE, None])
def test_auto_is_off_where_the_template_knows_no_thinking(template: str | None) -> None:
    assert detect_profile(template, Thinking.AUTO).mode is Thinking.OFF


def test_native_thinking_of_a_template_without_it_is_refused_with_advice() -> None:
    with pytest.raises(InvalidRequest, match=r'thinking: .*Use thinking="prompted"'):
        detect_profile(PLAIN_TEMPLATE, Thinking.NATIVE)


def test_prompted_thinking_switches_native_thinking_off() -> None:
    profile = detect_profile(NATIVE_TEMPLATE, Thinking.PROMPTED)
    assert profile.mode is Thinking.PROMPTED
    assert profile.template_variables == {"enable_thinking": False}
    assert (profile.open, profile.close) == ("", "")
    assert profile.think_instruction
    assert profile.answer_instruction


def test_a_tag_that_the_template_merely_mentions_is_no_thinking() -> None:
    mention = "Never write <think>.{% for m in messages %}{{ m.content }}{% endfor %}"
    assert detect_profile(mention, Thinking.AUTO).mode is Thinking.OFF


def test_a_template_that_always_closes_the_thinking_does_not_think() -> None:
    assert detect_profile(turns(PAST) + "<think></think>{% endif %}", Thinking.AUTO).open == ""


def test_a_template_that_refuses_the_probes_does_not_think() -> None:
    assert detect_profile("{{ raise_exception('no') }}", Thinking.AUTO).mode is Thinking.OFF


def test_a_template_that_does_not_compile_is_an_unsupported_model() -> None:
    with pytest.raises(UnsupportedModel):
        detect_profile("{% if %}", Thinking.AUTO)


def test_the_tail_of_a_prompt_tells_whether_thinking_is_open() -> None:
    assert ends_open("...<think>\n", "<think>")
    assert not ends_open("...<think>\n</think>", "<think>")
    assert not ends_open("...", "")
