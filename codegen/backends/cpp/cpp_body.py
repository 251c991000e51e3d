"""Statements of a nest as C++ over vectors of W lanes.

Every value is a vector. A value that is equal in all lanes (it does not depend on the vector axis) is known as uniform,
which turns its loads into one scalar load and its masks into a branch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hardtack.codegen.backends.cpp.cpp_spelling import (
    STORAGE,
    compute,
    expr,
    literal,
    register_type,
    rounded,
    vector_expr,
)
from hardtack.codegen.ir.expr import ONE, Expr, Sym, sym
from hardtack.codegen.ir.expr_walk import free_syms, split_linear
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import Arg, Assert, Check, Compute, Index, Load, Stmt, Store
from hardtack.codegen.ir.types import DType
from hardtack.codegen.ops import rounds


@dataclass
class Place:
    """A buffer as C++ names it: `pointer` for memory and scratch, `register` for a value kept in lanes.

    One that is both is stored and stays in a register for the nests that follow. `written`: the register holds it, the
    element at the offset `held`; None: whichever is read. summed: it has a product's sums.
    """

    dtype: DType
    pointer: str = ""
    register: str = ""
    uniform: bool = False
    written: bool = False
    held: Expr | None = None
    summed: bool = False

    def holds(self, offset: Expr) -> bool:
        """True if the register has the element at `offset` now."""
        return bool(self.register) and self.written and (self.held is None or self.held is offset)


@dataclass
class Body:
    """Writes statements into `lines`.

    vector: the axis whose points fill the lanes, None where there is none. cnt: the C++ name of the lane count (Full or
    Part). prefix keeps the values of several nests apart. unrounded: for values of half types what they were rounded
    from, which a store to memory rounds by itself; other values of theirs it takes as they are. summed: values computed
    from a product's sums. chosen: values that are one of two others.
    """

    places: Mapping[str, Place]
    types: Mapping[str, DType]
    vector: Sym | None
    prefix: str = ""
    cnt: str = "cnt"
    lines: list[str] = field(default_factory=list)
    uniform: dict[str, bool] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    lane_syms: dict[Sym, str] = field(default_factory=dict)
    scalar_syms: dict[Sym, str] = field(default_factory=dict)
    unrounded: dict[str, str] = field(default_factory=dict)
    summed: set[str] = field(default_factory=set)
    chosen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if self.vector is not None:
            self.lane_syms[self.vector] = f"ht::ramp({self.vector.name})"

    # values

    def arg(self, a: Arg) -> str:
        return literal(a) if isinstance(a, Lit) else self.names[a]

    def dtype(self, a: Arg) -> DType:
        return a.dtype if isinstance(a, Lit) else self.types[a]

    def is_uniform(self, a: Arg) -> bool:
        return isinstance(a, Lit) or self.uniform[a]

    def define(self, out: str, code: str, dtype: DType, uniform: bool) -> None:
        """A new value."""
        self.names[out] = self.prefix + out
        self.uniform[out] = uniform
        self.lines.append(f"const {register_type(dtype)} {self.names[out]} = {code};")

    # addresses

    def varies(self, e: Expr) -> bool:
        """True if e differs from lane to lane."""
        return any(s in self.lane_syms for s in free_syms(e))

    def scalar(self, e: Expr) -> str:
        return expr(e, self.scalar_syms)

    def lanes(self, e: Expr) -> str:
        """e for each lane, as a vec<int64_t>."""
        if self.vector is not None and all(s is self.vector for s in free_syms(e) if s in self.lane_syms):
            parts = split_linear(e, self.vector)
            if parts is not None:
                step = "" if parts[0] is ONE else f" * ht::bcast<int64_t>({self.scalar(parts[0])})"
                return f"(ht::bcast<int64_t>({self.scalar(e)}) + ht::iota<int64_t>(){step})"
        named = {s: f"ht::bcast<int64_t>({n})" for s, n in self.scalar_syms.items()}
        return vector_expr(e, named | self.lane_syms)

    def stride(self, e: Expr) -> Expr | None:
        """Elements from one lane to the next; None where lanes are not evenly spaced."""
        moving = [s for s in free_syms(e) if s in self.lane_syms]
        if self.vector is None or moving != [self.vector]:
            return None
        parts = split_linear(e, self.vector)
        return None if parts is None else parts[0]

    # statements

    def write(self, s: Stmt) -> None:
        """Any statement but Reduce."""
        if isinstance(s, Load):
            self._load(s)
        elif isinstance(s, Compute):
            self._compute(s)
        elif isinstance(s, Index):
            varies = self.varies(s.expr)
            code = self.lanes(s.expr) if varies else f"ht::bcast<int64_t>({self.scalar(s.expr)})"
            self.define(s.out, code, DType.I64, not varies)
        elif isinstance(s, Check):
            self._check(s)
        elif isinstance(s, Assert):
            self.lines.append(
                f"if (ht::hany(~{self.arg(s.arg)} & ht::active({self.cnt}))) ht::fail(status, HT_KERNEL_ASSERT);"
            )
        else:
            assert isinstance(s, Store)
            self._store(s)

    def _compute(self, s: Compute) -> None:
        args, types = tuple(self.arg(a) for a in s.args), tuple(self.dtype(a) for a in s.args)
        if s.op == "where" and s.dtype.is_float:
            args = tuple(f"ht::opaque({t})" if a in self.chosen else t for t, a in zip(args, s.args, strict=True))
        if s.op in ("max", "min", "where"):
            self.chosen.add(s.out)
        uniform = all(self.is_uniform(a) for a in s.args)
        narrowed = s.op == "cast" and s.dtype.is_half and types[0] is DType.F32
        if narrowed:
            code = args[0]
        elif s.op == "div" and self.is_uniform(s.args[1]) and not self.is_uniform(s.args[0]):
            code = f"ht::div_uniform({args[0]}, {args[1]})"
        else:
            code = compute(s.op, args, types, s.dtype)
        if narrowed or rounds(s.op, s.dtype):
            wide = f"{s.out}_wide"
            self.define(wide, code, DType.F32, uniform)
            self.unrounded[s.out] = self.names[wide]
            code = rounded(self.names[wide], s.dtype)
        if not self.summed.isdisjoint(a for a in s.args if isinstance(a, str)):
            self.summed.add(s.out)
            if s.op in ("max", "min") and s.dtype is DType.BF16:
                self._choose_unrounded(s, types, uniform)
        self.define(s.out, code, s.dtype, uniform)

    def _choose_unrounded(self, s: Compute, types: tuple[DType, ...], uniform: bool) -> None:
        """max or min of what its arguments were rounded from: rounding keeps order, so a store may round behind it,
        which takes a third less instructions.

        A negative sum that rounds to -0, below 2^-134, leaves max(0, x) as +0; tiles take such sums for zero, too.
        """
        if not any(a in self.unrounded for a in s.args if isinstance(a, str)):
            return
        args = tuple(self.unrounded.get(a, self.arg(a)) if isinstance(a, str) else self.arg(a) for a in s.args)
        self.define(f"{s.out}_wide", compute(s.op, args, types, s.dtype), DType.F32, uniform)
        self.unrounded[s.out] = self.names[f"{s.out}_wide"]

    def _load(self, s: Load) -> None:
        place = self.places[s.buffer]
        (offset,) = s.index
        if place.summed:
            self.summed.add(s.out)
        if place.holds(offset):
            if s.mask is None:
                self.names[s.out], self.uniform[s.out] = place.register, place.uniform
                return
            other = literal(s.other if s.other is not None else Lit(0, place.dtype))
            kept = f"ht::select({self.arg(s.mask)}, {place.register}, {other})"
            self.define(s.out, kept, place.dtype, place.uniform and self.is_uniform(s.mask))
            return
        uniform = not self.varies(offset)
        if s.mask is None:
            self.define(s.out, self._plain_load(place, offset), place.dtype, uniform)
            return
        other = literal(s.other if s.other is not None else Lit(0, place.dtype))
        mask = self.arg(s.mask)
        if not self.is_uniform(s.mask):
            code = f"ht::ld_if({place.pointer}, {self.lanes(offset)}, {mask}, {other}, {self.cnt})"
            self.define(s.out, code, place.dtype, False)
            return
        name = self.names[s.out] = self.prefix + s.out
        self.uniform[s.out] = uniform
        self.lines.append(f"{register_type(place.dtype)} {name} = {other};")
        self.lines.append(f"if ({mask}[0]) {name} = {self._plain_load(place, offset)};")

    def _plain_load(self, place: Place, offset: Expr) -> str:
        if not self.varies(offset):
            return f"ht::ld_one({place.pointer} + {self.scalar(offset)})"
        stride = self.stride(offset)
        if stride is ONE:
            return f"ht::ld({place.pointer} + {self.scalar(offset)}, {self.cnt})"
        if stride is not None:
            return f"ht::ld_strided({place.pointer} + {self.scalar(offset)}, {self.scalar(stride)}, {self.cnt})"
        return f"ht::ld_at({place.pointer}, {self.lanes(offset)}, {self.cnt})"

    def _check(self, s: Check) -> None:
        symbol = sym(s.out, extent=s.size)
        value, size = self.arg(s.arg), self.scalar(s.size)
        name = self.names[s.out] = self.prefix + s.out
        if self.is_uniform(s.arg):
            self.lines.append(f"const int64_t {name} = ht::check({value}[0], {size}, status);")
            self.scalar_syms[symbol] = name
        else:
            self.lines.append(f"const ht::vec<int64_t> {name} = ht::check({value}, {size}, status, {self.cnt});")
            self.lane_syms[symbol] = name
        self.uniform[s.out] = self.is_uniform(s.arg)

    def _store(self, s: Store) -> None:
        place = self.places[s.buffer]
        value = self.arg(s.value)
        (offset,) = s.index
        if place.register:
            self.lines.append(f"{place.register} = {value};")
            place.uniform = self.vector is None or self.is_uniform(s.value)
            place.written, place.held = True, offset
            if not place.pointer:
                return
        if s.mode != "set":
            self._update(s, place, value)
            return
        exact = self.dtype(s.value) is place.dtype is DType.BF16
        if isinstance(s.value, str) and s.value in self.unrounded:
            value, exact = self.unrounded[s.value], False
        if not self.varies(offset):
            self.lines.append(f"ht::st_one({place.pointer} + {self.scalar(offset)}, {value});")
            return
        stride = self.stride(offset)
        if stride is ONE:
            st = "st_exact" if exact else "st"
            self.lines.append(f"ht::{st}({place.pointer} + {self.scalar(offset)}, {value}, {self.cnt});")
        elif stride is not None:
            at = f"{place.pointer} + {self.scalar(offset)}, {self.scalar(stride)}"
            self.lines.append(f"ht::st_strided({at}, {value}, {self.cnt});")
        else:
            self.lines.append(f"ht::st_at({place.pointer}, {self.lanes(offset)}, {value}, {self.cnt});")

    def _update(self, s: Store, place: Place, value: str) -> None:
        (offset,) = s.index
        t = place.dtype
        if t is DType.BOOL:
            combine = {"add": "(a | b)", "mul": "(a & b)", "max": "(a | b)", "min": "(a & b)"}[s.mode]
        else:
            combine = {"add": "(a + b)", "mul": "(a * b)", "max": "ht::vmax(a, b)", "min": "ht::vmin(a, b)"}[s.mode]
        r = register_type(t)
        if self.stride(offset) is ONE:
            at = f"{place.pointer} + {self.scalar(offset)}"
            self.lines.append(f"{{ const {r} a = ht::ld({at}, {self.cnt}); const {r} b = {value};")
            self.lines.append(f"  ht::st({at}, {r}({combine}), {self.cnt}); }}")
            return
        where = self.lanes(offset) if self.varies(offset) else f"ht::bcast<int64_t>({self.scalar(offset)})"
        self.lines.append(
            f"ht::update_at({place.pointer}, {where}, {value}, {self.cnt}, "
            f"[]({r} a, {r} b) {{ return {r}({combine}); }});"
        )


def storage_type(dtype: DType) -> str:
    """The element type behind a pointer."""
    return STORAGE[dtype]
