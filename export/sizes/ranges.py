"""Dynamic dimensions as the user declared them, and the check that a program holds for all of their range.

torch is asked to find out by itself which sizes a program accepts; what it finds is compared here with what was
declared. A dimension declared by name (`Dim("B", max=64)`) must not be narrowed: a condition that fails for a size
in its range is a RangeError. A dimension declared `Dim.DYNAMIC` has no range of its own: conditions on it become
input checks. One declared `Dim.AUTO` may even become constant.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hardtack.codegen.ir.expr import Sym
from hardtack.codegen.ir.expr_walk import evaluate, free_syms
from hardtack.codegen.ir.graph import Guard, SymBinding
from hardtack.exporter.errors import RangeError, SourceLine

_FAR = 2**40
_SAMPLES = (
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    13,
    16,
    17,
    31,
    32,
    33,
    64,
    100,
    127,
    128,
    255,
    256,
    513,
    1024,
    4096,
    65536,
)
_MANY = 4000
_LAST_TORCH_DEFAULT = 2


@dataclass(frozen=True)
class DimRange:
    """One dynamic dimension.

    kind: "named", "dynamic" or "auto". lo and hi are the declared bounds, None where the user gave none. `formula`
    tells a dimension derived from another (`2 * B`): its size as a function of the root's; name, lo and hi are then
    the root's. example: its size in the example; the program was captured with 2 in place of 0 and 1.
    """

    kind: str
    name: str = ""
    lo: int | None = None
    hi: int | None = None
    formula: Callable[[int], int] | None = None
    example: int | None = None

    @property
    def text(self) -> str:
        """`B (1 to 64)`."""
        if self.kind != "named":
            return f"Dim.{self.kind.upper()}"
        top = "any size up" if self.hi is None else f"{self.hi}"
        return f"{self.name} ({self.lo or 0} to {top})" if self.hi is not None else f"{self.name} (from {self.lo or 0})"


@dataclass
class Declared:
    """The declared dynamic dimensions: by (input name, dim), None as dim for an integer input.

    `ranges` are torch's, used for programs that were exported elsewhere, by (input name, dim) too; `least` are lowest
    sizes that the program's own conditions tell (lower_bounds.py).
    """

    dims: dict[tuple[str, int | None], DimRange] = field(default_factory=dict)
    ranges: dict[tuple[str, int | None], tuple[int, int | None]] = field(default_factory=dict)
    least: Mapping[tuple[str, int | None], int] = field(default_factory=dict)

    def same_dim(self, a: tuple[str, int | None], b: tuple[str, int | None]) -> bool:
        """True if two dimensions were declared by the same named Dim: their sizes are equal by contract."""
        x, y = self.dims.get(a), self.dims.get(b)
        if x is None or y is None or x.kind != "named" or y.kind != "named":
            return False
        return x.name == y.name and x.formula is None and y.formula is None

    def symbol(self, name: str, dim: int | None, position: int) -> tuple[str, int, int | None]:
        """(name, lo, hi) of the symbol that dimension `dim` of input `name` binds."""
        found = self.dims.get((name, dim))
        lo, hi = self.ranges.get((name, dim), (0, None))
        wish = found.name if found is not None and found.name and found.formula is None else f"s{position}"
        if found is not None and found.kind == "named" and found.formula is None:
            return wish, max(found.lo or 0, self.least.get((name, dim), 0)), found.hi
        # torch's lowest size for a dynamic dimension is 2, which no user asked for
        return wish, max(lo if lo > _LAST_TORCH_DEFAULT else 0, self.least.get((name, dim), 0)), hi


def samples(lo: int, hi: int | None) -> list[int]:
    """Sizes worth trying within [lo, hi]: small ones, round ones, and the ends."""
    hi = None if hi is not None and hi > _FAR else hi  # an end that no user declared
    found = {v for v in _SAMPLES if v >= lo and (hi is None or v <= hi)}
    found |= {lo, lo + 1} if hi is None else {lo, min(lo + 1, hi), max(hi - 1, lo), hi}
    return sorted(found)


def assignments(syms: list[Sym], ranges: Mapping[Sym, DimRange | None]) -> Iterator[dict[str, int]]:
    """Sizes for all of syms at once, as the declarations and the symbols' bounds allow them: dimensions derived from
    one root move together.
    """
    roots: dict[str, list[int]] = {}
    for s in syms:
        found = ranges.get(s)
        if found is not None and found.formula is not None:
            roots[found.name] = samples(found.lo or 0, found.hi)
        else:
            roots.setdefault(found.name if found is not None and found.name else s.name, samples(s.lo, s.hi))
    for values in itertools.islice(itertools.product(*roots.values()), _MANY):
        by_root = dict(zip(roots, values, strict=True))
        sizes = {s.name: _size(s, ranges.get(s), by_root) for s in syms}
        if all(s.lo <= sizes[s.name] and (s.hi is None or sizes[s.name] <= s.hi) for s in syms):
            yield sizes


def _size(s: Sym, found: DimRange | None, by_root: Mapping[str, int]) -> int:
    if found is None or not found.name:
        return by_root[s.name]
    root = by_root[found.name]
    return root if found.formula is None else found.formula(root)


_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__,
    "ne": int.__ne__,
    "le": int.__le__,
    "lt": int.__lt__,
}


def counterexample(guard: Guard, ranges: Mapping[Sym, DimRange | None]) -> dict[str, int] | None:
    """Sizes within their declared ranges for which the guard fails; None if none of the tried ones does."""
    syms = sorted(free_syms(guard.a) | free_syms(guard.b), key=lambda s: s.name)
    for values in assignments(syms, ranges):
        if not holds(guard, values):
            return values
    return None


def holds(guard: Guard, values: Mapping[str, int]) -> bool:
    """Whether the guard does at these sizes; false, too, where a size that it divides by is 0."""
    try:
        return _COMPARE[guard.relation](evaluate(guard.a, values), evaluate(guard.b, values))
    except ZeroDivisionError:
        return False


def check_guard(guard: Guard, bindings: tuple[SymBinding, ...], declared: Declared, where: SourceLine | None) -> None:
    """RangeError if the guard fails for a size that a named dimension declares.

    A dimension named without a lower bound may get one: only sizes from the first on for which the guard holds for good
    count as declared.
    """
    by_sym = {b.sym: declared.dims.get((b.input, b.dim)) for b in bindings if b.input is not None}
    named = [s for s in free_syms(guard.a) | free_syms(guard.b) if _is_named(by_sym.get(s))]
    if not named:
        return
    bad = counterexample(guard, by_sym)
    if bad is None:
        return
    open_below = [s for s in named if (by_sym[s] or DimRange("auto")).lo is None]
    if open_below and len(named) == 1 and _holds_later(guard, by_sym):
        return
    dims = ", ".join(sorted((by_sym[s] or DimRange("auto")).text for s in named))
    values = ", ".join(f"{k} = {v}" for k, v in bad.items())
    raise RangeError(
        f"the declared range of {dims} would be narrowed: the program needs {readable(guard)}, but {values} fails",
        where,
        "declare a range for which this holds, or change the line so that it does not depend on the size",
    )


def _is_named(found: DimRange | None) -> bool:
    return found is not None and found.kind == "named"


def _holds_later(guard: Guard, ranges: Mapping[Sym, DimRange | None]) -> bool:
    """True if the guard, which is about one symbol, fails only for small sizes: a lower bound."""
    syms = list(free_syms(guard.a) | free_syms(guard.b))
    if len(syms) != 1:
        return False
    results = [holds(guard, v) for v in assignments(syms, ranges)]
    return len(results) > 2 and results == sorted(results) and results.count(True) > len(results) // 2


def readable(guard: Guard) -> str:
    """The condition without the reason that may stand before it."""
    return guard.text.rpartition(": ")[2]


def renamed(guard: Guard, reason: str) -> Guard:
    """The guard with `reason` before its condition."""
    return replace(guard, text=f"{reason}: {guard.text}")
