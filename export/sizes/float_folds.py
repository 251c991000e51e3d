"""Arithmetic with floats of which torch's expression keeps the factors, but not the roundings between them.

0.1 * (0.7 * n) is rounded twice, and 7.0 for n = 100; sympy makes it 0.07 * n, which is rounded once and less than 7.
"""

from __future__ import annotations

import math
from collections.abc import Set
from dataclasses import dataclass, field
from fractions import Fraction

import sympy
from torch.utils._sympy import functions as sf

MAX_DENOMINATOR = 4096
"""Floats that are fractions up to this one are exact, and so are products and sums of them with sizes."""


@dataclass
class Folds:
    """Expressions that are not rounded where the program's numbers are."""

    found: set[sympy.Basic] = field(default_factory=set)

    def computed(self, method: str, operands: tuple[sympy.Basic, ...], result: sympy.Basic) -> None:
        """Note a result that comes of one already noted, or of floats that are rounded at each step."""
        if not result.free_symbols or result in operands:
            return
        often = any(map(_inexact, operands)) and not (method == "_mul" and _rounded_once(*operands))
        if often or any(within(o, self.found) for o in operands):
            self.found.add(result)


def within(e: sympy.Basic, found: Set[sympy.Basic]) -> bool:
    """True if e or a part of it is among `found`."""
    return bool(found) and any(part in found for part in sympy.preorder_traversal(e))


def _inexact(e: sympy.Basic) -> bool:
    """True if a float in e is no short fraction."""
    return any(not is_short(f) for f in e.atoms(sympy.Float))


def is_short(f: sympy.Float) -> bool:
    """True for a float whose products with sizes are exact."""
    value = float(f)
    return math.isfinite(value) and Fraction(value).denominator <= MAX_DENOMINATOR


def _rounded_once(a: sympy.Basic, b: sympy.Basic) -> bool:
    """True for a product of a float and a size, or of anything and a power of two."""
    if not a.is_Float:
        a, b = b, a
    return bool(a.is_Float) and (isinstance(b, sf.ToFloat) or b.is_integer or math.frexp(abs(float(a)))[0] == 0.5)
