"""Which elements of a plan's values are written, on the path that a proof walks (docs/plan.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MAX_PARTS = 64
"""Parts of a value that are kept apart; a value in more pieces than that counts as not written."""


@dataclass(frozen=True, slots=True)
class Box:
    """The elements offset + sum(i * stride), i below each size: sizes above 1, strides positive, largest first."""

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def covers(self, numel: int) -> bool:
        """Whether these are the elements from 0 to `numel`."""
        return self.offset == 0 and (self.sizes, self.strides) == (((), ()) if numel == 1 else ((numel,), (1,)))


def box_of(offset: int, shape: Sequence[int], strides: Sequence[int]) -> Box:
    """The box of these dimensions in any order, with any strides, none of them empty."""
    offset += sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if stride < 0)
    reaches: dict[int, int] = {}  # stride -> its size less 1: together, two of one stride reach every multiple of it
    for size, stride in zip(shape, strides, strict=True):
        if size > 1 and stride != 0:
            reaches[abs(stride)] = reaches.get(abs(stride), 0) + size - 1
    joined: list[tuple[int, int]] = []
    for stride in sorted(reaches, reverse=True):
        size = reaches[stride] + 1
        if joined and joined[-1][1] == size * stride:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return Box(offset, tuple(size for size, _ in joined), tuple(stride for _, stride in joined))


def union_of(a: Box, b: Box) -> Box | None:
    """The elements of both, where they are a box: the same, or one goes on in one dimension where the other ends."""
    if b.offset < a.offset:
        a, b = b, a
    if a.offset == b.offset:
        return a if a == b else None
    joint = _joint(a, b)
    if joint is None:
        return None
    rest = [(n, s) for n, s in zip(a.sizes, a.strides, strict=True) if s != joint[1]] + [joint]
    return box_of(a.offset, *zip(*rest, strict=True))


def _joint(a: Box, b: Box) -> tuple[int, int] | None:
    """The dimension in which `b` goes on where `a` ends: its size in both of them, and its stride."""
    distance = b.offset - a.offset
    if len(a.sizes) == len(b.sizes):
        return _joint_of_same_rank(a, b, distance)
    short, long = (a, b) if len(a.sizes) < len(b.sizes) else (b, a)
    if len(short.sizes) + 1 != len(long.sizes):
        return None
    pairs = enumerate(zip(short.strides, long.strides, strict=False))
    d = next((d for d, (x, y) in pairs if x != y), len(short.strides))
    same = _without(long.strides, d) == short.strides and _without(long.sizes, d) == short.sizes
    first = 1 if a is short else a.sizes[d]  # the short one is one element long there
    return (long.sizes[d] + 1, long.strides[d]) if same and distance == first * long.strides[d] else None


def _joint_of_same_rank(a: Box, b: Box, distance: int) -> tuple[int, int] | None:
    if a.strides != b.strides:
        return None
    dims = range(len(a.sizes))
    if a.sizes != b.sizes:
        dims_apart = [d for d in dims if a.sizes[d] != b.sizes[d]]
        if len(dims_apart) > 1:
            return None
        dims = range(dims_apart[0], dims_apart[0] + 1)
    for d in dims:
        if a.sizes[d] * a.strides[d] == distance:
            return a.sizes[d] + b.sizes[d], a.strides[d]
    return (2, 1) if distance == 1 and a.sizes == b.sizes and 1 not in a.strides else None


def _without(numbers: tuple[int, ...], d: int) -> tuple[int, ...]:
    return numbers[:d] + numbers[d + 1 :]


@dataclass
class Branching:
    """A set of values; what is added in a branch is in it until the branch ends."""

    members: set[int]
    added: list[int] = field(default_factory=list)

    def add(self, v: int) -> None:
        if v not in self.members:
            self.members.add(v)
            self.added.append(v)

    def enter(self) -> int:
        """Begins a branch. Branches nest."""
        return len(self.added)

    def leave(self, entered: int) -> set[int]:
        """Ends the branch; what had been added in it."""
        gone = set(self.added[entered:])
        self.members -= gone
        del self.added[entered:]
        return gone


@dataclass
class Written:
    """Which values are whole, and the parts of the others. In a branch what changes is noted, to be undone.

    work: dimensions that were compared.
    """

    whole: Branching
    parts: dict[int, list[Box]] = field(default_factory=dict)
    work: int = 0
    depth: int = 0
    noted: list[tuple[int, int, Box | None]] = field(default_factory=list)
    """Value, number of a part, and the part if it was removed, None if it was added."""

    def add(self, v: int, numel: int, box: Box) -> None:
        """Another part of a value of `numel` elements."""
        if v in self.whole.members:
            return
        parts = self.parts.setdefault(v, [])
        n = 0
        while n < len(parts) and not box.covers(numel):
            self.work += 1 + len(box.sizes)
            both = union_of(parts[n], box)
            n += 1
            if both is not None:
                self._note(v, n - 1, parts.pop(n - 1))
                box, n = both, 0
        if box.covers(numel):
            self.whole.add(v)
        elif len(parts) < MAX_PARTS:
            parts.append(box)
            self._note(v, len(parts) - 1, None)

    def enter(self) -> tuple[int, int]:
        """Begins a branch. Branches nest."""
        self.depth += 1
        return self.whole.enter(), len(self.noted)

    def leave(self, entered: tuple[int, int]) -> set[int]:
        """Back to how it was before the branch; the values that had become whole in it."""
        while len(self.noted) > entered[1]:
            v, n, part = self.noted.pop()
            if part is None:
                self.parts[v].pop()
            else:
                self.parts[v].insert(n, part)
        self.depth -= 1
        return self.whole.leave(entered[0])

    def _note(self, v: int, n: int, part: Box | None) -> None:
        if self.depth:
            self.noted.append((v, n, part))
