"""Families as tables of text: forms with slots that are filled where a form is used.

{a} {b}   the operand, something that broadcasts with it      {same}    a value of its shape and dtype, maybe itself
{d} {e}   dimensions of a                                     {ds}      several, as a tuple
{k}       True or False                                       {i}       1, 2 or 3
{x}       a number                                            {mask}    a boolean tensor of a's shape
{last}    a's last size, {first} its first, {s} that at {d}   {main}    the program's main dtype
"""

from __future__ import annotations

import re
from collections.abc import Callable
from string import Formatter

from tests.fuzz.draw import Drawer, Drawn, Family, Unfit

_SIZES = {"last": "-1", "first": "0", "s": ""}


class Slots(dict[str, str]):
    """What a form's slots stand for; each is chosen when it is first asked for."""

    def __init__(self, g: Drawer, a: str) -> None:
        super().__init__(a=a)
        self._g, self._a = g, a

    def __missing__(self, key: str) -> str:
        self[key] = found = self._choose(key)
        return found

    def _choose(self, key: str) -> str:
        g, a = self._g, self._a
        t = g.value(a)
        if key in _SIZES:
            if not t.dim():
                raise Unfit
            at = self["d"] if key == "s" else _SIZES[key]
            n = t.shape[int(at)]
            return f"{a}.shape[{at}]" if g.is_symbolic(n) else str(n)
        simple: dict[str, Callable[[], object]] = {
            "b": lambda: g.partner(a),
            "same": lambda: g.alike(a),
            "d": lambda: g.dim(a),
            "e": lambda: g.dim(a),
            "ds": lambda: g.dims(a),
            "k": lambda: g.r.random() < 0.5,
            "i": lambda: g.r.choice((1, 2, 3)),
            "x": lambda: g.number(t.dtype),
            "mask": lambda: g.condition(a),
            "main": lambda: g.main,
        }
        return str(simple[key]())


def filled(g: Drawer, form: str, a: str) -> str:
    """A form with its slots filled. Unfit for an infix operator between a number and nothing."""
    return Formatter().vformat(form, (), Slots(g, a))


def table(name: str, weight: float, operand: Callable[[Drawer], str], forms: str) -> Family:
    """A family whose lines are the lines of a text; one that ends in `  *n` is n times as likely."""
    rows: list[str] = []
    for row in forms.strip().splitlines():
        found = re.fullmatch(r"\s*(.*?)(?:\s+\*(\d+))?\s*", row)
        assert found is not None
        if found[1]:
            rows += [found[1]] * int(found[2] or 1)

    def draw(g: Drawer) -> Drawn:
        a = operand(g)
        return filled(g, g.r.choice(rows), a)

    return Family(name, weight, draw)
