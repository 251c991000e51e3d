"""The calls that a kernel declares: what it may be launched with, and what it then accesses (docs/plan.md, "Calls")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hardtack.codegen.package.canonical import Fields, kind_of
from hardtack.codegen.package.errors import LoadError

MAX_RANK = 64
CheckExpr = Callable[[object, str], int]
"""(item, its path) -> the number of an expression. Raises LoadError."""


@dataclass(frozen=True)
class RawAccess:
    """A box of a buffer's elements, all of which are written (`fills`), or outside of which nothing is touched."""

    fills: bool
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class RawCall:
    """What a kernel may be launched with, fields as in RawInstr, and what it accesses of each buffer."""

    ints: tuple[int, ...]
    shared: int
    per_worker: int
    grid: tuple[int, ...]
    accesses: tuple[tuple[RawAccess, ...], ...]

    def given(self) -> tuple[int, ...]:
        """All that a launch must have the same: ints, then workspaces or grid."""
        return (*self.ints, *(self.grid or (self.shared, self.per_worker)))


def read_call(f: Fields, expr: CheckExpr, num_buffers: int, num_ints: int) -> RawCall:
    """A call of a kernel with so many parameters. Raises LoadError."""

    def one(key: str) -> int:
        return expr(f.raw(key), f"{f.path}.{key}")

    def each(key: str) -> tuple[int, ...]:
        return tuple(expr(e, f"{f.path}.{key}[{n}]") for n, e in enumerate(f.items(key)))

    on_gpu = f.has("grid")
    call = RawCall(
        each("ints"),
        -1 if on_gpu else one("shared"),
        -1 if on_gpu else one("per_worker"),
        each("grid") if on_gpu else (),
        tuple(_accesses(f, n, a, expr) for n, a in enumerate(f.items("accesses"))),
    )
    f.done()
    if len(call.ints) != num_ints or len(call.accesses) != num_buffers:
        f.refuse(f"has {len(call.ints)} ints and {len(call.accesses)} buffers, its kernel {num_ints}, {num_buffers}")
    if on_gpu and len(call.grid) != 3:
        f.refuse(f"has {len(call.grid)} extents, not 3", "grid")
    return call


def _accesses(f: Fields, buffer: int, value: object, expr: CheckExpr) -> tuple[RawAccess, ...]:
    path = f"{f.path}.accesses[{buffer}]"
    if not isinstance(value, list):
        raise LoadError(f"{path} is {kind_of(value)}; it must be a list", f.where)
    return tuple(_access(f.where, f"{path}[{n}]", item, expr) for n, item in enumerate(value))


def _access(where: str, path: str, value: object, expr: CheckExpr) -> RawAccess:
    if not isinstance(value, list) or len(value) != 4 or value[0] not in ("fill", "touch"):
        raise LoadError(f"{path} is not [fill or touch, offset, shape, strides]", where)
    if not isinstance(value[2], list) or not isinstance(value[3], list) or len(value[2]) != len(value[3]):
        raise LoadError(f"{path} has no shape with as many strides", where)
    if len(value[2]) > MAX_RANK:
        raise LoadError(f"{path} has {len(value[2])} dimensions; at most {MAX_RANK} are known", where)
    shape, strides = (tuple(expr(e, path) for e in x) for x in value[2:])
    return RawAccess(value[0] == "fill", expr(value[1], path), shape, strides)
