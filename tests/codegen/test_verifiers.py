"""The verifiers of groups, loop trees and memory layouts: each names what is wrong with a broken one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.group_verify import verify_group, verify_grouping
from hardtack.codegen.ir.loops import (
    Axis,
    Buffer,
    Compute,
    Load,
    LoopError,
    LoopNest,
    Reduce,
    Stmt,
    Store,
    substitute_axes,
)
from hardtack.codegen.ir.nests import Operand, Template, TemplateNest
from hardtack.codegen.ir.schedule import Kernel, Storage
from hardtack.codegen.ir.schedule_verify import verify_kernel
from hardtack.codegen.ir.store_verify import Memory, verify_written
from hardtack.codegen.ir.types import DType
from hardtack.codegen.plan.memory import Item, LayoutError, MemoryPlan, plan_memory, verify_memory
from hardtack.codegen.schedule.cpu_tile import tile

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
    verify_kernel(kernel, group, BUFFERS)


def _across(g: Group) -> Group:
    """The last nest reads the sum of the row below."""
    last = g.nests[-1]
    body = tuple(Load("b", "s", (ROW.sym // 2,)) if isinstance(s, Load) and s.buffer == "s" else s for s in last.body)
    return replace(g, nests=(*g.nests[:-1], replace(last, body=body)))


def _rewritten(g: Group) -> Group:
    """The last nest writes what the first one has read, from the other end."""
    last = g.nests[-1]
    body = (*last.body, Store("x", (7 - ROW.sym, COLUMN.sym), "a"))
    return replace(g, nests=(*g.nests[:-1], replace(last, body=body)))


def _twice(g: Group) -> Group:
    """The first nest stores each column for every row."""
    first = g.nests[0]
    return replace(g, nests=(replace(first, body=(*first.body[:-1], Store("e", (const(0), COLUMN.sym), "b"))),))


def _walked(g: Group, index: tuple[Expr, ...], *points: Expr) -> Group:
    """The first nest at other points, as its source was asked for."""
    first = g.nests[0]
    swap = dict(zip((a.sym for a in first.axes), points, strict=True))
    moved = substitute_axes(first, first.axes, swap)
    return replace(g, nests=(replace(moved, body=(*moved.body[:-1], Store("e", index, "b"))),))


AT = (ROW.sym, COLUMN.sym)


class _Anything(Template):
    """What groups are held to is asked here; what templates are, in test_templates.py."""

    kind = "anything"
    roles = ("x",)
    dtypes = (F32,)
    takes_epilogue = True

    def verify(self, nest: TemplateNest, buffers: Mapping[str, Buffer]) -> None:
        pass


GEMM = TemplateNest("e", _Anything(), (ROW, COLUMN), (Operand("x", F32, const(0), (), ()),), "e", ())


def _epilogue(*body: Stmt) -> Callable[[Group], Group]:
    return lambda g: replace(g, anchor=GEMM, nests=(LoopNest("y", (ROW, COLUMN), body),))


def _serial(g: Group) -> Group:
    return replace(g, nests=(replace(g.nests[0], serial=True), *g.nests[1:]))


def _foreign_axes(g: Group) -> Group:
    return replace(g, outer=(replace(ROW, sym=sym("other", extent=8)),))


def _reducing_epilogue(g: Group) -> Group:
    anchor = TemplateNest("e", _Anything(), (ROW, REDUCED), (), "e", ())
    return replace(g, anchor=anchor, nests=(g.nests[1],))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (_across, "group softmax: y reads s across the outer axis o0"),
        (_serial, "group softmax: e must run in order and is not alone"),
        (_rewritten, "group softmax: y writes x across the outer axis o0"),
        (_twice, "group softmax: nest e: points along o0 may coincide in: store e[0, c] b"),
        (
            lambda g: _walked(g, AT, const(0), COLUMN.sym),
            "group softmax: nest e: it does not walk the points of e: o0 cannot be told from 0, c",
        ),
        (
            lambda g: _walked(g, AT, ROW.sym, (COLUMN.sym + 1) % 16),
            "group softmax: nest e: it does not walk the points of e: c cannot be told from o0, (c + 1)%16",
        ),
        (
            lambda g: _walked(g, AT, ROW.sym + 1, COLUMN.sym),
            "group softmax: nest e: it does not walk the points of e: o0 + 1 may leave [0, 8)",
        ),
        (
            lambda g: _walked(g, (7 - ROW.sym, COLUMN.sym), ROW.sym, COLUMN.sym),
            "group softmax: nest e: store e[-1*o0 + 7, c] b is at another place than: store e[o0, c] b",
        ),
        (
            _epilogue(Load("a", "e", (7 - ROW.sym, COLUMN.sym)), Store("y", AT, "a")),
            "group softmax: the epilogue y reads e at another point than its own",
        ),
        (
            _epilogue(Load("a", "e", AT), Store("x", AT, "a")),
            "group softmax: the epilogue y writes x, which other points read",
        ),
        (
            _epilogue(Load("a", "s", (ROW.sym,)), Load("b", "e", AT), Store("s", (ROW.sym,), "b")),
            "group softmax: nest y: points along c may coincide in: store s[o0] b",
        ),
        (_foreign_axes, "group softmax: e does not start with the outer axes"),
        (_reducing_epilogue, "group softmax: the epilogue s reduces, asserts, or must run in order"),
        (lambda g: replace(g, anchor=TemplateNest("e", _Anything(), (ROW,), (), "e", ())), "walks other axes"),
    ],
)
def test_broken_groups(broken: Callable[[Group], Group], message: str) -> None:
    with pytest.raises(LoopError, match="group softmax:") as caught:
        verify_group(broken(softmax_group()), BUFFERS)
    assert message in str(caught.value).splitlines()[0]
    assert " = load " in str(caught.value), "the message has no listing"


def _with_storage(k: Kernel, name: str, storage: Storage) -> Kernel:
    return replace(k, storage={**k.storage, name: storage})


def _dropped_loop(k: Kernel) -> Kernel:
    return replace(k, nests=(k.nests[0], replace(k.nests[1], vector=None)))


def _unreduced(k: Kernel) -> Kernel:
    return replace(k, nests=(replace(k.nests[0], vector_reduces=False), k.nests[1]))


def _half_of_the_rows(k: Kernel) -> Kernel:
    return replace(k, outer=(replace(ROW, extent=const(4)),))


def _in_order(k: Kernel) -> Kernel:
    nests = (replace(n, nest=replace(n.nest, serial=True)) for n in k.nests)
    return replace(k, nests=tuple(nests))


def _of_a_template(k: Kernel) -> Kernel:
    return replace(k, anchor=GEMM)


def _two_indices(k: Kernel) -> Kernel:
    nest = k.nests[1].nest
    body = (Load("a", "e", (ROW.sym, COLUMN.sym)), *nest.body[1:])
    return replace(k, nests=(k.nests[0], replace(k.nests[1], nest=replace(nest, body=body))))


def _edited(k: Kernel, at: int, change: Callable[[Stmt], Stmt]) -> Kernel:
    """A nest with other statements."""
    n = k.nests[at]
    nests = list(k.nests)
    nests[at] = replace(n, nest=replace(n.nest, body=tuple(change(s) for s in n.nest.body)))
    return replace(k, nests=tuple(nests))


def _moved(buffer: str, by: Expr, kind: type = Load) -> Callable[[Stmt], Stmt]:
    def change(s: Stmt) -> Stmt:
        here = isinstance(s, (Load, Store)) and isinstance(s, kind) and s.buffer == buffer
        return replace(s, index=(s.index[0] + by,)) if here else s  # type: ignore[union-attr,type-var]

    return change


def _mirrored(buffer: str) -> Callable[[Stmt], Stmt]:
    def change(s: Stmt) -> Stmt:
        return replace(s, index=(15 - s.index[0],)) if isinstance(s, Load) and s.buffer == buffer else s

    return change


def _other_op(s: Stmt) -> Stmt:
    return replace(s, op="mul") if isinstance(s, Compute) and s.op == "div" else s


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda k: replace(k, nests=k.nests[:1]), "it computes e, s in place of e, s, y"),
        (lambda k: replace(k, nests=k.nests[::-1]), "it computes y, e, s in place of e, s, y"),
        (lambda k: _edited(k, 1, _other_op), "c1: f32 = mul(a, b) stands for: c1: f32 = div(a, b)"),
        (
            lambda k: _edited(k, 1, _moved("y", const(1), Store)),
            "store y[c + 16*o0 + 1] c1 is moved by -1, and",
        ),
        (lambda k: _edited(k, 1, _moved("y", COLUMN.sym, Store)), "is not where its nest meant, by -1*c"),
        (lambda k: _edited(k, 1, _moved("e", -ROW.sym)), "the scratch e, c - 1*o0, may leave its 16 elements"),
        (lambda k: _edited(k, 0, _moved("e", const(-1))), "the scratch e, r - 1, may leave its 16 elements"),
        (
            lambda k: _edited(k, 1, _mirrored("e")),
            "a = load e[-1*c + 15] is not where its nest meant, by 16*o0 + 2*c - 15",
        ),
        (_dropped_loop, "the loops of y are not its axes"),
        (_half_of_the_rows, "the loops of s are not its axes"),
        (_in_order, "s must run in order, and many workers run it"),
        (_of_a_template, "the outer axes are not the 1, 8, 16 points of e"),
        (_unreduced, "the reduce loops of s are not its reduce axes"),
        (_two_indices, "e is accessed by 2 indices instead of one offset"),
        (lambda k: _with_storage(k, "e", Storage("memory")), "the parameters are not the buffers in memory"),
        (lambda k: _with_storage(k, "e", Storage("scratch", const(15))), "the scratch e, r, may leave its 15 elements"),
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
    group = softmax_group()
    kernel = tile(group, BUFFERS, frozenset({"y"}), "softmax")
    with pytest.raises(LoopError, match="kernel softmax:") as caught:
        verify_kernel(broken(kernel), group, BUFFERS)
    assert message in str(caught.value).splitlines()[0]


def _copy(target: str, rows: int, at: int, source: str = "x") -> LoopNest:
    """Rows of `source` to `target`, from row `at` on."""
    row = Axis(sym("i", extent=rows), const(rows))
    index = (row.sym + at, COLUMN.sym)
    body = (Load("a", source, index), Store(target, index, "a"))
    return LoopNest(f"{target}{at}", (row, COLUMN), body)


GIVEN = Memory(frozenset({"x"}))
TAKEN = Memory(frozenset({"x", "s"}), {"e": "s"})
"""The memory of the state s is e's."""


