"""Reindexing by enumeration: what the proofs accept is so at every point; what fusion makes touches what was meant."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.expr import Expr, Sym, const, sym
from hardtack.codegen.ir.expr_walk import evaluate, substitute
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Buffer, Check, Load, LoopNest, Store
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.reindex import equal, why_not_injective, why_not_one_to_one
from hardtack.codegen.lower import Lowered, lower_graph
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import context_of, fused_groups, run_graph_passes, run_nest_passes
from hardtack.exporter import to_graphs

Point = Mapping[str, int]


def points(axes: Mapping[Sym, Expr]) -> Iterator[dict[str, int]]:
    sizes = [evaluate(e, {}) for e in axes.values()]
    for at in itertools.product(*map(range, sizes)):
        yield {s.name: i for s, i in zip(axes, at, strict=True)}


@st.composite
def reindexings(draw: st.DrawFn) -> tuple[list[Expr], list[int], dict[Sym, Expr]]:
    """Coordinates over a few small axes: mostly digits of numbers of them, as fusion and tiling make them."""
    axes = {sym(n, extent=e): const(e) for n in "abc" for e in [draw(st.integers(1, 6))]}
    chosen = draw(st.permutations(list(axes)))
    joined: Expr = const(0)
    for s in chosen:
        joined = joined * (axes[s] if draw(st.integers(0, 5)) else const(draw(st.integers(1, 6)))) + s
    total = evaluate(joined, {s.name: evaluate(axes[s], {}) - 1 for s in axes}) + 1
    out: list[Expr] = []
    sizes: list[int] = []
    step = 1
    for k in range(draw(st.integers(1, 3))):
        left = max(1, total // step)
        size = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0])) if k < 2 else left
        out.append(joined // step % size if draw(st.integers(0, 8)) else joined // step)
        sizes.append(size)
        step *= size
    if draw(st.booleans()):
        out[-1] = joined // (step // sizes[-1])
        sizes[-1] = max(1, -(-total // (step // sizes[-1])))
    if not draw(st.integers(0, 3)):
        out[0] = sizes[0] - 1 - out[0]
    return out, sizes, axes


@given(reindexings())
def test_what_is_proved_to_be_one_to_one_is(found: tuple[list[Expr], list[int], dict[Sym, Expr]]) -> None:
    exprs, sizes, axes = found
    images = [tuple(evaluate(e, p) for e in exprs) for p in points(axes)]
    space = set(itertools.product(*map(range, sizes)))
    if why_not_injective(exprs, axes) is None:
        assert len(set(images)) == len(images)
    if why_not_one_to_one(exprs, [const(n) for n in sizes], axes) is None:
        assert Counter(images) == Counter(space)


A, B, N = sym("a", extent=6), sym("b", extent=4), sym("n", 0, None)
C, D = sym("c", extent=N), sym("d", extent=8 * N)


@pytest.mark.parametrize(
    ("exprs", "sizes", "axes"),
    [
        ((A, B), (6, 4), (A, B)),
        ((B, A), (4, 6), (A, B)),
        ((A * 4 + B,), (24,), (A, B)),
        ((5 - A, B), (6, 4), (A, B)),
        ((A // 3, A % 3, B), (2, 3, 4), (A, B)),
        (((A * 4 + B) // 8, (A * 4 + B) % 8), (3, 8), (A, B)),
        ((A // 2, A % 6 // 1 % 2, B), (3, 2, 4), (A, B)),
        ((D // 8, D % 8 // 4, D % 4), (N, 2, 4), (D,)),
        ((D // (4 * N), D // 4 % N, D % 4), (2, N, 4), (D,)),
        ((C * 6 + A,), (6 * N,), (C, A)),
        ((A * N + C,), (6 * N,), (C, A)),
    ],
)
def test_the_ways_of_walking_are_proved(
    exprs: tuple[Expr, ...], sizes: tuple[int | Expr, ...], axes: tuple[Sym, ...]
) -> None:
    extents = {s: s.extent or const(0) for s in axes}
    assert why_not_one_to_one(exprs, [n if isinstance(n, Expr) else const(n) for n in sizes], extents) is None


@pytest.mark.parametrize(
    ("exprs", "sizes", "why"),
    [
        ((const(0), B), (1, 4), "24 points in place of 4"),
        ((const(0), A * 4 + B), (6, 24), "24 points in place of 144"),
        ((A * 3 + B,), (24,), "a cannot be told from b + 3*a"),
        ((A, const(2)), (6, 4), "b cannot be told from a, 2"),
        ((A // 3, A % 2, B), (2, 3, 4), "a cannot be told from a//3, a%2, b"),
        ((A + 1, B), (6, 4), "a + 1 may leave [0, 6)"),
    ],
)
def test_other_walks_are_refused(exprs: tuple[Expr, ...], sizes: tuple[int, ...], why: str) -> None:
    found = why_not_one_to_one(exprs, [const(n) for n in sizes], {A: const(6), B: const(4)})
    assert found == why


def test_equal_is_more_than_one_form() -> None:
    assert equal((A + 1) // 2 * 2, (A + 1) - (A + 1) % 2)
    assert not equal(A // 5, const(0))  # they differ at the last point only
    assert not equal(A % 5, A)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: object, *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)
        self.eval()

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(*self.parts, *args)  # type: ignore[operator]


X, IMAGE, ONE_INDEX = torch.randn(5, 6), torch.randn(1, 4, 5, 5), torch.tensor([2])
MODULES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "epilogue": (Of(lambda m, x: m(x).relu() + x, nn.Linear(6, 6)), (X,)),
    "split rows": (Of(lambda m, x: (m(x).view(5, 2, 3) * 2).flatten(), nn.Linear(6, 6)), (X,)),
    "transposed": (Of(lambda m, x: m(x).t().exp() + x.t(), nn.Linear(6, 6)), (X,)),
    "a row by an index": (Of(lambda m, x, i: m(x)[i], nn.Linear(6, 8)), (X, ONE_INDEX)),
    "the last token": (Of(lambda m, x, i: m(x)[torch.arange(1), i], nn.Linear(6, 8)), (X[None], ONE_INDEX)),
    "rows gathered": (Of(lambda m, x, i: m(x).gather(0, i), nn.Linear(6, 8)), (X, torch.randint(0, 5, (1, 8)))),
    "a diagonal": (Of(lambda m, x: m(x).diagonal(1, 0, 1), nn.Linear(6, 8)), (X,)),
    "a diagonal of one": (Of(lambda m, x: m(x).diagonal(1, 0, 1), nn.Linear(6, 2)), (X[:1],)),
    "a part of a cat": (Of(lambda m, x: torch.stack([m(x), x], 1)[:, 0] * 2, nn.Linear(6, 6)), (X,)),
    "two parts": (Of(lambda m, x: torch.cat([m(x).sin(), x[:0], x, m(x)], 0).sum(1), nn.Linear(6, 6)), (X,)),
    "softmax": (Of(lambda x: x.softmax(-1).t().softmax(-1)), (X,)),
    "norms": (Of(lambda x: F.layer_norm(x + x.flip(0), (6,)).relu() * 2), (X,)),
    "groups": (Of(lambda x: F.group_norm(x.relu(), 2).flatten(1).cumsum(1)), (IMAGE,)),
    "convolution": (Of(lambda m, x: F.avg_pool2d(m(x).relu(), 2), nn.Conv2d(4, 4, 3, padding=1)), (IMAGE,)),
    "attention": (Of(lambda x: (x @ x.mT).softmax(-1) @ x), (IMAGE,)),
    "sums of sums": (
        Of(
            lambda x: (x - x.mean(0)).pow(2).sum(0) / x.sum(),
        ),
        (X,),
    ),
    "nothing": (
        Of(lambda x: (x[:, :0] * 2, x[:, :0].sum(1), x[:0].sum(0), torch.cat([x[:0], x * 2]), x.t() + 1)),
        (X,),
    ),
    "unfolded": (Of(lambda x: F.unfold(x, 2).sum(1)), (IMAGE,)),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", MODULES)
def test_groups_touch_what_their_nests_meant(name: str, device: str) -> None:
    module, args = MODULES[name]
    (entry,) = to_graphs(module, args, {}, None, False).entries.values()
    backend = CppBackend() if device == "cpu" else TritonBackend(H200)
    context = context_of(backend, {})
    graph = run_graph_passes(entry.graph, backend, context, [], {})
    low = lower_graph(graph, choose_orders(graph), backend.rules, backend.machines[0], {})
    check_groups(run_nest_passes(low, backend, context, [], {}), backend)


def check_groups(low: Lowered, backend: Backend) -> None:
    """Every access of each nest, fused and tiled, is one of the nest's before; nothing is read before it is written."""
    context, buffers = context_of(backend, {}), low.buffers
    before = {n.name: n for n in low.nests if isinstance(n, LoopNest)}
    kept = frozenset((*low.outputs, *low.finals.values()))
    for group in fused_groups(low, backend, context, [], {}):
        for g in group.siblings or (group,):
            for n in (*g.prologue, *g.nests):
                assert accesses(n, buffers) == accesses(before[n.name], buffers), n.name
            check_order(g, buffers)
            if g.anchor is None and g.nests:
                backend.verify(backend.schedule(g, buffers, kept, "k", context), g, buffers)


