"""Cheaper functions of f32, where results are rounded to 16 bits wherever they go.

exp, erf, tanh and sigmoid are most of what many kernels compute; with the digits that 16 bits hold, and a few more,
they take a fraction of the instructions.
"""

from __future__ import annotations

from dataclasses import replace

from hardtack.codegen.ir.coarse_verify import verify_coarse
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Compute, LoopError, LoopNest, Stmt, is_same
from hardtack.codegen.ir.nest_text import stmt_text
from hardtack.codegen.ops import COARSE_FORMS, COARSE_OPS, accepts
from hardtack.codegen.passes.gpu.kernel_nests import GpuKernelIr, nests_of, with_nests
from hardtack.codegen.passes.gpu.precision import coarse_values
from hardtack.codegen.passes.passes import Buffers, Context, KernelPass


def with_coarse_ops(nest: LoopNest, coarse: frozenset[str]) -> LoopNest:
    """The nest with the coarse form of each op that has one and computes one of the values `coarse`."""
    body = tuple(_coarse_form(s) if isinstance(s, Compute) and s.out in coarse else s for s in nest.body)
    return nest if all(new is old for new, old in zip(body, nest.body, strict=True)) else replace(nest, body=body)


def _coarse_form(s: Compute) -> Compute:
    form = COARSE_FORMS.get(s.op)
    return s if form is None or not accepts(COARSE_OPS[form], s.dtype) else replace(s, op=form)


def _run(kernel: GpuKernelIr, buffers: Buffers, following: Group | None, context: Context) -> GpuKernelIr:
    nests = nests_of(kernel)
    if not any(isinstance(s, Compute) and s.op in COARSE_FORMS for n in nests for s in n.body):
        return kernel
    found = zip(nests, coarse_values(kernel, buffers), strict=True)
    return with_nests(kernel, [with_coarse_ops(nest, coarse) for nest, coarse in found])


def verify_coarse_ops(before: GpuKernelIr, after: GpuKernelIr, buffers: Buffers) -> None:
    """Raise LoopError unless the kernel is the one before, but for coarse forms of its ops, whose results are rounded
    to 16 bits wherever they go."""
    olds, news = nests_of(before), nests_of(after)
    if len(olds) != len(news) or with_nests(after, olds) != before:
        raise LoopError("the kernel is another one")
    for old, new in zip(olds, news, strict=True):
        if replace(new, body=old.body) != old or len(new.body) != len(old.body):
            raise LoopError(f"{new.name} is another nest")
        for was, now in zip(old.body, new.body, strict=True):
            if not (is_same(was, now) or _is_coarse_form(was, now)):
                raise LoopError(f"{new.name} computes {stmt_text(now)} in place of: {stmt_text(was)}")
    verify_coarse(after)


def _is_coarse_form(was: Stmt, now: Stmt) -> bool:
    """True if `now` is what the table has for the op of `was`, of the same arguments and in a dtype that it is of."""
    if not isinstance(was, Compute) or not isinstance(now, Compute) or COARSE_FORMS.get(was.op) != now.op:
        return False
    return is_same(was, replace(now, op=was.op)) and accepts(COARSE_OPS[now.op], now.dtype)


TAKE_COARSE_FORMS = KernelPass("coarse", _run, verify_coarse_ops)
"""Functions of f32 with the digits that 16 bits hold, where their results are rounded to these anyway."""
