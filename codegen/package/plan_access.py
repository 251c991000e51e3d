"""What launches access: a launch is one of the calls that its kernel declares, what a call accesses lies inside the
values, and each element of what is read, and of every output, has been written. docs/plan.md, "Calls".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.plan_calls import RawAccess, RawCall
from hardtack.codegen.package.plan_read import RawInstr, RawPlan

Known = Callable[[int], int | None]
MAX_WORK = 2**24
"""Dimensions looked at: many launches may share a call of many accesses."""
MAX_PARTS = 64
"""Parts of a value that are kept apart; a value in more pieces than that counts as not written."""


@dataclass(frozen=True)
class Box:
    """The elements offset + sum(i * stride), i below each size: sizes above 1, strides descending and positive."""

    offset: int
    dims: tuple[tuple[int, int], ...]


def box_of(offset: int, shape: Iterable[int], strides: Iterable[int]) -> Box:
    """Without dimensions that say nothing, and with those joined that continue each other."""
    dims: list[tuple[int, int]] = []
    for size, stride in sorted(zip(shape, strides, strict=True), key=lambda d: -abs(d[1])):
        if size == 1 or stride == 0:
            continue
        if stride < 0:
            offset += (size - 1) * stride
        dims.append((size, abs(stride)))
    joined: list[tuple[int, int]] = []
    for size, stride in dims:
        if joined and joined[-1][1] == size * stride:
            joined[-1] = (joined[-1][0] * size, stride)
        else:
            joined.append((size, stride))
    return Box(offset, tuple(joined))


def union_of(a: Box, b: Box) -> Box | None:
    """The elements of both, where they are a box: one goes on in one dimension where the other ends."""
    if b.offset < a.offset:
        a, b = b, a
    distance = b.offset - a.offset
    if distance == 0:
        return a if a == b else None
    for step in dict.fromkeys((*(s for _, s in (*a.dims, *b.dims)), 1)):
        rest = tuple(d for d in a.dims if d[1] != step)
        if rest != tuple(d for d in b.dims if d[1] != step):
            continue
        first, second = (next((n for n, s in x.dims if s == step), 1) for x in (a, b))
        if distance == first * step:
            return box_of(a.offset, [*(n for n, _ in rest), first + second], [*(s for _, s in rest), step])
    return None


@dataclass
class Written:
    """On one path: which values are whole, and the parts of the others."""

    whole: set[int]
    parts: dict[int, list[Box]]

    def copy(self) -> Written:
        return Written(set(self.whole), {v: list(parts) for v, parts in self.parts.items()})

    def add(self, v: int, numel: int, box: Box) -> None:
        parts = self.parts.setdefault(v, [])
        while (found := next(((p, u) for p in parts if (u := union_of(p, box))), None)) is not None:
            parts.remove(found[0])
            box = found[1]
        if box == box_of(0, [numel], [1]):
            self.whole.add(v)
        if len(parts) < MAX_PARTS:
            parts.append(box)


def check_accesses(plan: RawPlan, nbytes: Known, constant: Known) -> None:
    """Raises LoadError as far as sizes are known (`constant` and `nbytes`: None where they are not)."""
    _Check(plan, nbytes, constant).check()


class _Check:
    def __init__(self, plan: RawPlan, nbytes: Known, constant: Known) -> None:
        self.plan, self.nbytes, self.constant, self.work = plan, nbytes, constant, 0
        self.calls = [{self._key(c.given(), c.grid): c for c in k.calls} for k in plan.kernels]

    def check(self) -> None:
        given = {n for n, v in enumerate(self.plan.values) if v.storage in ("input", "constant", "state")}
        given |= {n for n in range(len(self.plan.values)) if self.nbytes(n) in (0, None)}
        written = Written(given, {})
        self._body(self.plan.body, written)
        for v in self.plan.outputs:
            if v not in written.whole:
                raise LoadError(f"output {self.plan.values[v].name!r} is not written as a whole", self.plan.where)

    def _key(self, given: Iterable[int], grid: tuple[int, ...]) -> tuple[object, ...]:
        """Equal for launches that pass the same: numbers by value, all else by their expression."""
        numbers = ((e, self.constant(e)) for e in given)
        return (bool(grid), *((None, n) if n is not None else (e, None) for e, n in numbers))

    def _body(self, body: Iterable[RawInstr], written: Written) -> None:
        for i in body:
            if i.op == "launch":
                self._launch(i, written)
            elif i.op == "copy":
                self._read(i, i.src, written)
                written.whole.add(i.dst)
            elif i.op == "fill":
                written.whole.add(i.dst)
            elif i.op == "if":
                self._read(i, i.cond, written)
                then, orelse = written.copy(), written.copy()
                self._body(i.body, then)
                self._body(i.orelse, orelse)
                written.whole |= then.whole & orelse.whole
            else:
                self._body(i.cond_body, written)
                self._read(i, i.cond, written)
                self._body(i.body, written.copy())

    def _read(self, i: RawInstr, v: int, written: Written) -> None:
        if v not in written.whole:
            name = self.plan.values[v].name
            raise LoadError(f"{i.path}: value {name!r} is read before all of it is written", self.plan.where)

    def _launch(self, i: RawInstr, written: Written) -> None:
        kernel = self.plan.kernels[i.kernel]
        passed = (*i.ints, *(i.grid or (i.shared, i.per_worker)))
        call = self.calls[i.kernel].get(self._key(passed, i.grid))
        if call is None:
            what = "ints and grid" if i.grid else "ints and workspaces"
            raise LoadError(f"{i.path}: kernel {kernel.name!r} declares no call with these {what}", self.plan.where)
        for v, (_, access) in zip(i.buffers, kernel.buffers, strict=True):
            if access != "write":
                self._read(i, v, written)
        idle = 0 in [self.constant(e) for e in i.grid]
        for n, v in enumerate(i.buffers):
            self._buffer(i, call, n, v, idle, written)

    def _buffer(self, i: RawInstr, call: RawCall, n: int, v: int, idle: bool, written: Written) -> None:
        nbytes, value = self.nbytes(v), self.plan.values[v]
        for access in call.accesses[n]:
            if access.fills and self.plan.kernels[i.kernel].buffers[n][1] == "read":
                raise LoadError(f"{i.path}: buffer {n} is filled, but its parameter is only read", self.plan.where)
            known = self._numbers(access)
            if known is None or nbytes is None:
                if access.fills:
                    written.whole.add(v)  # proved when a session binds a shape
                continue
            self.work += (1 + len(written.parts.get(v, ()))) * (1 + len(access.shape))
            if self.work > MAX_WORK:
                name = self.plan.kernels[i.kernel].name
                raise LoadError(f"{i.path}: the accesses of kernel {name!r} are too many to be proved", self.plan.where)
            offset, shape, strides = known
            if min(shape, default=1) < 0:
                raise LoadError(f"{i.path}: an access of buffer {n} has the size {min(shape)}", self.plan.where)
            if 0 in shape:
                continue
            reaches = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
            first, last = offset + sum(min(r, 0) for r in reaches), offset + sum(max(r, 0) for r in reaches)
            if first < 0 or (last + 1) * value.dtype.nbytes > nbytes:
                problem = f"accesses elements {first} to {last} of value {value.name!r}, which has {nbytes} bytes"
                raise LoadError(f"{i.path}: kernel {self.plan.kernels[i.kernel].name!r} {problem}", self.plan.where)
            if access.fills and not idle:
                written.add(v, nbytes // value.dtype.nbytes, box_of(offset, shape, strides))

    def _numbers(self, a: RawAccess) -> tuple[int, list[int], list[int]] | None:
        offset = self.constant(a.offset)
        shape, strides = ([n for e in x if (n := self.constant(e)) is not None] for x in (a.shape, a.strides))
        if offset is None or len(shape) != len(a.shape) or len(strides) != len(a.strides):
            return None
        return offset, shape, strides
