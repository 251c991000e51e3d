"""The vector that is first added to a product, a bias: a kernel adds the products to it and not it to their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hardtack.codegen.backends.triton.spelling import HALF
from hardtack.codegen.ir.expr import Sym
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.loops import Compute, Load, Stmt, args_of
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import DType


@dataclass(frozen=True)
class Addend:
    """nest: its number in the kernel. sums: the load of the anchor's result. vector: what is added, an element for each
    column: its load, and its conversion. total: their sum."""

    nest: int
    sums: Load
    vector: tuple[Stmt, ...]
    total: Compute

    def without(self, body: Iterable[Stmt]) -> list[Stmt]:
        """The nest's body where the accumulators hold the total already."""
        loaded = Load(self.total.out, self.sums.buffer, self.sums.index)
        return [loaded if s is self.sums else s for s in body if s not in self.vector and s is not self.total]


def first_addend(kernel: Kernel) -> Addend | None:
    """The addend of a template's result that nothing but its addition reads."""
    anchor = kernel.anchor
    assert anchor is not None
    if kernel.storage[anchor.result].kind != "register":
        return None
    readers = [(k, s) for k, n in enumerate(kernel.nests) for s in n.nest.loads() if s.buffer == anchor.result]
    if len(readers) != 1 or readers[0][1].mask is not None:
        return None
    ((at, sums),) = readers
    body = kernel.nests[at].nest.body
    uses = Counter(a for s in body for a in args_of(s) if isinstance(a, str))
    made = {s.out: s for s in body if isinstance(s, (Load, Compute)) and uses[s.out] == 1}
    total = next((s for s in body if isinstance(s, Compute) and sums.out in s.args), None)
    if total is None or total.op != "add" or sums.out not in made or not _rounded_to_half(total, made, body):
        return None
    other = total.args[1] if total.args[0] == sums.out else total.args[0]
    converted = made.get(other) if isinstance(other, str) else None
    vector = converted
    if isinstance(converted, Compute) and converted.op == "cast" and isinstance(converted.args[0], str):
        vector = made.get(converted.args[0])
    if converted is None or not isinstance(vector, Load) or vector.mask is not None or vector.buffer in kernel.writes:
        return None
    parts = (vector,) if converted is vector else (vector, converted)
    return Addend(at, sums, parts, total) if _by_column(vector, kernel.outer[-1].sym) else None


def _rounded_to_half(total: Compute, made: Mapping[str, Stmt], body: Iterable[Stmt]) -> bool:
    """True for an f32 sum that is rounded to a half type and nothing else. Sums that end in more digits keep them: a
    large bias would cost the small products their last ones; and a product that is rounded before its bias is added
    must be."""
    reader = next((s for s in body if total.out in args_of(s)), None)
    narrows = isinstance(reader, Compute) and reader.op == "cast" and reader.dtype in HALF
    return total.dtype is DType.F32 and total.out in made and narrows


def _by_column(load: Load, column: Sym) -> bool:
    """True if the element depends on the column alone."""
    return all(s is column or s.extent is None for e in load.index for s in free_syms(e))