def _update(target: str, source: str = "x") -> LoopNest:
    """As _copy of all rows, where points run in order."""
    return replace(_copy(target, 8, 0, source), serial=True)


def test_buffers_that_are_whole_when_they_are_read() -> None:
    verify_written([_copy("e", 8, 0), _copy("y", 8, 0, "e")], BUFFERS, GIVEN)
    verify_written([_copy("e", 5, 3), _copy("e", 3, 0), _copy("y", 8, 0, "e")], BUFFERS, GIVEN)
    verify_written([_update("e"), _copy("y", 8, 0, "e")], BUFFERS, replace(TAKEN, wanted=frozenset({"e", "y"})))


def test_a_buffer_without_elements_is_whole() -> None:
    none = Buffer("none", F32, (const(0), const(16)), (0, 1))
    verify_written([_copy("y", 8, 0, "none")], BUFFERS | {"none": none}, GIVEN)


@pytest.mark.parametrize(
    ("nests", "message"),
    [
        ([_copy("e", 5, 0)], "e has 128 elements, of which 80 are written"),
        ([_copy("y", 8, 0, "e"), _copy("e", 8, 0)], "y0 reads e, of which 0 elements of 128 are written"),
        ([_copy("y", 8, 0, "e")], "y0 reads e, of which 0 elements of 128 are written"),
        (
            [_copy("e", 3, 0), _copy("y", 8, 0, "e"), _copy("e", 5, 3)],
            "y0 reads e, of which 48 elements of 128 are written",
        ),
        ([_copy("e", 5, 0), _copy("e", 3, 4)], "e4 stores e at (i + 4, c), which is stored at (i, c), too"),
        ([_update("e")], "e0 changes e, of which 0 elements of 128 are written"),
        ([_copy("x", 8, 0)], "x0 writes x, which is given"),
    ],
)
def test_buffers_that_are_not(nests: list[LoopNest], message: str) -> None:
    with pytest.raises(LoopError, match=re.escape(message)):
        verify_written(nests, BUFFERS, GIVEN)


