"""Values of floats with Python's operators, for long formulas: each operator is a row of the scalar op table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND

from hardtack.codegen.ir.types import DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.pointwise import Arg, promoted
from hardtack.exporter.convert.table import Value

_LEAST: dict[DType, float] = {DType.F32: 1e-11, DType.F64: 0.0}
"""Coefficients below this share of the largest are no matter to a type: of f32, with more of them i0(0) is not 1."""


@dataclass(frozen=True)
class Condition:
    """A value of bool."""

    b: Builder
    value: Value

    def __and__(self, other: Condition) -> Condition:
        return Condition(self.b, self.b.pw("and", self.value, other.value))

    def __or__(self, other: Condition) -> Condition:
        return Condition(self.b, self.b.pw("or", self.value, other.value))

    def where(self, x: Real | float, y: Real | float) -> Real:
        """x where it holds, else y: one of them is a Real."""
        dtype = next(t.value.dtype for t in (x, y) if isinstance(t, Real))
        return Real(self.b, self.b.where(self.value, _term(x), _term(y), dtype))


@dataclass(frozen=True, eq=False)
class Real:
    """A value of f32 or f64."""

    b: Builder
    value: Value

    def apply(self, kind: str, *others: Real | float) -> Real:
        """The scalar op `kind` of it and others."""
        return Real(self.b, self.b.pw(kind, self.value, *map(_term, others)))

    def _of(self, kind: str, first: float) -> Real:
        return Real(self.b, self.b.pw(kind, first, self.value, dtype=self.value.dtype))

    def _is(self, kind: str, other: Real | float) -> Condition:
        return Condition(self.b, self.b.pw(kind, self.value, _term(other)))

    def __add__(self, other: Real | float) -> Real:
        return self.apply("add", other)

    __radd__ = __add__

    def __sub__(self, other: Real | float) -> Real:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Real:
        return self._of("sub", other)

    def __mul__(self, other: Real | float) -> Real:
        return self.apply("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Real | float) -> Real:
        return self.apply("div", other)

    def __rtruediv__(self, other: float) -> Real:
        return self._of("div", other)

    def __neg__(self) -> Real:
        return self.apply("neg")

    def __abs__(self) -> Real:
        return self.apply("abs")

    def __lt__(self, other: Real | float) -> Condition:
        return self._is("lt", other)

    def __le__(self, other: Real | float) -> Condition:
        return self._is("le", other)

    def __gt__(self, other: Real | float) -> Condition:
        return self._is("gt", other)

    def __ge__(self, other: Real | float) -> Condition:
        return self._is("ge", other)

    def equals(self, other: Real | float) -> Condition:
        return self._is("eq", other)

    def differs(self, other: Real | float) -> Condition:
        return self._is("ne", other)

    def constant(self, number: float) -> Real:
        """A number of its type and shape."""
        return Real(self.b, self.b.full(self.value.shape, number, self.value.dtype))

    def polynomial(self, coefficients: Sequence[float]) -> Real:
        """Of rising powers, by Horner's rule."""
        total = self * coefficients[-1] + coefficients[-2]
        for c in coefficients[-3::-1]:
            total = total * self + c
        return total

    def series(self, coefficients: Sequence[float]) -> Real:
        """The sum of coefficients times Chebyshev polynomials of it, between -1 and 1, by Clenshaw's recurrence."""
        least = _LEAST[self.value.dtype] * max(map(abs, coefficients))
        last = max(i for i, c in enumerate(coefficients) if abs(c) > least)
        twice = self * 2.0
        one = two = self.constant(0.0)
        for c in coefficients[last:0:-1]:
            one, two = twice * one - two + c, one
        return self * one - two + coefficients[0]


def _term(x: Real | float) -> Value | float:
    return x.value if isinstance(x, Real) else x


def in_float(b: Builder, function: Callable[..., Real], *args: Arg, within: DType | None = None) -> Value:
    """function(args) in f32 or f64, as the type that torch gives: half types are computed in f32 and rounded once.
    within: what it is computed in instead, where terms cancel out."""
    _, result = promoted(*args, kind=KIND.INT_TO_FLOAT)
    values = (b.wide(b.tensor(b.cast(x, result))) for x in args)
    found = function(*(Real(b, b.to(v, within or v.dtype)) for v in values))
    return b.to(found.value, result)
