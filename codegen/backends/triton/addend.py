"""The vector that is first added to a product, a bias: a kernel adds the products to it and not it to their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hardtack.codegen.backends.triton.spelling import HALF
from hardtack.codegen.ir.expr import Sym
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.loops import Compute, Load, Stmt, args_of
from hardtack.codegen.ir.schedule import Kernel


@dataclass(frozen=True)
class Addend:
    """nest: its number in the kernel. sums: the load of the anchor's result. vector: the load of what is added, an
    element for each column. total: their sum."""

    nest: int
    sums: Load
    vector: Load
    total: Compute

    def without(self, body: Iterable[Stmt]) -> list[Stmt]:
        """The nest's body where the accumulators hold the total already."""
        loaded = Load(self.total.out, self.sums.buffer, self.sums.index)
        return [loaded if s is self.sums else s for s in body if s is not self.vector and s is not self.total]


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
    total = next((s for s in body if isinstance(s, Compute) and sums.out in s.args), None)
    # sums that end in more digits keep them: a large bias would cost the small products their last ones
    if total is None or total.op != "add" or total.dtype not in HALF or uses[sums.out] != 1:
        return None
    other = total.args[1] if total.args[0] == sums.out else total.args[0]
    vector = next((s for s in body if isinstance(s, Load) and s.out == other and uses[s.out] == 1), None)
    if vector is None or vector.mask is not None or vector.buffer in kernel.writes:
        return None
    return Addend(at, sums, vector, total) if _by_column(vector, kernel.outer[-1].sym) else None


def _by_column(load: Load, column: Sym) -> bool:
    """True if the element depends on the column alone."""
    return all(s is column or s.extent is None for e in load.index for s in free_syms(e))