def test_an_output_that_nothing_writes() -> None:
    for nests in ([], [_copy("e", 8, 0)]):
        with pytest.raises(LoopError, match="y has 128 elements, of which 0 are written"):
            verify_written(nests, BUFFERS, replace(GIVEN, wanted=frozenset({"y"})))


@pytest.mark.parametrize(
    ("nests", "message"),
    [
        ([_copy("y", 8, 0, "e"), _update("e")], "y0 reads e before it is written"),
        ([_copy("y", 8, 0)], "nothing writes e"),
        ([_update("e"), _copy("y", 8, 0, "s")], "y0 reads s, whose memory e takes"),
        ([_update("e", "s")], "e0 reads s, whose memory it gives to e"),
    ],
)
def test_a_state_in_whose_memory_another_value_is(nests: list[LoopNest], message: str) -> None:
    with pytest.raises(LoopError, match=re.escape(message)):
        verify_written(nests, BUFFERS, TAKEN)


CHAIN = Memory(frozenset({"x", "s"}), {"e": "s", "f": "e"})
"""Three values in one memory: s, then e, then f."""
CHAINED = BUFFERS | {"f": replace(BUFFERS["e"], name="f")}


@pytest.mark.parametrize("order", sorted(itertools.permutations(range(5))))
def test_values_in_one_memory_in_every_order(order: tuple[int, ...]) -> None:
    """Only what reads each value while it is there passes."""
    one, two = (Buffer(n, F32, BUFFERS["y"].shape, (0, 1)) for n in ("one", "two"))
    nests = [_copy("one", 8, 0, "s"), _update("e"), _copy("two", 8, 0, "e"), _update("f"), _copy("y", 8, 0, "f")]
    right = order.index(0) < order.index(1) < order.index(2) < order.index(3) < order.index(4)
    try:
        verify_written([nests[k] for k in order], CHAINED | {"one": one, "two": two}, CHAIN)
    except LoopError:
        assert not right
    else:
        assert right