def offset_of(s: Load | Store, buffers: Mapping[str, Buffer]) -> Expr:
    return buffers[s.buffer].offset(s.index)


def accesses(nest: LoopNest, buffers: Mapping[str, Buffer]) -> Counter[tuple[object, ...]]:
    """What each point of the nest touches, data-dependent indices taken as 0, whatever the points' order."""
    found: Counter[tuple[object, ...]] = Counter()
    data: dict[Expr, Expr] = {sym(s.out, extent=s.size): const(0) for s in nest.body if isinstance(s, Check)}
    touched = [s for s in nest.body if isinstance(s, (Load, Store))]
    exprs = [(s.buffer, type(s).__name__, substitute(offset_of(s, buffers), data)) for s in touched]
    for p in points({a.sym: a.extent for a in nest.axes}):
        found[tuple((b, kind, evaluate(e, p)) for b, kind, e in exprs)] += 1
    return found


Element = tuple[str, int]


def check_order(group: Group, buffers: Mapping[str, Buffer]) -> None:
    """Outer points run alone and in any order: one finds what it reads of the group's values, written by itself."""
    outer = {a.sym: a.extent for a in group.outer}
    runs = [list(trace(group, at, buffers)) for at in points(outer)]
    own = {e for run in runs for kind, e in run if kind == "store"}
    for run in runs:
        written: set[Element] = set()
        for kind, element in run:
            if kind == "store":
                written.add(element)
            else:
                assert element in written or element not in own, f"{group.name} reads {element} before it is written"


def trace(group: Group, at: Point, buffers: Mapping[str, Buffer]) -> Iterator[tuple[str, Element]]:
    """What one outer point of the group loads and stores, in order; data-dependent indices taken as 0."""
    if isinstance(group.anchor, TemplateNest):
        index = 0
        for a in group.anchor.axes:
            index = index * evaluate(a.extent, {}) + at[a.sym.name]
        yield "store", (group.anchor.result, index)
    for n in group.nests:
        data: dict[Expr, Expr] = {sym(s.out, extent=s.size): const(0) for s in n.body if isinstance(s, Check)}
        touched = [s for s in n.body if isinstance(s, Store) or (isinstance(s, Load) and s.mask is None)]
        exprs = [(s, substitute(offset_of(s, buffers), data)) for s in touched]
        for p in points({a.sym: a.extent for a in n.axes if a.sym not in {o.sym for o in group.outer}}):
            for s, e in exprs:
                yield "store" if isinstance(s, Store) else "load", (s.buffer, evaluate(e, {**at, **p}))
