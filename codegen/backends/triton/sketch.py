"""A template kernel while it is put together: its text with holes, its parameters, its epilogue.

A template file has two kinds of holes: `$name` inside a line is replaced by a text, a line that is only `$name` by
lines of the same indentation. A hole without a value is a bug.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import gcd
from pathlib import Path

from hardtack.codegen.backend import NAME
from hardtack.codegen.backends.triton.kernel import Argument, TritonKernel
from hardtack.codegen.backends.triton.triton_body import Body, Coordinate, Place, Tile
from hardtack.codegen.backends.triton.triton_spelling import FLOAT8_TYPES, pointer_type, rounded, symbol
from hardtack.codegen.ir.expr import Add, Const, Expr, Mul, const, int_value
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.loops import Buffer, Load, LoopNest, dtypes, exprs_of, out_of
from hardtack.codegen.ir.plan import MapSource
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import HALF, DType

FOLDER = Path(__file__).resolve().parents[2] / "templates" / "triton"
NARROW = 2**31


@cache
def read(name: str) -> str:
    """The text of a template file."""
    return (FOLDER / f"{name}.triton").read_text(encoding="utf-8")


def fill(text: str, holes: Mapping[str, str | Sequence[str]]) -> str:
    """The text with its holes filled; see the module's docstring."""
    out: list[str] = []
    for line in text.splitlines():
        alone = re.fullmatch(r"( *)\$(\w+)", line)
        if alone is not None and not isinstance(holes[alone[2]], str):
            out += [f"{alone[1]}{inner}" for inner in holes[alone[2]]]
            continue
        out.append(re.sub(r"\$(\w+)", lambda found: _inline(holes, found[1]), line))
    return "\n".join(out) + "\n"


def _inline(holes: Mapping[str, str | Sequence[str]], name: str) -> str:
    value = holes[name]
    assert isinstance(value, str), f"{name} stands inside a line"
    return value


def divisor(e: Expr) -> int:
    """A number up to 16 that divides e whatever its symbols are."""
    if isinstance(e, Const):
        return gcd(e.value, 16)
    if isinstance(e, Add):
        return gcd(*(divisor(t) for t in e.terms), 16)
    if isinstance(e, Mul):
        total = 1
        for f in e.factors:
            total *= divisor(f)
        return gcd(total, 16)
    return 1


def _half_name(buffer: str, half: int) -> str:
    return f"{buffer} {half}"


