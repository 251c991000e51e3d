"""Reductions as Triton: of a row that is held whole, or chunk by chunk into a tile that is reduced at the end."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.backends.triton.triton_body import Body
from hardtack.codegen.backends.triton.triton_spelling import REGISTER, argument, number, typed
from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.loops import Reduce
from hardtack.codegen.ir.neutral import neutral_value
from hardtack.codegen.ir.types import INT_RANGE, DType

LAST = INT_RANGE[DType.I64][1]
"""The index of a point that is not there."""


@dataclass
class Accumulator:
    """One Reduce of a nest. `body` computes its arguments; `dim`: the tile dimension that is reduced."""

    reduce: Reduce
    body: Body
    dim: int

    def __post_init__(self) -> None:
        r = self.reduce
        self.is_arg = r.kind.startswith("arg")
        self.name = f"{self.body.prefix}{r.out}_all".replace(".", "_")
        self.dtype = self.body.dtype(r.args[0]) if self.is_arg else r.dtype
        # spread along all dimensions, so that what is left is a scalar of a tile of one dimension and no other shape
        self.dims = self.body.tile.dims
        self.neutral = neutral_value(r.kind, self.dtype)

    def values(self) -> list[str]:
        """The arguments for every point of the tile, neutral ones where a point is not there."""
        r, body = self.reduce, self.body
        # argmax and argmin take an i64 index besides
        neutrals = [self.neutral] + ([Lit(LAST, DType.I64)] if self.is_arg else [])
        mask = body.tile.masks.get(self.dim)
        out: list[str] = []
        for a, neutral in zip(r.args, neutrals, strict=True):
            value = typed(a) if isinstance(a, Lit) else body.arg(a)
            if mask is not None:
                value = f"tl.where({mask}, {value}, {argument(neutral)})"
            have = body.dims_of([a]) | ({self.dim} if mask is not None else set())
            out.append(body.full(value, frozenset(have), self.dims))
        return out

    def whole(self) -> None:
        """The reduction of the tile at hand, as a value of the body."""
        self._across(self.body, self.values())

    def start(self) -> list[str]:
        """The accumulators' first content."""
        shape = self.body.tile.shape(self.dims)
        lines = [f"{self.name} = tl.full({shape}, {_number(self.neutral)}, {REGISTER[self.dtype]})"]
        if self.is_arg:
            lines.append(f"{self.name}_at = tl.full({shape}, {LAST}, tl.int64)")
        return lines

    def update(self) -> None:
        """One chunk into the accumulators."""
        values = self.values()
        if self.is_arg:
            pair = f"{self.name}, {self.name}_at"
            self.body.lines.append(f"{pair} = {self._best()}({pair}, {values[0]}, {values[1]})")
            return
        self.body.lines.append(f"{self.name} = {self._combined(self.name, values[0])}")

    def finish(self, late: Body) -> None:
        """The accumulators' points into one, as a value of `late`."""
        self._across(late, [self.name, f"{self.name}_at"] if self.is_arg else [self.name])

    def _best(self) -> str:
        return "best_largest" if self.reduce.kind == "argmax" else "best_smallest"

    def _combined(self, a: str, b: str) -> str:
        nan = ", propagate_nan=tl.PropagateNan.ALL" if self.dtype.is_float else ""
        kind = self.reduce.kind
        if self.dtype is DType.BOOL:
            return f"({a} {'|' if kind in ('any', 'max') else '&'} {b})"
        return {
            "sum": f"{a} + {b}",
            "prod": f"{a} * {b}",
            "max": f"tl.maximum({a}, {b}{nan})",
            "min": f"tl.minimum({a}, {b}{nan})",
        }[kind]

    def _across(self, body: Body, values: list[str]) -> None:
        """All points along the dimension into one."""
        r = self.reduce
        left = self.dims - {self.dim}
        # never over all dimensions at once: Triton may then reorder the values and the indices differently
        axis = str(self.dim)
        keep = ", keep_dims=True" if left else ""
        v = values[0]
        if self.is_arg:
            code = f"tl.reduce(({v}, {values[1]}), {axis}, {self._best()}{keep})[1]"
        elif self.dtype is DType.BOOL:
            test = "max" if r.kind in ("any", "max") else "min"
            code = f"(tl.{test}({v}.to(tl.int32), {axis}{keep}) != 0)"
        elif r.kind == "sum" or (not self.dtype.is_float and r.kind != "prod"):
            narrow = self.dtype.is_int and self.dtype.nbytes < 4
            code = f"tl.{r.kind}({v}, {axis}{keep})" + (f".to({REGISTER[self.dtype]})" if narrow else "")
            if self.dtype.is_float:
                code = f"({code} + 0.0)"  # Triton begins with the first element, and a sum of -0 is 0
        else:
            helper = {"prod": "times", "max": "larger", "min": "smaller"}[r.kind]
            code = f"tl.reduce({v}, {axis}, {helper}{keep})"
        body.define(r.out, code, left)


def _number(lit: Lit) -> str:
    return str(int(bool(lit.value))) if lit.dtype is DType.BOOL else number(lit)
