"""Families as tables of text: forms with slots that are filled where a form is used.

{a} {b}   the operand, something that broadcasts with it      {same}    a value of its shape and dtype, maybe itself
{d} {e}   dimensions of a                                     {ds}      several, as a tuple
{k}       True or False                                       {i}       1, 2 or 3
{x}       a number                                            {mask}    a boolean tensor of a's shape
{last}    a's last size, {first} its first, {s} that at {d}   {main}    the program's main dtype
{there}   a's own elements, read at other places              {one}     a tensor with one index of a's first dimension
{scale}   a weight that varies along some of a's dimensions   {by}      integers to divide by, none of them 0
{bits}    counts to shift by, also the width and beyond        {at}      ":, " up to {d}, to be followed by a slice
{size}    a size of any value, as {s} is one of a's
"""

from __future__ import annotations

from collections.abc import Callable
from string import Formatter

import torch

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
        if key == "at":
            return ":, " * (int(self["d"]) % max(1, t.dim()))
        simple: dict[str, Callable[[], object]] = {
            "b": lambda: there(g, a) if g.r.random() < 0.12 else g.partner(a),
            "same": lambda: g.alike(a),
            "d": lambda: g.dim(a),
            "e": lambda: g.dim(a),
            "ds": lambda: g.dims(a),
            "k": lambda: g.r.random() < 0.5,
            "i": lambda: g.r.choice((1, 2, 3)),
            "x": lambda: g.number(t.dtype),
            "mask": lambda: g.condition(a),
            "main": lambda: g.main,
            "there": lambda: there(g, a),
            "one": lambda: one_index(g, a),
            "scale": lambda: scale(g, tuple(t.shape), t.dtype),
            "by": lambda: divisor(g, a),
            "bits": lambda: shift(g, a),
            "size": lambda: size(g),
        }
        return str(simple[key]())


def filled(g: Drawer, form: str, a: str) -> str:
    """A form with its slots filled. Unfit for an infix operator between a number and nothing."""
    return Formatter().vformat(form, (), Slots(g, a))


def there(g: Drawer, a: str) -> str:
    """The value read at other places than its own, in a shape that broadcasts with it."""
    t = g.value(a)
    if not t.dim():
        return a
    d, e = g.dim(a), g.dim(a)
    forms = [
        f"{a}.flip({d})",
        f"{a}.roll(1, {d})",
        f"{a}.narrow({d}, 0, 1)",
        f"{a}.select({d}, -1).unsqueeze({d})",
    ]
    if d % t.dim() != e % t.dim() and t.shape[d] == t.shape[e]:
        forms += [f"{a}.transpose({d}, {e})"] * 2
    return g.r.choice(forms)


def size(g: Drawer) -> str:
    """A size of some value; a dynamic one, if there is any."""
    name = g.pick(g.has_symbols, 0.3) or g.anything()
    shape = g.value(name).shape
    found = [d for d, n in enumerate(shape) if g.is_symbolic(n)] or list(range(len(shape)))
    d = g.r.choice(found)
    return f"{name}.shape[{d}]" if g.is_symbolic(shape[d]) else str(shape[d])


def one_index(g: Drawer, a: str) -> str:
    """A tensor of one index of the first dimension: a buffer, an input, or computed from one."""
    t = g.value(a)
    if not t.dim() or t.shape[0] == 0 or g.is_symbolic(t.shape[0]):
        raise Unfit
    limits = (0, t.shape[0])
    if g.r.random() < 0.4:
        return g.weight((1,), torch.int64, "index", limits, "buffer")
    given = g.input((1,), torch.int64, "index", limits)
    return given if g.r.random() < 0.6 else f"(({given} + 1) % {t.shape[0]})"


def scale(g: Drawer, shape: tuple[int, ...], dtype: torch.dtype) -> str:
    """A weight as large as `shape` along one dimension, along some of the last, or along all."""
    r, k = g.r, g.r.random()
    if k < 0.6 and shape:
        d = r.randrange(len(shape))
        shape = tuple(n if e == d else 1 for e, n in enumerate(shape))
        shape = shape[d:] if r.random() < 0.5 else shape
    elif k < 0.8:
        shape = shape[r.randint(0, len(shape)) :]
    return g.weight(shape, dtype, r.choice(("normal", "quarters", "positive")))


def _some(g: Drawer, a: str, limits: tuple[int, int]) -> str:
    """Integers within limits, a weight or an input, in a shape that broadcasts with the value."""
    r, t = g.r, g.value(a)
    shape = [n if r.random() < 0.75 else 1 for n in t.shape]
    if r.random() < 0.5:
        return g.weight(shape, t.dtype, "index", limits, "buffer")
    return g.input(shape, t.dtype, "index", limits)


def divisor(g: Drawer, a: str) -> str:
    """Read as it is, so that what a mask puts in its place shows; or computed, or a number."""
    r, signed = g.r, g.value(a).dtype is not torch.uint8
    k = r.random()
    if k < 0.6:
        return _some(g, a, r.choice(((1, 9), (1, 3), (-9, 0))) if signed else (1, 9))
    if k < 0.85:
        return f"(({g.partner(a)}) | 1)"
    return str(r.choice((1, 2, 3, 7, -4) if signed else (1, 2, 3, 7)))


def shift(g: Drawer, a: str) -> str:
    """Counts inside the width, around it, beyond it and, rarely, below 0."""
    r, width = g.r, 8 * g.value(a).element_size()
    k = r.random()
    if k < 0.35:
        return str(r.choice((0, 1, 3, width - 1, width, width + 1, 2 * width, 9, 31, 40, 64)))
    if k < 0.8:
        limits = r.choice(((0, 4), (0, width), (width - 1, width + 2), (0, 2 * width), (-2, width)))
        return _some(g, a, (max(0, limits[0]), limits[1]) if g.value(a).dtype is torch.uint8 else limits)
    return r.choice((f"(({g.partner(a)}) & 3)", f"{g.alike(a)}.abs()", f"({g.alike(a)}.abs() * 2)"))


def rows(text: str) -> list[str]:
    """The lines of a text; one that ends in `  *n` is there n times."""
    found: list[str] = []
    for row in text.splitlines():
        form, _, times = row.strip().partition("  *")
        found += [form] * int(times or 1) if form else []
    return found


def table(name: str, weight: float, operand: Callable[[Drawer], str], forms: str) -> Family:
    """A family whose lines are the rows of a text."""
    drawn = rows(forms)

    def draw(g: Drawer) -> Drawn:
        a = operand(g)
        return filled(g, g.r.choice(drawn), a)

    return Family(name, weight, draw)
