"""The vector that is first added to a product, a bias: a kernel adds the products to it and not it to their sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hardtack.codegen.ir.expr import Sym
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Compute, Load, LoopError, Stmt, args_of, exprs_of, out_of
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ir.schedule import Addend, Kernel
from hardtack.codegen.ir.types import HALF, DType
from hardtack.codegen.passes.gpu.kernel_nests import GpuKernelIr
from hardtack.codegen.passes.passes import Buffers, Context, KernelPass


def first_addend(kernel: Kernel) -> Addend | None:
    """The addend of a template's result that nothing but its addition reads."""
    anchor = kernel.anchor
    if anchor is None or not anchor.template.takes_addend or kernel.storage[anchor.result].kind != "register":
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


def _run(kernel: GpuKernelIr, buffers: Buffers, following: Group | None, context: Context) -> GpuKernelIr:
    if not isinstance(kernel, Kernel):
        return kernel
    found = first_addend(kernel)
    return kernel if found is None else replace(kernel, addend=found)


def verify_addend(before: GpuKernelIr, after: GpuKernelIr, buffers: Buffers) -> None:
    """Raise LoopError unless the addend is what the kernel adds to each of its template's results, one for a column,
    before anything else is made of them."""
    if not isinstance(after, Kernel) or after.addend is None:
        if after != before:
            raise LoopError("the kernel is another one")
        return
    if replace(after, addend=None) != before or after.anchor is None:
        raise LoopError("the kernel is another one")
    _verify_sum(after, after.addend)
    _verify_readers(after, after.addend)


def _verify_sum(kernel: Kernel, a: Addend) -> None:
    """The addend is a vector with an element a column, and what is added first to the template's results."""
    assert kernel.anchor is not None
    if not kernel.anchor.template.takes_addend or kernel.storage[kernel.anchor.result].kind != "register":
        raise LoopError("the template's results do not start from an addend")
    _verify_vector(kernel, a)
    body = kernel.nests[a.nest].nest.body
    if any(s not in body for s in (*a.vector, a.sums, a.total)) or a.sums.buffer != kernel.anchor.result:
        raise LoopError("the addend is not of the nest that reads the results")
    if (a.total.op, a.total.dtype) != ("add", DType.F32) or set(a.total.args) != {a.sums.out, out_of(a.vector[-1])}:
        raise LoopError(f"the addend is not what is added first: {stmt_text(a.total)}")
    column = kernel.outer[-1].sym
    for s in (*a.vector, a.sums):
        if isinstance(s, Load) and s.mask is not None:
            raise LoopError(f"the addend is not there for every result: {stmt_text(s)}")
        rows = (y for e in exprs_of(s) for y in free_syms(e) if y.extent is not None and y is not column)
        if s is not a.sums and any(rows):
            raise LoopError(f"the addend differs from row to row: {stmt_text(s)}")


def _verify_vector(kernel: Kernel, a: Addend) -> None:
    """The vector is what one load gives, or that as f32; no program of the kernel writes there."""
    load, *cast = a.vector
    whole = isinstance(load, Load) and all(isinstance(s, Compute) and s.op == "cast" for s in cast) and len(cast) < 2
    if not whole or any(args_of(s) != (out_of(load),) for s in cast):
        raise LoopError(f"the addend is no vector: {'; '.join(map(stmt_text, a.vector))}")
    if isinstance(load, Load) and load.buffer in kernel.writes:
        raise LoopError(f"the addend is written in the kernel that adds it: {stmt_text(load)}")


def _verify_readers(kernel: Kernel, a: Addend) -> None:
    """Nothing else reads the results, or what the addend is made of."""
    assert kernel.anchor is not None
    parts = (*a.vector, a.sums, a.total)
    made = {out_of(s) for s in (*a.vector, a.sums)}
    for k, n in enumerate(kernel.nests):
        for s in n.nest.body:
            if k == a.nest and s in parts:
                continue
            inside = k == a.nest and any(x in made for x in args_of(s))
            if inside or (isinstance(s, Load) and s.buffer == kernel.anchor.result):
                raise LoopError(f"the results are needed without the addend: {stmt_text(s)}")


START_FROM_ADDEND = KernelPass("addend", _run, verify_addend)
"""Accumulators of a product start from the bias."""
