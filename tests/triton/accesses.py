"""What a launch in Triton's interpreter does to memory, checked: the interpreter itself follows any address, runs one
program after the other, and a program's threads in step.

An access must lie inside one of the launch's buffers. Of accesses to one byte of which at least one is a store, and not
all are updates (atomic), there may be
- by two programs: none, but for stores of one statement, of which one wins;
- by one program: those with a barrier in between. A store behind a load of the same lane needs none.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.triton.interpreter import interpreter

Numbers = npt.NDArray[np.int64]
NOBODY, MANY = -1, -2


class BadAccess(Exception):
    """A kernel reads or writes outside its buffers, or races with itself."""


@dataclass
class _Last:
    """The last access of a kind, by byte: its program, the number of barriers before it, its statement and lane."""

    nbytes: int

    def __post_init__(self) -> None:
        self.program, self.epoch, self.line, self.lane = (np.full(self.nbytes, NOBODY, np.int64) for _ in range(4))

    def note(self, at: Numbers, program: int, epoch: int, line: int, lane: Numbers) -> None:
        """One access more; a byte may have MANY programs, and MANY lanes between two barriers."""
        others = (self.program[at] != NOBODY) & (self.program[at] != program)
        again = (self.program[at] == program) & (self.epoch[at] == epoch) & (self.lane[at] != lane)
        self.lane[at] = np.where(again, MANY, lane)
        self.program[at] = np.where(others, MANY, program)
        self.epoch[at], self.line[at] = epoch, line


@dataclass
class Accesses:
    """Of one launch. ranges: (first address, nbytes) of each of its buffers; those that overlap count as one. written:
    an address and, by byte from there on, whether it was written before: what was not must not be loaded."""

    ranges: Sequence[tuple[int, int]]
    written: tuple[int, npt.NDArray[np.uint8]] | None = None
    program: int = 0
    epoch: int = 0
    found: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        joined: list[list[int]] = []
        for start, nbytes in sorted(r for r in self.ranges if r[1] > 0):
            if joined and start < joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], start + nbytes)
            else:
                joined.append([start, start + nbytes])
        self.starts = np.array([s for s, _ in joined], np.int64)
        self.ends = np.array([e for _, e in joined], np.int64)
        self.before = np.concatenate(([0], np.cumsum(self.ends - self.starts))).astype(np.int64)
        nbytes = int(self.before[-1])
        self.loads, self.stores, self.atomics = _Last(nbytes), _Last(nbytes), _Last(nbytes)

    def begin(self, program: int) -> None:
        """The accesses of this program follow."""
        self.program = program
        self.barrier()

    def barrier(self) -> None:
        self.epoch += 1

    def access(self, kind: str, pointers: Any, mask: Any, itemsize: int) -> None:
        """kind: "load", "store" or "update". Raises BadAccess for an address outside."""
        addresses, inside = np.broadcast_arrays(np.asarray(pointers), np.asarray(mask, bool))
        lanes = np.flatnonzero(inside.reshape(-1))
        if not len(lanes):
            return
        active = addresses.reshape(-1)[lanes].astype(np.int64)
        at = self._bytes(kind, active, itemsize)
        self._known(kind, active, itemsize)
        line, lane = _line(), np.repeat(lanes, itemsize)
        if kind == "load":
            self._refuse("loads what another program stores", self._others(self.stores, at))
            self._refuse("loads what another program updates", self._others(self.atomics, at))
            self._refuse("loads what was stored without a barrier", self._unordered(self.stores, at))
            self._refuse("loads what was updated without a barrier", self._unordered(self.atomics, at))
            self.loads.note(at, self.program, self.epoch, line, lane)
        else:
            mine = self.stores if kind == "store" else self.atomics
            rest = self.atomics if kind == "store" else self.stores
            self._refuse(f"{kind}s over what another program loads", self._others(self.loads, at))
            self._refuse(f"{kind}s over what another program writes otherwise", self._others(rest, at))
            self._refuse(f"{kind}s over another write without a barrier", self._unordered(rest, at))
            late = self._unordered(self.loads, at) & (self.loads.lane[at] != lane)
            self._refuse(f"{kind}s over what was loaded without a barrier", late)
            if kind == "store":
                other = self.stores.line[at] != line
                self._refuse("stores over another statement of another program", self._others(mine, at) & other)
                self._refuse("stores over another statement without a barrier", self._unordered(mine, at) & other)
            mine.note(at, self.program, self.epoch, line, lane)

    def _bytes(self, kind: str, addresses: Numbers, itemsize: int) -> Numbers:
        """The bytes at these addresses, numbered across all buffers."""
        which = np.searchsorted(self.starts, addresses, "right") - 1
        safe = np.maximum(which, 0)
        out = (which < 0) | (addresses + itemsize > self.ends[safe]) if len(self.starts) else np.ones(len(which), bool)
        if out.any():
            first = int(addresses[out][0])
            near = "".join(f", {first - s:+d} from one of {e - s} bytes" for s, e in self._nearest(first))
            raise BadAccess(f"line {_line()}: a {kind} outside all buffers{near}, program {self.program}")
        first_bytes = self.before[safe] + addresses - self.starts[safe]
        return (first_bytes[:, None] + np.arange(itemsize)).reshape(-1)

    def _known(self, kind: str, addresses: Numbers, itemsize: int) -> None:
        """Looks up what was written, and notes what is."""
        if self.written is None:
            return
        start, known = self.written
        places = (addresses[:, None] + np.arange(itemsize)).reshape(-1) - start
        places = places[(places >= 0) & (places < len(known))]
        if kind != "store":
            self._refuse(f"{kind}s what was never written", known[places] == 0)
        known[places] = 1

    def _nearest(self, address: int) -> list[tuple[int, int]]:
        """The buffer nearest to the address; nothing where none is within 64 KiB."""
        found = [(int(s), int(e)) for s, e in zip(self.starts, self.ends, strict=True)]
        by_distance = sorted((max(s - address, address - e), s, e) for s, e in found)
        return [(s, e) for distance, s, e in by_distance[:1] if distance <= 65536]

    def _others(self, last: _Last, at: Numbers) -> npt.NDArray[np.bool_]:
        return (last.program[at] != NOBODY) & (last.program[at] != self.program)

    def _unordered(self, last: _Last, at: Numbers) -> npt.NDArray[np.bool_]:
        return (last.program[at] == self.program) & (last.epoch[at] == self.epoch)

    def _refuse(self, what: str, where: npt.NDArray[np.bool_]) -> None:
        if where.any():
            text = f"line {_line()} {what}"
            if text not in self.found:
                self.found.append(text)


_current: list[Accesses] = []


class checked:
    """Accesses of launches in this block are checked; BadAccess at its end where they race."""

    def __init__(
        self, ranges: Sequence[tuple[int, int]], written: tuple[int, npt.NDArray[np.uint8]] | None = None
    ) -> None:
        self.accesses = Accesses(ranges, written)

    def __enter__(self) -> Accesses:
        _current.append(self.accesses)
        return self.accesses

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _current.pop()
        if error is None and self.accesses.found:
            raise BadAccess("; ".join(self.accesses.found))


def _line() -> int:
    """The line of the kernel that is being run; 0 where none is."""
    frame = sys._getframe(1)
    while not os.path.basename(frame.f_code.co_filename).startswith("kernel_"):
        if frame.f_back is None:
            return 0
        frame = frame.f_back
    return frame.f_lineno


def _watch() -> None:
    """Makes the interpreter tell what it does."""
    builder = interpreter.InterpreterBuilder

    def before(name: str, tell: Any) -> None:
        original = getattr(builder, name)

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if _current:
                tell(_current[-1], *args, **kwargs)
            return original(self, *args, **kwargs)

        setattr(builder, name, call)

    def itemsize(pointers: Any) -> int:
        return int(interpreter._get_np_dtype(pointers.get_element_ty()).itemsize)

    def load(a: Accesses, pointers: Any, mask: Any, *rest: Any, **named: Any) -> None:
        a.access("load", pointers.data, mask.data, itemsize(pointers))

    def store(a: Accesses, pointers: Any, value: Any, mask: Any, *rest: Any) -> None:
        a.access("store", pointers.data, mask.data, itemsize(pointers))

    def update(a: Accesses, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> None:
        a.access("update", pointers.data, mask.data, itemsize(pointers))

    def exchange(a: Accesses, pointers: Any, *rest: Any) -> None:
        a.access("update", pointers.data, True, itemsize(pointers))

    def program(a: Accesses, x: int, y: int, z: int) -> None:
        nx, ny, _ = interpreter.interpreter_builder.grid_dim
        a.begin(x + nx * (y + ny * z))

    before("create_masked_load", load)
    before("create_masked_store", store)
    before("create_atomic_rmw", update)
    before("create_atomic_cas", exchange)
    before("create_barrier", lambda a: a.barrier())
    before("set_grid_idx", program)


_watch()
