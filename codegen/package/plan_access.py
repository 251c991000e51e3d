"""What launches access: a launch is one of the calls that its kernel declares, what a call accesses lies inside the
values, and each element of what is read, and of every output, has been written. docs/plan.md, "Calls".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.plan_calls import RawAccess, RawCall
from hardtack.codegen.package.plan_read import RawInstr, RawKernel, RawPlan
from hardtack.codegen.package.plan_reads import count_bound, needs_of
from hardtack.codegen.package.plan_written import Branching, Written, box_of

Known = Callable[[int], int | None]
Key = tuple[object, ...]
MAX_WORK = 2**24
"""Dimensions looked at: many launches may share a call of many accesses."""


def check_accesses(plan: RawPlan, nbytes: Known, constant: Known) -> None:
    """Raises LoadError as far as sizes are known (`constant` and `nbytes`: None where they are not)."""
    _Check(plan, nbytes, constant).check()


class _Check:
    def __init__(self, plan: RawPlan, nbytes: Known, constant: Known) -> None:
        self.plan, self.nbytes, self.constant, self.work = plan, nbytes, constant, 0
        self.calls = [self._calls(n, kernel) for n, kernel in enumerate(plan.kernels)]
        self.needs, self.known_syms = needs_of(plan), count_bound(plan)
        given = {n for n, v in enumerate(plan.values) if v.storage in ("input", "constant", "state")}
        self.written = Written(Branching(given | {n for n in range(len(plan.values)) if nbytes(n) in (0, None)}))

    def check(self) -> None:
        self._body(self.plan.body)
        for v in self.plan.outputs:
            if v not in self.written.whole.members:
                raise LoadError(f"output {self.plan.values[v].name!r} is not written as a whole", self.plan.where)

    def _calls(self, number: int, kernel: RawKernel) -> dict[Key, RawCall]:
        """By what a launch passes."""
        calls: dict[Key, RawCall] = {}
        for n, call in enumerate(kernel.calls):
            path = f"kernels[{number}].calls[{n}]"
            for buffer, ((_, access), boxes) in enumerate(zip(kernel.buffers, call.accesses, strict=True)):
                if access == "read" and any(box.fills for box in boxes):
                    problem = f"buffer {buffer} is filled, but its parameter is only read"
                    raise LoadError(f"{path}: {problem}", self.plan.where)
            if calls.setdefault(self._key(call.given(), call.grid), call) is not call:
                raise LoadError(f"{path} has the {_passed(call.grid)} of an earlier call", self.plan.where)
        return calls

    def _key(self, given: Iterable[int], grid: tuple[int, ...]) -> Key:
        """Equal for launches that pass the same: numbers by value, all else by their expression."""
        numbers = ((e, self.constant(e)) for e in given)
        return (bool(grid), *((None, n) if n is not None else (e, None) for e, n in numbers))

    def _body(self, body: Iterable[RawInstr]) -> None:
        for i in body:
            if i.op == "launch":
                self._launch(i)
            elif i.op == "copy":
                self._read(i, i.src)
                self.written.whole.add(i.dst)
            elif i.op == "fill":
                self.written.whole.add(i.dst)
            elif i.op == "read":
                self._read(i, i.src)
                self.known_syms += 1
            elif i.op == "if":
                self._read(i, i.cond)
                for v in self._branch(i.body) & self._branch(i.orelse):
                    self.written.whole.add(v)
            else:
                self._body(i.cond_body)
                self._read(i, i.cond)
                self._branch(i.body)

    def _branch(self, body: Iterable[RawInstr]) -> set[int]:
        """What becomes whole in it."""
        entered = self.written.enter()
        self._body(body)
        return self.written.leave(entered)

    def _read(self, i: RawInstr, v: int) -> None:
        if v not in self.written.whole.members:
            name = self.plan.values[v].name
            raise LoadError(f"{i.path}: value {name!r} is read before all of it is written", self.plan.where)

    def _launch(self, i: RawInstr) -> None:
        kernel = self.plan.kernels[i.kernel]
        passed = (*i.ints, *(i.grid or (i.shared, i.per_worker)))
        call = self.calls[i.kernel].get(self._key(passed, i.grid))
        if call is None:
            problem = f"kernel {kernel.name!r} declares no call with these {_passed(i.grid)}"
            raise LoadError(f"{i.path}: {problem}", self.plan.where)
        for v, (_, access) in zip(i.buffers, kernel.buffers, strict=True):
            if access != "write":
                self._read(i, v)
        idle = 0 in [self.constant(e) for e in i.grid]
        for n, v in enumerate(i.buffers):
            self._buffer(i, call, n, v, idle)

    def _buffer(self, i: RawInstr, call: RawCall, n: int, v: int, idle: bool) -> None:
        nbytes, value = self.nbytes(v), self.plan.values[v]
        for access in call.accesses[n]:
            if max(self.needs[e] for e in (access.offset, *access.shape, *access.strides)) > self.known_syms:
                name = self.plan.kernels[i.kernel].name
                raise LoadError(
                    f"{i.path}: an access of kernel {name!r} depends on a symbol before it is read", self.plan.where
                )
            self.work += 1 + len(access.shape)
            if self.work + self.written.work > MAX_WORK:
                name = self.plan.kernels[i.kernel].name
                raise LoadError(f"{i.path}: the accesses of kernel {name!r} are too many to be proved", self.plan.where)
            known = self._numbers(access)
            if known is None or nbytes is None:
                if access.fills:
                    self.written.whole.add(v)  # proved when a session binds a shape
                continue
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
                self.written.add(v, nbytes // value.dtype.nbytes, box_of(offset, shape, strides))

    def _numbers(self, a: RawAccess) -> tuple[int, list[int], list[int]] | None:
        offset = self.constant(a.offset)
        shape, strides = ([n for e in x if (n := self.constant(e)) is not None] for x in (a.shape, a.strides))
        if offset is None or len(shape) != len(a.shape) or len(strides) != len(a.strides):
            return None
        return offset, shape, strides


def _passed(grid: tuple[int, ...]) -> str:
    return "ints and grid" if grid else "ints and workspaces"
