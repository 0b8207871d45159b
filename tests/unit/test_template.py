"""Chat templates render as transformers renders them, and hostile ones can't do harm."""

import time

import pytest

from ssr_local.chat.template import CHATML, ChatTemplate
from ssr_local.errors import InvalidRequest, UnsupportedModel
from ssr_local.request import Message

USER = Message(role="user", content="hi")


def render(source: str, messages: list[Message] | None = None, **variables: object) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(
        messages or [USER], **variables
    )


def test_the_fallback_is_chatml() -> None:
    turns = [Message(role="system", content="be brief"), USER]
    assert ChatTemplate(CHATML).render(turns) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert (
        not ChatTemplate(CHATML).render(turns, add_generation_prompt=False).endswith("assistant\n")
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ eos_token }}", "<s></s>"),
        ("{{ messages[0].role }} {{ messages[0]['content'] }}", "user hi"),
        ("{% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ {'a': '<é & \"x\">'} | tojson }}", '{"a": "<é & \\"x\\">"}'),
        ("{{ [1, 2] | tojson(indent=1) }}", "[\n 1,\n 2\n]"),
        ("a{% generation %}b{% endgeneration %}c", "abc"),
        ("{{ tools is none }}{{ x is defined }}", "TrueFalse"),
        ("{{ 'a' ~ 1 ~ none }}", "a1None"),
        ("{{ ['a', 'b'] | join(', ') }}{{ '-'.join(['a', 'b']) }}", "a, ba-b"),
        ("{{ messages | join('/', attribute='role') }}", "user"),
        ("{{ 'aXbX' | replace('X', '') }}{{ 'aXb'.replace('X', '_') }}", "aba_b"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ '{}-{:>3}'.format(1, 2) }}{{ '%s' % 3 }}", "1-  23"),
        ("{{ '-' * 3 }}{{ 2 ** 10 }}{{ [1] + [2] }}", "---1024[1, 2]"),
        ("{{ ' x '.strip() }}{{ 'a</b>c'.split('</b>')[-1] }}", "xc"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_dialect(source: str, text: str) -> None:
    assert render(source) == text


def test_variables_reach_the_template() -> None:
    assert render("{{ enable_thinking }} {{ tools[0] }}", enable_thinking=False, tools=["t"]) == (
        "False t"
    )


def test_earlier_reasoning_is_there_under_the_names_that_templates_use() -> None:
    source = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }};{% endfor %}"
    past = Message(role="assistant", content="a", reasoning="why")
    assert render(source, [USER, past]) == "|;why|why;"


def test_a_template_that_refuses_is_quoted() -> None:
    with pytest.raises(InvalidRequest, match="no system turn, please"):
        render("{{ raise_exception('no system turn, please') }}")


@pytest.mark.parametrize("source", ["{% if %}", "{{", "{% unknown %}", "{{ 'a' | nofilter }}"])
def test_a_template_that_does_not_compile_is_an_unsupported_model(source: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"does not compile.*line 1"):
        ChatTemplate(source)


def test_a_template_that_fails_says_how() -> None:
    with pytest.raises(UnsupportedModel, match="'nothing' is undefined"):
        render("{{ nothing.at_all }}")


@pytest.mark.parametrize(
    "source",
    [
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception.__globals__['os'] }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ open('/etc/passwd').read() }}",
        "{{ lipsum() }}",
    ],
)
def test_no_way_out_of_the_sandbox(source: str) -> None:
    with pytest.raises(UnsupportedModel):
        render(source)


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
MACRO = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}"
GROW = "{% set n = namespace(x='aa') %}{% for i in range(99) %}{% set n.x = OP %}{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        LOOP,
        MACRO,
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% for i in range(99999999999) %}{% endfor %}",
        "{% for i in range(99999) %}{{ range(99999) | map('string') | list | length }}{% endfor %}",
        GROW.replace("OP", "n.x ~ n.x"),
        GROW.replace("OP", "n.x + n.x"),
        GROW.replace("OP", "n.x | replace('a', n.x)"),
        GROW.replace("OP", "n.x.replace('a', n.x)"),
        GROW.replace("OP", "[n.x, n.x] | join"),
        GROW.replace("OP", "n.x.join(n.x)"),
        GROW.replace("OP", "n.x * 99"),
        GROW.replace("{% set n.x = OP %}", "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}"),
        "{{ 'a' * 99999999999 }}",
        "{{ 99999999999 * [1] }}",
        "{{ 9 ** 99999999999 }}",
        "{{ 'a'.ljust(99999999999) }}",
        "{{ 'a' | center(99999999999) }}",
        "{{ 'a\nb' | indent(99999999999) }}",
        "{{ [1] | tojson(indent=99999999999) }}",
        "{{ '%99999999999d' % 1 }}",
        "{{ '{:99999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 99999999999) }}",
        "{{ '\t'.expandtabs(99999999999) }}",
    ],
)
def test_hostile_templates_end_soon_with_an_error(source: str) -> None:
    begin = time.monotonic()
    with pytest.raises(UnsupportedModel):
        ChatTemplate(source).render([USER], seconds=0.3)
    assert time.monotonic() - begin < 3


def test_a_slow_template_is_told_from_a_broken_one() -> None:
    with pytest.raises(UnsupportedModel, match=r"within 0\.1 seconds"):
        ChatTemplate(LOOP).render([USER], seconds=0.1)


def test_a_long_conversation_is_no_hostile_template() -> None:
    turns = [Message(role="user", content="long " * 2000)] * 400
    assert len(ChatTemplate(CHATML).render(turns)) > 4_000_000