@dataclass
class Sketch:
    """See the module's docstring. `ints`: parameter name -> (Expr, type). started: accumulators were made, from the
    addend where there is one."""

    kernel: Kernel
    buffers: Mapping[str, Buffer]
    ints: dict[str, tuple[Expr, str]] = field(default_factory=dict)
    checks: bool = False
    maps: list[tuple[str, str, MapSource]] = field(default_factory=list)
    started: bool = False

    def map(self, name: str, k: int, block: tuple[int, int]) -> bool:
        """A descriptor parameter for bulk copies of the anchor's k-th operand, a matrix; True if its columns are dense,
        False if its rows are: the descriptor is then of the transposed matrix, and `block` is turned likewise."""
        anchor = self.kernel.anchor
        assert anchor is not None
        view = anchor.operands[k]
        shape, strides = view.shape[-2:], view.strides[-2:]
        straight = strides[1] is const(1)
        if not straight:
            shape, strides, block = shape[::-1], strides[::-1], block[::-1]
        buffer = [b.name for b in self.kernel.buffers].index(view.buffer)
        float8 = FLOAT8_TYPES.get(view.dtype)
        element = pointer_type(view.dtype)[1:] if float8 is None else float8[1]
        kind = f"tensordesc<{element}[{block[0]}, {block[1]}]>"
        self.maps.append((name, kind, MapSource(buffer, view.offset, shape, strides)))
        return straight

    def i32(self, name: str, e: Expr) -> str:
        """A count as a literal or an i32 parameter; a launch where it does not fit is refused."""
        return self._int(name, e, "i32")

    def i64(self, name: str, e: Expr) -> str:
        """A stride or an offset as a literal or an i64 parameter."""
        return self._int(name, e, "i64")

    def _int(self, name: str, e: Expr, kind: str) -> str:
        value = int_value(e)
        if value is not None:
            return str(value) if value >= 0 else f"({value})"
        parameter = f"p_{name}"  # no variable of a template starts like this
        self.ints[parameter] = (e, kind)
        return parameter

    def pointer(self, buffer: str) -> str:
        """The parameter of a buffer in memory."""
        return f"b{[b.name for b in self.kernel.buffers].index(buffer)}"

    def operand(self, k: int) -> str:
        """Where the anchor's k-th operand starts."""
        anchor = self.kernel.anchor
        assert anchor is not None
        view = anchor.operands[k]
        start = self.i64(f"at{k}", view.offset)
        return self.pointer(view.buffer) if start == "0" else f"({self.pointer(view.buffer)} + {start})"

    def typed_operand(self, k: int) -> str:
        """Where the anchor's k-th operand starts, in the type that tensor cores take."""
        anchor = self.kernel.anchor
        assert anchor is not None
        float8 = FLOAT8_TYPES.get(anchor.operands[k].dtype)
        start = self.operand(k)
        return start if float8 is None else f"{start}.to(tl.pointer_type(tl.{float8[0]}))"

    def small(self) -> bool:
        """True if every buffer has fewer than 2^31 elements, so that offsets may be 32 bits wide."""
        sizes = [int_value(b.numel()) for b in self.kernel.buffers]
        return all(n is not None and n < NARROW for n in sizes)

    def start(self, *accumulators: tuple[str, str]) -> list[str]:
        """The lines that make accumulators of [rows, BLOCK_N], each given as its name and rows, before the products.

        They use `n` and `n_inside` as the epilogue does, which has less to do where a bias is in the accumulators.
        """
        kernel = self.kernel
        self.started = True
        if kernel.addend is None:
            assert kernel.anchor is not None
            dtype = "tl.int32" if kernel.anchor.operands[0].dtype is DType.I8 else "tl.float32"
            return [f"{name} = tl.zeros(({rows}, BLOCK_N), dtype={dtype})" for name, rows in accumulators]
        vector, column = kernel.addend.vector, kernel.outer[-1].sym
        tile = Tile(("1", "BLOCK_N"), {1: "n_inside"})
        types = dtypes(vector, self.buffers)
        body = Body(self._places(), types, tile, {column: Coordinate("n", frozenset({1}))}, prefix="first_")
        for s in vector:
            body.write(s)
        first = body.names[str(out_of(vector[-1]))]
        return [*body.lines, *(f"{name} = tl.broadcast_to({first}, ({rows}, BLOCK_N))" for name, rows in accumulators)]

    def epilogue(self, accumulator: str = "acc", rows: str = "BLOCK_M") -> list[str]:
        """The lines that store the tile `accumulator` and compute what was fused behind it.

        They use `batch` (a scalar), `m` [`rows`, 1], `n` [1, BLOCK_N], `m_inside` and `n_inside` of the same shapes.
        """
        kernel, anchor = self.kernel, self.kernel.anchor
        assert anchor is not None
        both = frozenset({0, 1})
        tile = Tile((rows, "BLOCK_N"), {0: "m_inside", 1: "n_inside"})
        batch, m, n = kernel.outer
        places = self._places()
        result = places[anchor.result]
        result.register, result.dims, result.written = accumulator, both, True
        column, walked = Coordinate("n", frozenset({1})), n
        lines: list[str] = []
        if result.pointer:
            row = f"batch * {self.i64('rows_out', m.extent)} + m"
            place = f"{result.pointer} + ({row}) * {self.i64('columns_out', n.extent)} + n"
            lines.append(f"tl.store({place}, {accumulator}, mask=m_inside & n_inside)")
        if kernel.nests and result.dtype in HALF:
            result.register = f"{accumulator}_half"
            lines.append(f"{result.register} = {rounded(accumulator, result.dtype)}")
        if kernel.half is not None:
            lines += self._halves(accumulator, result, places)
            tile = Tile((rows, "BLOCK_N // 2"), {0: "m_inside", 1: "half_inside"})
            column, walked = Coordinate("half", frozenset({1})), kernel.half
        for k, scheduled in enumerate(kernel.nests):
            nest = self._of_halves(scheduled.nest)
            coordinates = {
                batch.sym: Coordinate("batch"),
                m.sym: Coordinate("m", frozenset({0})),
                walked.sym: column,
            }
            for s in sorted({s for x in nest.body for e in exprs_of(x) for s in free_syms(e)}, key=lambda s: s.name):
                if s.extent is None:
                    self.ints[symbol(s)] = (s, "i64")
            types = dtypes(scheduled.nest.body, self.buffers)
            body = Body(places, types, tile, coordinates, prefix=f"n{k}_")
            first = kernel.addend if kernel.addend is not None and kernel.addend.nest == k else None
            for x in nest.body if first is None else first.without(nest.body):
                body.write(x)
            lines += body.lines
            self.checks = self.checks or body.checks
        return lines

    def halved(self, columns: str) -> list[str]:
        """The line by which a program has its columns in two halves, in the variable `columns`."""
        half = self.kernel.half
        return [] if half is None else [f"{columns} = in_halves({columns}, {self._half()}, BLOCK_N)"]

    def _half(self) -> str:
        assert self.kernel.half is not None
        return self.i32("half", self.kernel.half.extent)

    def _halves(self, accumulator: str, result: Place, places: dict[str, Place]) -> list[str]:
        """The lines that take the result in a register apart, which `places` then has as two buffers."""
        assert self.kernel.anchor is not None
        names = [f"{accumulator}_{k}" for k in range(2)]
        for k, name in enumerate(names):
            places[_half_name(self.kernel.anchor.result, k)] = replace(result, pointer="", register=name)
        return [
            f"{', '.join(names)} = halves_of({result.register})",
            "half, _ = halves_of(n)",
            f"half_inside = half < {self._half()}",
        ]

    def _of_halves(self, nest: LoopNest) -> LoopNest:
        """The nest with the template's result as the buffers of its halves."""
        found = [(s, self.kernel.half_of(s)) for s in nest.body]
        body = [
            replace(s, buffer=_half_name(s.buffer, k)) if isinstance(s, Load) and k is not None else s for s, k in found
        ]
        return replace(nest, body=tuple(body))

    def _places(self) -> dict[str, Place]:
        places: dict[str, Place] = {}
        for k, (name, where) in enumerate(self.kernel.storage.items()):
            pointer = self.pointer(name) if where.kind == "memory" else ""
            inside = name in self.kernel.writes or where.kind == "register"
            places[name] = Place(self.buffers[name].dtype, pointer, f"g{k}" if inside else "")
        return places

    def wide(self) -> str:
        """What makes an index as wide as the offsets computed from it."""
        return "" if self.small() else ".to(tl.int64)"

    def finish(
        self,
        body: str,
        constexprs: Mapping[str, object],
        programs: Expr,
        warps: int,
        stages: int,
        options: Mapping[str, object] | None = None,
    ) -> TritonKernel:
        """The kernel of a filled template `body`, in which `PARAMETERS` stands for the parameters."""
        kernel = self.kernel
        assert self.started or kernel.addend is None, "nothing starts from the addend"
        arguments = [
            Argument(f"b{k}", pointer_type(b.dtype), ("buffer", k), True) for k, b in enumerate(kernel.buffers)
        ]
        arguments += [Argument(name, kind, ("map", k)) for k, (name, kind, _) in enumerate(self.maps)]
        for k, (name, (e, kind)) in enumerate(self.ints.items()):
            arguments.append(Argument(name, kind, ("int", k), divisor(e) == 16))
        if self.checks:
            arguments += [Argument("status", "*i32", ("status",)), Argument("site", "i32", ("site",))]
        names = [a.name for a in arguments] + [f"{c}: tl.constexpr" for c in constexprs]
        text = body.replace("PARAMETERS", ", ".join(names))
        assert NAME in text
        return TritonKernel(
            kernel.name,
            text,
            tuple(arguments),
            dict(constexprs),
            tuple(b.name for b in kernel.buffers),
            kernel.writes,
            kernel.reads,
            tuple(e for e, _ in self.ints.values()),
            (programs, const(1), const(1)),
            kernel.origin,
            warps,
            stages,
            maps=tuple(source for _, _, source in self.maps),
            options=dict(options or {}),
        )


