"""The memory planner by brute force: values that are alive together never overlap, at any size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from sweep import num_examples

from hardtack.codegen.ir.expr import Const, Expr, const, sym
from hardtack.codegen.ir.expr_walk import evaluate
from hardtack.codegen.plan.memory import ALIGNMENT, Item, MemoryPlan, aligned, plan_memory

N, M = sym("n", 0, None), sym("m", 1, 64)


@st.composite
def item_lists(draw: st.DrawFn, symbolic: bool) -> list[Item]:
    items = []
    for k in range(draw(st.integers(1, 12))):
        first = draw(st.integers(0, 9))
        nbytes: Expr = const(draw(st.sampled_from([0, 1, 4, 64, 100, 4096, 999])))
        if symbolic:
            nbytes = draw(st.sampled_from([nbytes, N * 4, N * M, M * 100, N * N * 8 + 3]))
        items.append(Item(f"v{k}", nbytes, first, draw(st.integers(first, 10))))
    return items


def check(items: list[Item], plan: MemoryPlan, sizes: dict[str, int]) -> int:
    """No overlap of live values; everything inside the arena and aligned. Returns the arena's nbytes."""
    placed = {i.name: (evaluate(plan.offsets[i.name], sizes), evaluate(i.nbytes, sizes)) for i in items}
    total = evaluate(plan.nbytes[-1], sizes)
    for a in items:
        start, nbytes = placed[a.name]
        assert start >= 0
        assert start % ALIGNMENT == 0
        assert start + nbytes <= total
        for b in items:
            if a.name < b.name and a.meets(b):
                other, other_nbytes = placed[b.name]
                apart = start + nbytes <= other or other + other_nbytes <= start
                assert apart or not nbytes or not other_nbytes, (a, b, placed)
    return total


@settings(max_examples=num_examples(150), deadline=None)
@given(item_lists(symbolic=False))
def test_constant_sizes_give_constant_offsets(items: list[Item]) -> None:
    plan = plan_memory(items, lambda e: evaluate(e, {}))
    assert all(isinstance(o, Const) for o in plan.offsets.values())
    total = check(items, plan, {})
    alive = [sum(evaluate(aligned(i.nbytes), {}) for i in items if i.first <= step <= i.last) for step in range(11)]
    assert max(alive) <= total <= sum(evaluate(aligned(i.nbytes), {}) for i in items)


@settings(max_examples=num_examples(150), deadline=None)
@given(item_lists(symbolic=True), st.integers(0, 50), st.integers(1, 64), st.integers(0, 300), st.integers(1, 64))
def test_no_overlap_at_other_sizes_than_the_hints(items: list[Item], n: int, m: int, hint_n: int, hint_m: int) -> None:
    plan = plan_memory(items, lambda e: evaluate(e, {"n": hint_n, "m": hint_m}))
    check(items, plan, {"n": hint_n, "m": hint_m})
    check(items, plan, {"n": n, "m": m})


def test_a_chain_reuses_its_memory() -> None:
    items = [Item(f"v{k}", const(1000), k, k + 1) for k in range(20)]
    assert evaluate(plan_memory(items, lambda e: evaluate(e, {})).nbytes[0], {}) == 2 * 1024
