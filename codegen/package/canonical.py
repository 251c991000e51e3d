"""Canonical JSON, and a strict reader of it.

Bundles hold JSON in one form: UTF-8, ASCII-escaped, keys sorted, no whitespace, integers of 64 bits, no floating-point
numbers. The reader refuses any other spelling, so equal content has equal bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NoReturn, TypeVar

from hardtack.codegen.package.errors import LoadError

MAX_DEPTH = 32
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
T = TypeVar("T")


def dumps(document: object) -> bytes:
    """`document` as canonical JSON."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def loads(data: bytes, where: str, max_depth: int = MAX_DEPTH, any_spelling: bool = False) -> object:
    """The document that `data` holds. Raises LoadError, placed at `where`, for anything but canonical JSON.

    With `any_spelling`, whitespace, order of keys and UTF-8 are free; the rest is as strict.
    """
    if _depth(data) > max_depth:
        raise LoadError(f"JSON is nested more than {max_depth} deep", where)
    try:
        document: object = json.loads(
            data.decode("utf-8" if any_spelling else "ascii"),
            object_pairs_hook=_unique,
            parse_int=_int64,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
        same = any_spelling or dumps(document) == data
    except UnicodeDecodeError as error:
        coding = "UTF-8" if any_spelling else "ASCII; JSON in a bundle escapes other characters"
        raise LoadError(f"byte {error.start} is not {coding}", where) from None
    except json.JSONDecodeError as error:
        raise LoadError(f"not JSON: {error.msg} at byte {error.pos}", where) from None
    except _Refused as error:
        raise LoadError(str(error), where) from None
    if not same:
        raise LoadError("JSON is not in canonical form (keys sorted, no whitespace, ASCII-escaped)", where)
    return document


class _Refused(ValueError):
    """What the hooks of the JSON parser raise."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"key {key!r} stands twice in one object")
            seen.add(key)
    return out


def _int64(text: str) -> int:
    # 20 characters hold any 64-bit number; longer ones are not worth converting
    value = int(text) if len(text) <= 20 else 2**64
    if not INT64_MIN <= value <= INT64_MAX:
        shown = text if len(text) <= 24 else text[:24] + "..."
        raise _Refused(f"number {shown} does not fit in 64 bits")
    return value


def _refuse_number(text: str) -> NoReturn:
    raise _Refused(f"number {text[:24]} is not an integer")


_FORBIDDEN = re.compile("[\0\ud800-\udfff]")
# Possessive, and a string that does not end goes to the end: each byte is looked at once.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


def _depth(data: bytes) -> int:
    """How deep brackets nest, strings left out; found without recursion."""
    deepest = depth = 0
    for token in _TOKENS.finditer(data):
        first = data[token.start()]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first != 0x22:
            depth -= 1
    return deepest


class Fields:
    """An object of a document, read key by key; `done` refuses keys that nobody asked for.

    Every method raises LoadError with the path of the field, as in `manifest.json: entries[0].name`.
    """

    def __init__(self, value: object, where: str, path: str = "") -> None:
        self.where = where
        self.path = path
        if not isinstance(value, dict):
            self.refuse(f"is {kind_of(value)}, not an object")
        self._values: dict[str, object] = value
        self._read: set[str] = set()

    def refuse(self, problem: str, key: str = "") -> NoReturn:
        """Raises LoadError for this object, or for its field `key`."""
        path = self._at(key) if key else self.path
        raise LoadError(f"{path} {problem}" if path else problem, self.where)

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def raw(self, key: str) -> object:
        """The value of `key`, whatever it is."""
        if key not in self._values:
            self.refuse(f"lacks the key {key!r}" if self.path else f"the key {key!r} is missing")
        self._read.add(key)
        return self._values[key]

    def has(self, key: str) -> bool:
        """Whether the object has the key at all."""
        return key in self._values

    def boolean(self, key: str) -> bool:
        """true or false."""
        value = self.raw(key)
        if not isinstance(value, bool):
            self.refuse(f"is {kind_of(value)}, not a bool", key)
        return value

    def text(self, key: str) -> str:
        """A string without lone surrogates."""
        return check_text(self.raw(key), self.where, self._at(key))

    def optional_text(self, key: str) -> str | None:
        return None if self.raw(key) is None else self.text(key)

    def integer(self, key: str, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
        """An integer in [low, high]."""
        return check_int(self.raw(key), self.where, self._at(key), low, high)

    def optional_integer(self, key: str, low: int = INT64_MIN, high: int = INT64_MAX) -> int | None:
        return None if self.raw(key) is None else self.integer(key, low, high)

    def choice(self, key: str, allowed: Sequence[str]) -> str:
        """One of the strings `allowed`."""
        value = self.text(key)
        if value not in allowed:
            self.refuse(f"is {value!r}; it must be one of {', '.join(allowed)}", key)
        return value

    def items(self, key: str) -> list[object]:
        """A list."""
        value = self.raw(key)
        if not isinstance(value, list):
            self.refuse(f"is {kind_of(value)}, not a list", key)
        return value

    def each(self, key: str) -> Iterator[Fields]:
        """The objects of a list of objects."""
        for index, item in enumerate(self.items(key)):
            yield Fields(item, self.where, f"{self._at(key)}[{index}]")

    def all(self, key: str, read: Callable[[object, str, str], T]) -> tuple[T, ...]:
        """`read(item, where, path)` of every item of a list."""
        return tuple(read(item, self.where, f"{self._at(key)}[{i}]") for i, item in enumerate(self.items(key)))

    def text_map(self, key: str) -> Mapping[str, str]:
        """An object whose values are strings."""
        inner = Fields(self.raw(key), self.where, self._at(key))
        return {check_text(name, self.where, self._at(key)): inner.text(name) for name in inner._values}

    def done(self) -> None:
        """Refuses keys that were not read."""
        unknown = sorted(set(self._values) - self._read)
        if unknown:
            self.refuse(f"has an unknown key {unknown[0]!r}" if self.path else f"unknown key {unknown[0]!r}")


def kind_of(value: object) -> str:
    """What a JSON value is, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a bool"
    return {str: "a string", int: "a number", list: "a list", dict: "an object"}.get(type(value), "something else")


def check_text(value: object, where: str, path: str) -> str:
    """`value` if it is a string that UTF-8 can hold."""
    if not isinstance(value, str):
        raise LoadError(f"{path} is {kind_of(value)}, not a string", where)
    if _FORBIDDEN.search(value):
        raise LoadError(f"{path} holds U+0000 or half of a surrogate pair", where)
    return value


def check_int(value: object, where: str, path: str, low: int = INT64_MIN, high: int = INT64_MAX) -> int:
    """`value` if it is an integer in [low, high]."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise LoadError(f"{path} is {kind_of(value)}, not a number", where)
    if not low <= value <= high:
        limit = f"must be at least {low}" if value < low else f"must be at most {high}"
        raise LoadError(f"{path} is {value}; it {limit}", where)
    return value