def batch_lines(
    sketch: Sketch,
    extents: Sequence[Expr],
    strides: Mapping[str, Sequence[Expr]],
    number: str = "batch",
) -> list[str]:
    """Lines that compute, for each name, the i64 sum of index * stride over the dimensions that `number` counts.

    Dimensions that all of the operands walk as one are counted as one.
    """
    dims: list[tuple[Expr, dict[str, Expr]]] = []
    for d, extent in enumerate(extents):
        if int_value(extent) == 1:
            continue
        steps = {name: s[d] for name, s in strides.items()}
        if dims and all(dims[-1][1][name] is steps[name] * extent for name in strides):
            dims[-1] = (dims[-1][0] * extent, steps)
        else:
            dims.append((extent, steps))
    lines = [f"{name}_at = tl.cast(0, tl.int64)" for name in strides]
    rest = number
    for k in range(len(dims) - 1, -1, -1):
        extent, steps = dims[k]
        index = rest
        if k > 0:
            size = sketch.i64(f"{number}_size{k}", extent)
            lines += [f"{number}{k} = {rest} % {size}", f"{number}_rest{k} = {rest} // {size}"]
            index, rest = f"{number}{k}", f"{number}_rest{k}"
        for name, step in steps.items():
            text = sketch.i64(f"{name}_{number}_step{k}", step)
            if text != "0":
                lines.append(f"{name}_at += tl.cast({index}, tl.int64) * {text}")
    return lines


def strides_of(shape: Sequence[Expr], strides: Sequence[Expr]) -> list[Expr]:
    """Strides with 0 for the dimensions of size 1, which are broadcast."""
    return [const(0) if int_value(n) == 1 else s for n, s in zip(shape, strides, strict=True)]