@pytest.mark.parametrize(
    ("nests", "message"),
    [
        ([_update("f")], "f0 writes f in the memory of e, which is not written yet"),
        ([_update("e"), _update("f"), _update("e")], "e0 writes e, whose memory f takes"),
        ([_update("e"), _update("f", "e")], "f0 reads e, whose memory it gives to f"),
        ([_update("e"), _update("f"), _copy("y", 8, 0, "e")], "y0 reads e, whose memory f takes"),
    ],
)
def test_values_that_follow_one_another_in_a_memory(nests: list[LoopNest], message: str) -> None:
    with pytest.raises(LoopError, match=re.escape(message)):
        verify_written(nests, CHAINED, CHAIN)


def test_an_output_in_a_memory_that_another_value_takes() -> None:
    with pytest.raises(LoopError, match="the end of the run reads e, whose memory f takes"):
        verify_written([_update("e"), _update("f")], CHAINED, replace(CHAIN, wanted=frozenset({"e"})))


def test_two_values_that_take_one_memory() -> None:
    both = Memory(frozenset({"x", "s"}), {"e": "s", "f": "s"})
    with pytest.raises(LoopError, match="f0 writes f in the memory of s, which e takes"):
        verify_written([_update("e"), _update("f")], CHAINED, both)


def test_a_memory_that_is_not_whole_when_another_value_takes_it() -> None:
    with pytest.raises(LoopError, match="f0 changes f, of which 80 elements of 128 are written"):
        verify_written([_copy("e", 5, 0), _update("f")], CHAINED, Memory(frozenset({"x"}), {"f": "e"}))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (lambda a, b: [a], "no group computes y0"),
        (lambda a, b: [b, a], "y0 runs before e0, and both touch e"),
        (lambda a, b: [a, b, a], "group e0 computes e0 once more"),
        (lambda a, b: [a, b, replace(a, nests=(_copy("s", 1, 0),))], "group e0 computes s0, which nothing asked for"),
    ],
)
def test_groups_that_do_not_compute_what_was_asked_for(
    groups: Callable[[Group, Group], list[Group]], message: str
) -> None:
    nests = [_copy("e", 8, 0), _copy("y", 8, 0, "e")]
    alone = [Group(n.name, n.axes, (n,)) for n in nests]
    verify_grouping(nests, alone, {})
    with pytest.raises(LoopError, match=message):
        verify_grouping(nests, groups(*alone), {})


