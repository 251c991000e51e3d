"""Roles: what the operands and the results of a template are: their dtypes, their sizes, how they lie in memory.

    sizes     ::= dimension ...                      outermost first: "*batch M K"
    dimension ::= "*" NAME                           any number of dimensions, once in a role
                | factor "*" factor ...              the product
    factor    ::= NAME | NUMBER | NAME "/" NUMBER    the last one rounded up

A name has one extent in all roles of a nest: the one that the template's parameters give it, or else that of the first
dimension that has no other factor. All others have to agree with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache

from hardtack.codegen.ir.expr import ONE, ZERO, Expr, bounds, const, int_value, product
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.types import DType

Extent = Expr | tuple[Expr, ...]
"""Of a name; of one with a star, one a dimension."""


class Memory(Enum):
    """How a role's elements have to lie."""

    STRIDED = "anyhow"
    ROWS = "those of the last dimension side by side"
    WHOLE = "row-major, without gaps"


def same(first: DType) -> tuple[DType, ...]:
    """The dtype of the first operand."""
    return (first,)


def summed(first: DType) -> tuple[DType, ...]:
    """That of the first operand, or that in which half types are summed; of floats of 8 bits f32, of int8 int32."""
    if first is DType.I8:
        return (DType.I32,)
    if first.is_float8:
        return (DType.F32,)
    return (first, DType.F32) if first.is_half else (first,)


def only(*dtypes: DType) -> Callable[[DType], tuple[DType, ...]]:
    """These, whatever the first operand is."""
    return lambda first: dtypes


@dataclass(frozen=True)
class Role:
    """An operand or a result. sizes: as the module's grammar has them. dtypes: those that it may have, by that of the
    first operand. optional: it may be left out. broadcast: dimensions of size 1, and those left out in front, stand
    for any size."""

    name: str
    sizes: str
    dtypes: Callable[[DType], tuple[DType, ...]] = same
    memory: Memory = Memory.STRIDED
    optional: bool = False
    broadcast: bool = False

    def __str__(self) -> str:
        return f"{self.name}?" if self.optional else self.name


def need(condition: bool, sentence: str) -> None:
    """Raise LoopError(sentence) unless the condition holds."""
    if not condition:
        raise LoopError(sentence)


def differ(a: Expr, b: Expr) -> bool:
    """True if two extents are known to differ. Dynamic ones may be equal because a guard of the graph says so, which
    no nest knows: those get the benefit of the doubt."""
    return a is not b and (exceeds(a, b) or exceeds(b, a))


def exceeds(a: Expr, b: Expr) -> bool:
    """True if a > b is known."""
    lo = bounds(a - b)[0]
    return lo is not None and lo > 0


@dataclass(frozen=True)
class _Dimension:
    """text: as it is written. name: where it is nothing else. factors: each with its divisor."""

    text: str
    name: str | None
    factors: tuple[tuple[str, int], ...]

    @property
    def many(self) -> bool:
        return self.text.startswith("*")


@cache
def _dimensions(sizes: str) -> tuple[_Dimension, ...]:
    found: list[_Dimension] = []
    for text in sizes.split():
        if text.startswith("*"):
            found.append(_Dimension(text, text, ()))
            continue
        factors = [f.partition("/") for f in text.split("*")]
        alone = text if text.isidentifier() else None
        found.append(_Dimension(text, alone, tuple((name, int(by or 1)) for name, _, by in factors)))
    return tuple(found)


