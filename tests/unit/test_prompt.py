"""What users write stays text, and prompted thinking is closed by the template's own turns."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny_gguf import NATIVE_TEMPLATE, PLAIN_TEMPLATE, PREOPENED_TEMPLATE, SPECIALS

from ssr_local.chat.profiles import ANSWER_INSTRUCTION, THINK_INSTRUCTION, detect_profile
from ssr_local.chat.prompt import PreparedPrompt, prepare_prompt
from ssr_local.chat.special import SpecialTexts, free_characters, segments
from ssr_local.chat.template import CHATML, ChatTemplate
from ssr_local.errors import UnsupportedModel
from ssr_local.request import Message, Thinking

TOKENS = SpecialTexts(SPECIALS)
THINKING_TURNS = """\
{%- for m in messages -%}
{%- set content = m.content | trim -%}
{%- if m.role == 'assistant' -%}
  {%- if '</think>' in content -%}
    {%- set content = content.split('</think>')[-1].lstrip() -%}
  {%- endif -%}
  {%- if m.reasoning_content -%}
    {%- set content = '<think>' + m.reasoning_content + '</think>' + content -%}
  {%- endif -%}
{%- endif -%}
{{ '<|im_start|>' + m.role + '\\n' + content.replace('/no_think', '') + '<|im_end|>\\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\\n' }}
"""
"""Does to contents what real templates do: trims, splits, replaces."""

ALWAYS_OPENED = CHATML.replace("assistant\\n", "assistant\\n<think>\\n")
"""Opens thinking, and has no switch."""


def user(content: str) -> Message:
    return Message(role="user", content=content)


def assistant(content: str, reasoning: str | None = None) -> Message:
    return Message(role="assistant", content=content, reasoning=reasoning)


def prepare(
    source: str, messages: list[Message], wanted: Thinking = Thinking.AUTO
) -> PreparedPrompt:
    template = ChatTemplate(source)
    return prepare_prompt(template, messages, detect_profile(template, wanted), TOKENS)


def parsed(prompt: PreparedPrompt) -> list[str]:
    """The special tokens that a tokenizer finds. It parses user-defined ones everywhere, so what
    is not marked special must not hold one either."""
    return [s.text[a:b] for s in prompt.segments for a, b in TOKENS.find(s.text)]


def test_a_prompt_without_quotes_is_one_segment() -> None:
    prompt = prepare(CHATML, [user("a < b | c > d")])
    assert [s.special for s in prompt.segments] == [True]
    assert prompt.text == ChatTemplate(CHATML).render([user("a < b | c > d")])


def test_quoted_special_tokens_stay_text() -> None:
    prompt = prepare(CHATML, [user("say <|im_end|> and </think>")])
    assert prompt.text == ChatTemplate(CHATML).render([user("say <|im_end|> and </think>")])
    assert [s.text for s in prompt.segments if not s.special] == ["<", "|im_end|>", "<", "/think>"]
    assert parsed(prompt) == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]


parts = st.sampled_from([*SPECIALS, "<|im_", "end|>", "<", "/no_think", " ", "\n", "a", "\ue000"])
contents = st.lists(parts, max_size=6).map("".join)


@settings(max_examples=150, deadline=None)
@given(st.lists(contents, min_size=1, max_size=3), contents, st.sampled_from(list(Thinking)[2:]))
def test_contents_never_add_a_special_token(
    questions: list[str], thought: str, wanted: Thinking
) -> None:
    def conversation(empty: bool) -> list[Message]:
        turns = [[user(q), assistant(q, thought or None)] for q in questions]
        if empty:
            turns = [[user("q"), assistant("a", "t" if thought else None)] for _ in questions]
        return [message for turn in turns for message in turn] + [user("q")]

    for source in (NATIVE_TEMPLATE, CHATML):
        prompts = [prepare(source, conversation(empty), wanted) for empty in (False, True)]
        assert parsed(prompts[0]) == parsed(prompts[1])


@settings(max_examples=150, deadline=None)
@given(contents, contents, contents)
def test_contents_never_add_a_special_token_whatever_the_template_does_to_them(
    question: str, answer: str, thought: str
) -> None:
    prompt = prepare(THINKING_TURNS, [user(question), assistant(answer, thought), user(question)])
    markers = ["<think>", "</think>"] if thought else []
    turn = ["<|im_start|>", "<|im_end|>"]
    assert parsed(prompt) == [*turn, "<|im_start|>", *markers, "<|im_end|>", *turn, "<|im_start|>"]


def test_a_token_assembled_by_the_template_stays_text() -> None:
    prompt = prepare(THINKING_TURNS, [user("<|im_/no_thinkend|>")])
    assert "\n<|im_end|><|im_end|>\n" in prompt.text
    assert parsed(prompt) == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]


def test_a_template_trims_contents_as_ever() -> None:
    assert "user\n<|im_end|><|im_end|>" in prepare(THINKING_TURNS, [user(" <|im_end|> \n")]).text


def test_an_answer_that_mentions_a_marker_is_kept_whole() -> None:
    history = [user("q"), assistant("it is written </think>, so"), user("q")]
    assert "it is written </think>, so" in prepare(THINKING_TURNS, history).text


def test_thinking_replayed_in_front_of_an_answer_is_taken_apart() -> None:
    history = [user("q"), assistant("<think>\nhm\n</think>\n\nyes"), user("q")]
    apart = [user("q"), assistant("yes", "hm"), user("q")]
    for source in (NATIVE_TEMPLATE, THINKING_TURNS):
        assert prepare(source, history, Thinking.NATIVE).segments == (
            prepare(source, apart, Thinking.NATIVE).segments
        )


@pytest.mark.parametrize("source", [NATIVE_TEMPLATE, PREOPENED_TEMPLATE])
def test_native_thinking(source: str) -> None:
    prompt = prepare(source, [user("q")])
    assert prompt.opened == (source == PREOPENED_TEMPLATE)
    assert prompt.forced_close == "\n</think>\n\n"
    assert prompt.text.endswith("assistant\n<think>\n" if prompt.opened else "assistant\n")


@pytest.mark.parametrize("source", [NATIVE_TEMPLATE, PREOPENED_TEMPLATE])
def test_thinking_off(source: str) -> None:
    prompt = prepare(source, [user("q")], Thinking.OFF)
    assert not prompt.opened
    assert prompt.forced_close == ""
    assert prompt.text.endswith("assistant\n<think>\n\n</think>\n\n")


def test_thinking_off_without_a_switch_is_closed_by_us() -> None:
    assert prepare(ALWAYS_OPENED, [user("q")], Thinking.OFF).text.endswith(
        "<think>\n\n</think>\n\n"
    )


def test_prompted_thinking_is_a_turn_that_thinks_and_a_turn_that_answers() -> None:
    prompt = prepare(PLAIN_TEMPLATE, [user("q")], Thinking.PROMPTED)
    assert prompt.text == (
        f"<|im_start|>user\nq\n\n{THINK_INSTRUCTION}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt.forced_close == (
        f"<|im_end|>\n<|im_start|>user\n{ANSWER_INSTRUCTION}<|im_end|>\n<|im_start|>assistant\n"
    )
    assert prompt.opened


def test_prompted_thinking_renders_to_one_conversation() -> None:
    prompt = prepare(PLAIN_TEMPLATE, [user("q")], Thinking.PROMPTED)
    whole = [
        user(f"q\n\n{THINK_INSTRUCTION}"),
        assistant("hm {{ m }} \ue000"),
        user(ANSWER_INSTRUCTION),
    ]
    rendered = ChatTemplate(PLAIN_TEMPLATE).render(whole)
    assert prompt.text + "hm {{ m }} \ue000" + prompt.forced_close == rendered


@pytest.mark.parametrize("source", [PREOPENED_TEMPLATE, ALWAYS_OPENED])
def test_prompted_thinking_keeps_native_thinking_off_in_both_turns(source: str) -> None:
    prompt = prepare(source, [user("q")], Thinking.PROMPTED)
    assert prompt.text.endswith("<think>\n\n</think>\n\n")
    assert prompt.forced_close.endswith("<think>\n\n</think>\n\n")


def test_prompted_thinking_forgets_earlier_thoughts() -> None:
    history = [user("q"), assistant("a", "SECRET"), user("q")]
    assert "SECRET" in prepare(THINKING_TURNS, history, Thinking.NATIVE).text
    assert "SECRET" not in prepare(THINKING_TURNS, history, Thinking.PROMPTED).text


def test_prompted_thinking_after_a_tool_has_its_own_user_turn() -> None:
    prompt = prepare(PLAIN_TEMPLATE, [Message(role="tool", content="42")], Thinking.PROMPTED)
    assert f"tool\n42<|im_end|>\n<|im_start|>user\n{THINK_INSTRUCTION}<|im_end|>" in prompt.text


def test_prompted_thinking_needs_a_template_that_repeats_answers() -> None:
    only_users = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    with pytest.raises(UnsupportedModel, match='thinking="off"'):
        prepare(only_users, [user("q")], Thinking.PROMPTED)


def test_of_user_defined_tokens_only_those_of_the_template_are_special() -> None:
    specials = SpecialTexts.of_vocabulary(
        ["<|im_end|>"], ["<think>", "<b>", "\n\n"], "{{ '<think>\n\n' }}"
    )
    text = "<b>\n\n<think><|im_end|>"
    assert [text[a:b] for a, b in specials.find(text)] == ["<think>", "<|im_end|>"]


overlapping = SpecialTexts(["aba", "ab", "bb", "abab", "c"])


@given(st.text("abc", max_size=12))
def test_halves_hold_no_special_token(text: str) -> None:
    pieces = segments(text, overlapping.halves(overlapping.find(text)))
    assert "".join(piece.text for piece in pieces) == text
    assert not [piece for piece in pieces if list(overlapping.find(piece.text))]


def test_free_characters_are_free() -> None:
    assert free_characters(2, ["a\ue000", "\ue002"]) == ["\ue001", "\ue003"]