@pytest.mark.parametrize("order", sorted(itertools.permutations(range(3)))[1:])
def test_members_in_another_order(order: tuple[int, ...]) -> None:
    """A nest that reads what a later one writes; in a template's group it would read at its own point, unwritten."""
    group = softmax_group()
    verify_grouping(group.nests, [group], {})
    moved = replace(group, nests=tuple(group.nests[k] for k in order))
    with pytest.raises(LoopError, match=r"[ey] runs before|s runs before"):
        verify_grouping(group.nests, [moved], {})


def test_an_epilogue_in_another_order() -> None:
    first = LoopNest("s", (ROW, COLUMN), (Load("a", "e", AT), Store("y", AT, "a")))
    second = LoopNest("y", (ROW, COLUMN), (Load("a", "y", AT), Store("x", AT, "a")))
    template = replace(GEMM, operands=())
    group = Group("epilogue", (), (first, second), template)
    verify_grouping((template, first, second), [group], {})
    verify_group(group, BUFFERS)
    with pytest.raises(LoopError, match="y runs before s, and both touch y"):
        verify_grouping((template, first, second), [replace(group, nests=(second, first))], {})


def test_broken_layouts() -> None:
    n = sym("n", 0, None)
    items = [Item("a", n * 4, 0, 1), Item("b", const(100), 1, 2), Item("c", n * 4, 2, 3)]
    plan = plan_memory(items, lambda e: 64)
    verify_memory(items, plan)

    def broken(text: str, **offsets: int) -> None:
        with pytest.raises(LayoutError, match=text):
            verify_memory(
                items, MemoryPlan({**plan.offsets, **{k: const(v) for k, v in offsets.items()}}, (const(4096),))
            )

    broken("a and b share bytes at 64, sizes {'n': 17}", a=0, b=64)
    broken("b at 32, 100 bytes of 4096, sizes {'n': 0}", b=32)
    broken("b at 1048576, 100 bytes of", b=1 << 20)
    with pytest.raises(LayoutError, match="the layout is not of these values"):
        verify_memory(items[:2], plan)


def test_a_layout_is_tried_at_sizes_that_its_symbols_take() -> None:
    """From 3 on, the rows are longer than the 64 bytes, and the planner may say so; at 1 they are not."""
    n = sym("n", 3, None)
    items = [Item("rows", 64 * n, 1, 5), Item("one", const(64), 2, 3), Item("less", 224 * n - 224, 5, 7)]
    verify_memory(items, plan_memory(items, lambda e: evaluate(e, {"n": 9})))