@dataclass
class Sizes:
    """The extents of a nest by the names that roles give them. known: so far; open: products that are compared when all
    names are known, with whose they are."""

    known: dict[str, Extent]
    open: list[tuple[str, _Dimension, Expr]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Expr:
        found = self.known[name]
        assert isinstance(found, Expr), f"{name} names {len(found)} dimensions"
        return found

    def many(self, name: str) -> tuple[Expr, ...]:
        """The extents that "*name" stands for."""
        found = self.known[f"*{name}"]
        assert isinstance(found, tuple), f"{name} names one dimension"
        return found

    def take(self, role: Role, shape: Sequence[Expr], whose: str) -> None:
        """Name the extents of a shape. LoopError where one is known to be another than the name's."""
        dims = _dimensions(role.sizes)
        if role.broadcast:
            need(len(shape) <= len(dims), f"{whose} has {len(shape)} dimensions, expected [{role.sizes}]")
            pairs = [(d, n) for d, n in zip(dims[len(dims) - len(shape) :], shape, strict=True) if n is not ONE]
        else:
            pairs = self._after_stars(role, dims, shape, whose)
        for d, n in pairs:
            if d.name is None:
                self.open.append((whose, d, n))
            elif d.name not in self.known:
                self.known[d.name] = n
            else:
                self._compare(whose, d, n)

    def agree(self) -> None:
        """Raise LoopError where a product is known to be another than its factors give."""
        for whose, d, n in self.open:
            self._compare(whose, d, n)

    def _after_stars(
        self, role: Role, dims: Sequence[_Dimension], shape: Sequence[Expr], whose: str
    ) -> list[tuple[_Dimension, Expr]]:
        """Single dimensions and their extents; what stands for many is named."""
        star = next((k for k, d in enumerate(dims) if d.many), None)
        fits = len(shape) == len(dims) if star is None else len(shape) >= len(dims) - 1
        need(fits, f"{whose} has {len(shape)} dimensions, expected [{role.sizes}]")
        if star is None:
            return list(zip(dims, shape, strict=True))
        end = len(shape) - (len(dims) - star - 1)
        name, part = dims[star].text, tuple(shape[star:end])
        known = self.known.setdefault(name, part)
        assert isinstance(known, tuple)
        if len(known) != len(part) or any(map(differ, known, part)):
            raise LoopError(f"{whose} has {name} = {_listed(part)}, expected {_listed(known)}")
        singles = (*dims[:star], *dims[star + 1 :])
        return list(zip(singles, (*shape[:star], *shape[end:]), strict=True))

    def _compare(self, whose: str, d: _Dimension, n: Expr) -> None:
        wanted = self._value(d)
        if differ(wanted, n):
            raise LoopError(f"{whose} has {d.text} = {n}, expected {wanted}")

    def _value(self, d: _Dimension) -> Expr:
        if d.name is not None:
            return self[d.name]
        return product(
            const(int(name)) if name.isdigit() else self[name] if by == 1 else (self[name] + (by - 1)) // by
            for name, by in d.factors
        )


def _listed(extents: Sequence[Expr]) -> str:
    return f"[{', '.join(map(str, extents))}]"


def verify_memory(role: Role, shape: Sequence[Expr], strides: Sequence[Expr], whose: str) -> None:
    """Raise LoopError unless elements lie as the role has them."""
    if role.memory is Memory.ROWS:
        need(not shape or shape[-1] is ONE or strides[-1] is ONE, f"{whose} has rows with gaps")
    elif role.memory is Memory.WHOLE:
        step: Expr = ONE
        for n, stride in zip(reversed(shape), reversed(strides), strict=True):
            need(n is ONE or stride is step, f"{whose} is not row-major")
            step = step * n


def verify_inside(
    shape: tuple[Expr, ...], strides: tuple[Expr, ...], offset: Expr, size: tuple[Expr, ...], whose: str
) -> None:
    """Raise LoopError where an element is known to lie outside of a buffer of `size`."""
    outside = _outside(shape, strides, offset, size)
    need(outside is None, f"{whose} {outside}")


@cache
def _outside(shape: tuple[Expr, ...], strides: tuple[Expr, ...], offset: Expr, size: tuple[Expr, ...]) -> str | None:
    """What is wrong with a view; the layers of a model have the same ones."""
    if any(n is ZERO for n in shape):
        return None
    first = last = offset
    for n, stride in zip(shape, strides, strict=True):
        if n is ONE or stride is ZERO:
            continue
        if (int_value(stride) or 0) < 0:
            first = first + (n - 1) * stride
        else:
            last = last + (n - 1) * stride
    if exceeds(ZERO, first):
        return f"starts at {first}"
    numel = product(size)
    return f"ends at {last}, its buffer has {numel} elements" if exceeds(last, numel - 1) else None
