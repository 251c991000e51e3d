"""The verifiers of groups, loop trees and memory layouts: each names what is wrong with a broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.group import Group, verify_group
from hardtack.codegen.ir.loops import Axis, Buffer, Compute, Load, LoopError, LoopNest, Reduce, Store, TemplateNest
from hardtack.codegen.ir.schedule import Kernel, Storage, verify_kernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.memory import Item, LayoutError, MemoryPlan, plan_memory, verify_memory
from hardtack.codegen.tile import tile

F32 = DType.F32
BUFFERS = {n: Buffer(n, F32, (const(8), const(16)), (0, 1)) for n in ("x", "e", "y")} | {
    "s": Buffer("s", F32, (const(8),), (0,))
}
ROW = Axis(sym("o0", extent=8), const(8))
COLUMN = Axis(sym("c", extent=16), const(16))
REDUCED = Axis(sym("r", extent=16), const(16), "reduce")


def softmax_group() -> Group:
    """e = exp(x); s = sum of e's rows; y = e / s."""
    at, along = (ROW.sym, COLUMN.sym), (ROW.sym, REDUCED.sym)
    first = LoopNest("e", (ROW, COLUMN), (Load("a", "x", at), Compute("b", "exp", ("a",), F32), Store("e", at, "b")))
    second = LoopNest(
        "s", (ROW, REDUCED), (Load("a", "e", along), Reduce("t", "sum", ("a",), F32), Store("s", (ROW.sym,), "t"))
    )
    third = LoopNest(
        "y",
        (ROW, COLUMN),
        (Load("a", "e", at), Load("b", "s", (ROW.sym,)), Compute("c1", "div", ("a", "b"), F32), Store("y", at, "c1")),
    )
    return Group("softmax", (ROW,), (first, second, third))


def test_a_sound_group_and_its_loop_tree_pass() -> None:
    group = softmax_group()
    verify_group(group, BUFFERS)
    kernel = tile(group, BUFFERS, frozenset({"y"}), "softmax")
    assert kernel.storage["e"].kind == "scratch"
    assert [n.nest.name for n in kernel.nests] == ["s", "y"]  # one pass makes the exponentials and sums them
    verify_kernel(kernel)


def _reversed(g: Group) -> Group:
    return replace(g, nests=g.nests[::-1])


def _across(g: Group) -> Group:
    """The last nest reads the sum of the row below."""
    last = g.nests[-1]
    body = tuple(Load("b", "s", (ROW.sym // 2,)) if isinstance(s, Load) and s.buffer == "s" else s for s in last.body)
    return replace(g, nests=(*g.nests[:-1], replace(last, body=body)))


def _serial(g: Group) -> Group:
    return replace(g, nests=(replace(g.nests[0], serial=True), *g.nests[1:]))


def _foreign_axes(g: Group) -> Group:
    return replace(g, outer=(replace(ROW, sym=sym("other", extent=8)),))


def _reducing_epilogue(g: Group) -> Group:
    anchor = TemplateNest("e", "gemm_packed", (ROW, REDUCED), (), "e", (), ())
    return replace(g, anchor=anchor, nests=(g.nests[1],))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (_reversed, "group softmax: y reads e, which a later member writes"),
        (_across, "group softmax: y reads s across the outer axis o0"),
        (_serial, "group softmax: e must run in order and is not alone"),
        (_foreign_axes, "group softmax: e does not start with the outer axes"),
        (_reducing_epilogue, "group softmax: the epilogue s reduces or asserts"),
        (lambda g: replace(g, anchor=TemplateNest("e", "conv", (ROW,), (), "e", (), ())), "walks other axes"),
    ],
)
def test_broken_groups(broken: Callable[[Group], Group], message: str) -> None:
    with pytest.raises(LoopError, match="group softmax:") as caught:
        verify_group(broken(softmax_group()), BUFFERS)
    assert message in str(caught.value).splitlines()[0]
    assert "store y[o0, c]" in str(caught.value) or "store s[o0]" in str(caught.value)


def _with_storage(k: Kernel, name: str, storage: Storage) -> Kernel:
    return replace(k, storage={**k.storage, name: storage})


def _dropped_loop(k: Kernel) -> Kernel:
    return replace(k, nests=(k.nests[0], replace(k.nests[1], vector=None)))


def _unreduced(k: Kernel) -> Kernel:
    return replace(k, nests=(replace(k.nests[0], vector_reduces=False), k.nests[1]))


def _two_indices(k: Kernel) -> Kernel:
    nest = k.nests[1].nest
    body = (Load("a", "e", (ROW.sym, COLUMN.sym)), *nest.body[1:])
    return replace(k, nests=(k.nests[0], replace(k.nests[1], nest=replace(nest, body=body))))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (_dropped_loop, "the loops of y are not its axes"),
        (_unreduced, "the reduce loops of s are not its reduce axes"),
        (_two_indices, "e is accessed by 2 indices instead of one offset"),
        (lambda k: _with_storage(k, "e", Storage("memory")), "the parameters are not the buffers in memory"),
        (lambda k: _with_storage(k, "e", Storage("scratch", const(15))), "the scratch e reaches 15 of 15 elements"),
        (lambda k: _with_storage(k, "e", Storage("scratch")), "the scratch e has no size"),
        (lambda k: replace(k, writes=frozenset({"y", "e"})), "e is written outside, and not in memory"),
        (lambda k: replace(k, flat=True), "s has loops of its own in a flat kernel"),
        (
            lambda k: replace(k, storage={**k.storage, "e": Storage("register")}),
            "the register e is accessed at r and at c",
        ),
    ],
)
def test_broken_loop_trees(broken: Callable[[Kernel], Kernel], message: str) -> None:
    kernel = tile(softmax_group(), BUFFERS, frozenset({"y"}), "softmax")
    with pytest.raises(LoopError, match="kernel softmax:") as caught:
        verify_kernel(broken(kernel))
    assert message in str(caught.value).splitlines()[0]


def test_broken_layouts() -> None:
    n = sym("n", 0, None)
    items = [Item("a", n * 4, 0, 1), Item("b", const(100), 1, 2), Item("c", n * 4, 2, 3)]
    plan = plan_memory(items, lambda e: 64)
    verify_memory(items, plan)

    def broken(text: str, **offsets: int) -> None:
        with pytest.raises(LayoutError, match=text):
            verify_memory(items, MemoryPlan({**plan.offsets, **{k: const(v) for k, v in offsets.items()}}, const(4096)))

    broken("a and b share bytes at 64, sizes {'n': 17}", a=0, b=64)
    broken("b at 32, 100 bytes of 4096, sizes {'n': 0}", b=32)
    broken("b at 1048576, 100 bytes of", b=1 << 20)
    with pytest.raises(LayoutError, match="the layout is not of these values"):
        verify_memory(items[:2], plan)
