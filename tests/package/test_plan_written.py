"""Boxes of elements, and what is alive in which place, against sets of numbers."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from hardtack.codegen.package.plan_flow import _Places
from hardtack.codegen.package.plan_written import MAX_PARTS, Box, Branching, Written, box_of, union_of

DIMS = st.lists(st.tuples(st.integers(1, 4), st.integers(-6, 12)), max_size=4)


def elements(offset: int, dims: list[tuple[int, int]]) -> set[int]:
    points = itertools.product(*(range(size) for size, _ in dims))
    return {offset + sum(i * stride for i, (_, stride) in zip(point, dims, strict=True)) for point in points}


def inside(box: Box) -> set[int]:
    return elements(box.offset, list(zip(box.sizes, box.strides, strict=True)))


def boxed(offset: int, dims: list[tuple[int, int]]) -> Box:
    return box_of(offset, [size for size, _ in dims], [stride for _, stride in dims])


@given(st.integers(0, 20), DIMS)
def test_a_box_has_the_elements_of_its_dimensions(offset: int, dims: list[tuple[int, int]]) -> None:
    box = boxed(offset, dims)
    assert inside(box) == elements(offset, dims)
    assert all(size > 1 for size in box.sizes)
    assert list(box.strides) == sorted(set(box.strides), reverse=True)
    assert all(stride > 0 for stride in box.strides)


@given(st.integers(0, 20), DIMS, st.integers(0, 20), DIMS)
def test_a_union_has_the_elements_of_both(a: int, x: list[tuple[int, int]], b: int, y: list[tuple[int, int]]) -> None:
    one, other = boxed(a, x), boxed(b, y)
    both = union_of(one, other)
    assert both == union_of(other, one)
    if both is not None:
        assert inside(both) == inside(one) | inside(other)


APART = st.lists(st.tuples(st.integers(2, 4), st.sampled_from([90, 400, 1700])), max_size=3, unique_by=lambda d: d[1])


@given(APART, st.integers(0, 3), st.integers(1, 3), st.integers(1, 12))
def test_what_is_cut_in_two_is_put_together(dims: list[tuple[int, int]], at: int, size: int, stride: int) -> None:
    def cut(n: int) -> list[tuple[int, int]]:
        return [*dims[:at], (n, stride), *dims[at:]]

    assert union_of(boxed(0, cut(size)), boxed(size * stride, cut(2))) == boxed(0, cut(size + 2))


@given(st.lists(st.tuples(st.integers(0, 8), DIMS), max_size=6), st.integers(1, 12))
def test_what_counts_as_whole_is_whole(parts: list[tuple[int, list[tuple[int, int]]]], numel: int) -> None:
    written, found = Written(Branching(set())), set()
    for offset, dims in parts:
        box = boxed(offset, dims)
        if min(inside(box)) >= 0 and max(inside(box)) < numel:
            written.add(0, numel, box)
            found |= inside(box)
    if 0 in written.whole.members:
        assert found == set(range(numel))


@given(st.permutations(range(7)), st.integers(1, 4), st.integers(1, 3))
def test_the_pieces_of_a_concatenation_are_whole_in_any_order(order: list[int], rows: int, width: int) -> None:
    written = Written(Branching(set()))
    for k in order:
        assert 0 not in written.whole.members
        written.add(0, rows * 7 * width, boxed(k * width, [(rows, 7 * width), (width, 1)]))
    assert 0 in written.whole.members


def test_a_value_is_whole_when_its_parts_are_all_there() -> None:
    written = Written(Branching(set()))
    for n in range(MAX_PARTS):
        written.add(0, 2 * MAX_PARTS + 1, Box(2 * n, (), ()))
    written.add(0, 2 * MAX_PARTS + 1, Box(2 * MAX_PARTS, (), ()))  # one part too many is forgotten
    for n in range(MAX_PARTS):
        written.add(0, 2 * MAX_PARTS + 1, Box(2 * n + 1, (), ()))
    assert 0 not in written.whole.members
    assert written.parts[0] == [Box(0, (2 * MAX_PARTS,), (1,))]
    written.add(0, 2 * MAX_PARTS + 1, Box(2 * MAX_PARTS, (), ()))
    assert 0 in written.whole.members
    work, parts = written.work, list(written.parts[0])
    written.add(0, 2 * MAX_PARTS + 1, Box(3, (), ()))
    assert (written.work, written.parts[0]) == (work, parts)


@given(st.lists(st.one_of(st.integers(0, 7), st.sampled_from(["in", "out"])), max_size=40))
def test_a_branch_is_undone(steps: list[int | str]) -> None:
    """Single elements are written; a copy of everything is what it was before."""
    written = Written(Branching(set()))
    entered: list[tuple[tuple[int, int], dict[int, list[Box]], set[int]]] = []
    for step in steps:
        if step == "in":
            before = {v: list(parts) for v, parts in written.parts.items()}
            entered.append((written.enter(), before, set(written.whole.members)))
        elif isinstance(step, int):
            written.add(step % 2, 4, Box(step // 2, (), ()))
        elif entered:
            mark, parts, whole = entered.pop()
            became = written.whole.members - whole
            assert written.leave(mark) == became
            assert written.whole.members == whole
            assert {v: p for v, p in written.parts.items() if p} == {v: p for v, p in parts.items() if p}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=60))
def test_places_find_neighbours(steps: list[tuple[bool, int]]) -> None:
    places, held = _Places(5001), set()
    for put, n in steps:
        if put != (n in held):
            places.flip(n)
            held ^= {n}
        near = [max((m for m in held if m < n), default=None), min((m for m in held if m > n), default=None)]
        assert places.neighbours(n) == [m for m in near if m is not None]
