"""A Jinja environment in which a hostile chat template can do no harm.

A chat template is code from a downloaded file. What is promised:
- No access to files, modules or Python internals (Jinja's immutable sandbox; there is no loader).
- Bounded time: every executed Python line checks a deadline, so loops, recursive macros and slow
  filters end with `TemplateTimeout`. A single call into C can't be interrupted, so:
- Bounded size: texts and lists over `LIMIT` are refused, and so are the operations that could make
  one out of small parts in a single call (repetition, powers, padding, `replace`, `join`).

The dialect is that of transformers' `apply_chat_template`: trimmed blocks, loop controls,
`raise_exception`, `strftime_now`, a `tojson` that leaves HTML alone, `{% generation %}`.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from types import BuiltinMethodType, FrameType
from typing import Any, TypeVar

from jinja2 import TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.filters import FILTERS
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

LIMIT = 16 * 2**20
"""Most characters of a text, and most elements of a list, that a template may make."""

_WIDEST = 10_000
"""Widest padding."""

_DROPPED_FILTERS = ("center", "format", "pprint", "random", "urlize", "wordwrap", "xmlattr")

_Result = TypeVar("_Result")


class TemplateRefusal(TemplateError):
    """The template itself refused the conversation, by `raise_exception`."""


class TemplateTimeout(BaseException):
    """The template ran over its deadline. Not an `Exception`: Jinja handles these itself."""


def within(seconds: float, work: Callable[[], _Result]) -> _Result:
    """Run `work`, checking the time at every Python line of it.

    Raises:
        TemplateTimeout: it took longer than `seconds`.
    """
    deadline = time.monotonic() + seconds

    def check(frame: FrameType, event: str, argument: Any) -> Any:
        if time.monotonic() > deadline:
            raise TemplateTimeout
        return check

    previous = sys.gettrace()
    sys.settrace(check)
    try:
        return work()
    finally:
        sys.settrace(previous)


def _refuse(reason: str) -> None:
    raise SecurityError(f"the template makes {reason}")


def _bounded(value: Any) -> Any:
    if isinstance(value, str | list | tuple) and len(value) > LIMIT:
        _refuse("a text or list that is too large")
    return value


def _check_width(*arguments: Any) -> None:
    if any(isinstance(width, int) and abs(width) > _WIDEST for width in arguments):
        _refuse("padding that is too wide")


def _check_format(pattern: str) -> None:
    if re.search(r"\d{5}|%[^a-zA-Z%]*\*", pattern):
        _refuse("a number format that is too wide")


def _check_replace(text: str, old: str, new: str) -> None:
    if text.count(old) * len(new) > LIMIT:
        _refuse("a replacement that is too large")


def _check_join(parts: Iterable[Any], separator: str) -> list[str]:
    texts = [str(part) for part in parts]
    if sum(map(len, texts)) + len(texts) * len(separator) > LIMIT:
        _refuse("a text that is too large")
    return texts


def _check_power(base: Any, exponent: Any) -> None:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > 4096:
        _refuse("a number that is too large")


def _check_product(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_power(2, left.bit_length() + right.bit_length())
    for sequence, count in ((left, right), (right, left)):
        sized = isinstance(sequence, str | list | tuple)
        if sized and isinstance(count, int) and len(sequence) * count > LIMIT:
            _refuse("a repetition that is too long")


def _check_method(method: BuiltinMethodType, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Refuse the string methods that make a large text out of small ones."""
    text, name = method.__self__, method.__name__
    if not isinstance(text, str):
        return arguments
    if name == "join":
        return (_check_join(arguments[0], text),)
    if name == "replace":
        _check_replace(text, str(arguments[0]), str(arguments[1]))
    elif name in ("ljust", "rjust", "center", "zfill"):
        _check_width(*arguments)
    elif name in ("expandtabs", "translate"):
        _refuse(f"a text by {name}()")
    return arguments


def _join(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
    parts = list(value)
    if attribute is not None:
        parts = [part[attribute] for part in parts]
    return d.join(_check_join(parts, d))


def _replace(s: Any, old: str, new: str, count: int | None = None) -> str:
    _check_replace(str(s), old, new)
    return str(s).replace(old, new, -1 if count is None else count)


def _indent(s: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> Any:
    step = len(width) if isinstance(width, str) else width
    if str(s).count("\n") * step > LIMIT:
        _refuse("an indentation that is too wide")
    return FILTERS["indent"](s, width, first, blank)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent and indent > 16:
        _refuse("an indentation that is too wide")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise TemplateRefusal(str(message))


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks training targets; it renders as its body."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own protocol)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _BoundedCode(CodeGenerator):
    """Compiles `a ~ b` into a call that bounds the result."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concat((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment that chat templates are compiled in and run in."""

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # constants are not folded while compiling, but bounded when run
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
        )
        for name in _DROPPED_FILTERS:
            del self.filters[name]
        self.filters.update(join=_join, replace=_replace, indent=_indent, tojson=_tojson)
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)
        self.globals.pop("lipsum")

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        return "".join(_check_join(parts, ""))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            _check_product(left, right)
        elif operator == "**":
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
        return _bounded(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _check_format(str(value.__self__))
        return wrapped

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obj, BuiltinMethodType):
            args = _check_method(obj, args)
        elif getattr(obj, "__name__", "") == "wrapper":  # what `str.format` is wrapped into
            _check_width(*args, *kwargs.values())
        return _bounded(super().call(context, obj, *args, **kwargs))
