"""Graphs for timing: the op that a key stands for, several times over, each time on operands of its own.

Products of several rows get a bias, and a GELU where the key says that something heavy follows; convolutions get a
bias and a ReLU: what is computed behind a tile takes registers, which a plan has to have. A repetition's bias is a row
of the result of the one before, so that every result is stored.

Several launches in one graph hide what a replay costs; other operands each time keep them out of the caches as far as
LIMIT_NBYTES allows. Operands are states, which stay on the device from run to run, and the last result, that of the
operands whose names end with 0, is the only output, so that a run copies nothing from or to the host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.graph import Constant, Graph, Input, Lit, Op, State, SymBinding, TensorType, make_attrs
from hardtack.codegen.ir.types import BYTES, DType
from hardtack.codegen.tune.attention_plan import AttentionShape
from hardtack.codegen.tune.candidates import Shape
from hardtack.codegen.tune.conv_plan import ConvShape
from hardtack.codegen.tune.cut_plan import ConvCutShape, CutShape
from hardtack.codegen.tune.gemm_plan import GemmShape

REPEATS = 20
CPU_REPEATS = 6
CPU_LIMIT_NBYTES = 48 << 20
"""Of a CPU's trials: beyond its caches, and soon compiled."""
LIMIT_NBYTES = 128 << 20
"""Operands and results of all repetitions together."""
BLOCK_NUMEL = 1 << 20
"""Random elements that are made; longer arrays repeat them."""
_FINITE_CODES = 0x60
"""Codes of floats of 8 bits below this are numbers of 0 to some hundreds."""
ONE = const(1)
ROWS = "rows"
"""The symbol of a product's rows, and an input of that name, where they vary and are 1 in the example."""
MOST_ROWS = 16


@dataclass
class Trial:
    """graph: `repeats` times the op of `shape`. hints: example sizes. store: constants. arrays: state name -> shape,
    dtype. first: the states that the repetition of the output reads."""

    shape: Shape
    repeats: int
    types: dict[str, TensorType] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    syms: list[SymBinding] = field(default_factory=list)
    hints: dict[str, int] = field(default_factory=dict)
    store: ConstantStore = field(default_factory=ConstantStore)
    arrays: dict[str, tuple[tuple[int, ...], DType]] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The last result is the output; the others are computed for the time that they take."""
        return Graph(
            "trial", tuple(self.inputs), (self.results[-1],), ("y",), tuple(self.constants), tuple(self.states),
            tuple(self.ops), tuple(self.syms), (), self.types,
        )  # fmt: skip

    @property
    def first(self) -> tuple[str, ...]:
        return tuple(name for name in self.arrays if name.endswith("0") and name[:-1].isalpha())

    def operand(self, name: str, dtype: DType, shape: tuple[int, ...]) -> str:
        self.types[name] = TensorType(dtype, tuple(map(const, shape)))
        self.states.append(State(name, None, None))
        self.arrays[name] = (shape, dtype)
        return name

    def bias(self, numel: int, dtype: DType) -> str:
        """A vector: the first elements of the result before; for the first result a state."""
        if not self.results:
            return self.operand("c0", dtype, (numel,))
        before = self.results[-1]
        shape = self.types[before].shape
        for d in range(len(shape) - 1):
            if shape[d] is not ONE:
                shape = (*shape[:d], ONE, *shape[d + 1 :])
                before = self.op("slice", (before,), dtype, shape, dim=d, start=0, step=1)
        return self.op("reshape", (before,), dtype, (numel,))

    def op(
        self, kind: str, inputs: tuple[str | Lit, ...], kept: DType, shape: tuple[int | Expr, ...], **a: object
    ) -> str:
        name = f"t{len(self.types)}"
        self.types[name] = TensorType(kept, tuple(n if isinstance(n, Expr) else const(n) for n in shape))
        self.ops.append(Op(kind, inputs, make_attrs(**a), (name,)))
        return name


def random_array(shape: tuple[int, ...], dtype: DType, seed: int) -> npt.NDArray[np.generic]:
    """Normal numbers, the same for the same arguments; bf16 as its bits in uint16, floats of 8 bits as theirs, with
    finite numbers of any size."""
    numel = math.prod(shape)
    rng = np.random.default_rng(seed)
    if dtype.is_float8:
        return np.resize(rng.integers(0, _FINITE_CODES, min(numel, BLOCK_NUMEL), np.uint8), shape)
    block = rng.standard_normal(min(numel, BLOCK_NUMEL), np.float32)
    if dtype is DType.I8:
        return np.resize((block * 32).clip(-128, 127).astype(np.int8), shape)
    plain = {DType.F16: np.float16, DType.F32: np.float32, DType.F64: np.float64}
    values = (block.view(np.uint32) >> 16).astype(np.uint16) if dtype is DType.BF16 else block.astype(plain[dtype])
    return np.resize(values, shape)


def make_trial(shape: Shape) -> Trial:
    """The graph to time a shape with."""
    if isinstance(shape, CutShape):
        return _cut_gemm(shape)
    if isinstance(shape, ConvCutShape):
        return _conv(shape)
    if isinstance(shape, GemmShape):
        return _gemm(shape)
    return _conv(shape) if isinstance(shape, ConvShape) else _attention(shape)


def _repeats(numel: int, dtype: DType) -> int:
    """How often operands and results of `numel` elements fit."""
    return max(1, min(REPEATS, LIMIT_NBYTES // max(1, numel * dtype.nbytes)))


def _gemm(s: GemmShape) -> Trial:
    t = Trial(s, _repeats(s.batch * (s.k * s.n + s.m * s.k + s.m * s.n), s.dtype))
    lead = () if s.batch == 1 else (s.batch,)
    rows: int | Expr = s.m
    varies = s.m == 1 and not s.one_row
    if varies:
        rows, t.hints[ROWS] = sym(ROWS, 1, MOST_ROWS), 1
        t.types[ROWS] = TensorType(DType.I64, ())
        t.inputs.append(Input(ROWS, ()))
        t.syms.append(SymBinding(sym(ROWS, 1, MOST_ROWS), ROWS, None))
    for k in reversed(range(t.repeats)):
        a = t.operand(f"a{k}", s.dtype, (*lead, MOST_ROWS if varies else s.m, s.k))
        if varies:
            a = t.op("slice", (a,), s.dtype, (*lead, rows, s.k), dim=len(lead), start=0, step=1)
        if s.depth_first:
            b = t.operand(f"b{k}", s.dtype, (*lead, s.n, s.k))
            dims = (*range(len(lead)), len(lead) + 1, len(lead))
            b = t.op("permute", (b,), s.dtype, (*lead, s.k, s.n), dims=dims)
        else:
            b = t.operand(f"b{k}", s.dtype, (*lead, s.k, s.n))
        result = (*lead, rows, s.n)
        y = _linear(t, a, b, result, s) if s.m > 1 else _product(t, a, b, result, s.dtype)
        t.results.append(_gelu(t, y, t.types[y].dtype) if s.heavy else y)
    return t


def _cut_gemm(s: CutShape) -> Trial:
    """On a CPU: each repetition has weights of its own, as the layers of a model do, so that they come from as far."""
    numel = s.batch * (s.k * s.n + s.m * s.k + s.m * s.n)
    t = Trial(s, max(1, min(CPU_REPEATS, CPU_LIMIT_NBYTES // (numel * s.dtype.nbytes))))
    lead = () if s.batch == 1 else (s.batch,)
    for k in reversed(range(t.repeats)):
        a = t.operand(f"a{k}", s.dtype, (*lead, s.m, s.k))
        if s.constant:
            b = f"b{k}"
            t.types[b] = TensorType(s.dtype, (const(s.k), const(s.n)))
            t.constants.append(Constant(b, t.store.add(s.dtype, random_array((s.k, s.n), s.dtype, k))))
        elif s.rows_dense:
            b = t.operand(f"b{k}", s.dtype, (*lead, s.k, s.n))
        else:
            b = t.operand(f"b{k}", s.dtype, (*lead, s.n, s.k))
            dims = (*range(len(lead)), len(lead) + 1, len(lead))
            b = t.op("permute", (b,), s.dtype, (*lead, s.k, s.n), dims=dims)
        t.results.append(_linear(t, a, b, (*lead, s.m, s.n), s))
    return t


def _linear(t: Trial, a: str, b: str, shape: tuple[int | Expr, ...], s: GemmShape | CutShape) -> str:
    """The product and its bias, rounded once; of bytes in f32."""
    if s.dtype in BYTES:
        sums = t.op("cast", (_product(t, a, b, shape, s.dtype),), DType.F32, shape, dtype=DType.F32)
        return t.op("add", (sums, t.bias(s.n, DType.F32)), DType.F32, shape)
    bias = t.bias(s.n, s.dtype)
    if not s.dtype.is_half:
        return t.op("add", (t.op("matmul", (a, b), s.dtype, shape), bias), s.dtype, shape)
    wide = DType.F32
    # spread out before it is converted: a conversion of the vector alone would compute it in place of the result before
    bias = t.op("cast", (t.op("expand", (bias,), s.dtype, shape),), wide, shape, dtype=wide)
    y = t.op("add", (t.op("matmul", (a, b), wide, shape, dtype=wide), bias), wide, shape)
    return t.op("cast", (y,), s.dtype, shape, dtype=s.dtype)


def _product(t: Trial, a: str, b: str, shape: tuple[int | Expr, ...], dtype: DType) -> str:
    """The product alone, of bytes in what it is added up in."""
    if dtype is DType.I8:
        return t.op("matmul", (a, b), DType.I32, shape, dtype=DType.I32)
    if dtype.is_float8:
        return t.op("matmul", (a, b), DType.F32, shape, dtype=DType.F32, sums="float8")
    return t.op("matmul", (a, b), dtype, shape)


def _gelu(t: Trial, x: str, dtype: DType) -> str:
    """x / 2 * (1 + erf(x / sqrt(2))), of halves in f32."""
    shape, wide = t.types[x].shape, DType.F64 if dtype is DType.F64 else DType.F32
    if wide is not dtype:
        x = t.op("cast", (x,), wide, shape, dtype=wide)
    y = t.op("erf", (t.op("mul", (x, Lit(math.sqrt(0.5), wide)), wide, shape),), wide, shape)
    y = t.op("add", (y, Lit(1.0, wide)), wide, shape)
    y = t.op("mul", (t.op("mul", (x, Lit(0.5, wide)), wide, shape), y), wide, shape)
    return t.op("cast", (y,), dtype, shape, dtype=dtype) if wide is not dtype else y


def _conv(s: ConvShape | ConvCutShape) -> Trial:
    """One image of about square size; the weights are shared, as constants are packed when the bundle is made. One tap
    goes to every second point: one that goes to all would be a product."""
    width = max(w for w in range(1, math.isqrt(s.points) + 1) if s.points % w == 0)
    size = (s.points // width, width)
    step = s.step if isinstance(s, ConvCutShape) else 2 if s.taps == 1 else 1
    kernel = _kernel(s)
    channels, outs = s.groups * s.channels_in, s.groups * s.channels_out
    numel = s.points * (channels * step * step + outs)
    repeats = _repeats(numel, s.dtype)
    if isinstance(s, ConvCutShape):
        repeats = max(1, min(CPU_REPEATS, CPU_LIMIT_NBYTES // (numel * s.dtype.nbytes)))
    t = Trial(s, repeats)
    weight = (outs, s.channels_in, *kernel)
    t.types["w"] = TensorType(s.dtype, tuple(map(const, weight)))
    t.constants.append(Constant("w", t.store.add(s.dtype, random_array(weight, s.dtype, 1))))
    attrs: Mapping[str, object] = {
        "stride": (step, step),
        "padding": tuple((k // 2, k - 1 - k // 2) for k in kernel),
        "dilation": (1, 1),
        "groups": s.groups,
        "transposed": False,
        "output_padding": (0, 0),
    }
    for k in reversed(range(t.repeats)):
        x = t.operand(f"x{k}", s.dtype, (1, step * size[0], step * size[1], channels))
        x = t.op("permute", (x,), s.dtype, (1, channels, step * size[0], step * size[1]), dims=(0, 3, 1, 2))
        y = t.op("conv", (x, "w", t.bias(outs, s.dtype)), s.dtype, (1, outs, *size), **attrs)
        y = t.op("max", (y, Lit(0.0, s.dtype)), s.dtype, (1, outs, *size))
        t.results.append(t.op("permute", (y,), s.dtype, (1, *size, outs), dims=(0, 2, 3, 1)))
    return t


def _kernel(s: ConvShape | ConvCutShape) -> tuple[int, int]:
    """A square filter where the taps make one, otherwise a row; and a row where a CPU would take 3 x 3 by Winograd's
    filtering, which has no plan."""
    side = math.isqrt(s.taps)
    filtered = isinstance(s, ConvCutShape) and (s.taps, s.step, s.groups, s.dtype) == (9, 1, 1, DType.F32)
    return (side, side) if side * side == s.taps and not filtered else (1, s.taps)


def _attention(s: AttentionShape) -> Trial:
    keys, queries = s.batch * s.kv_heads * s.tk, s.batch * s.heads * s.tq
    t = Trial(s, _repeats(keys * (s.d + s.e) + queries * (s.d + s.e), s.dtype))
    scale = 1.0 / math.sqrt(s.d)
    for k in reversed(range(t.repeats)):
        q = t.operand(f"q{k}", s.dtype, (s.batch, s.heads, s.tq, s.d))
        key = t.operand(f"k{k}", s.dtype, (s.batch, s.kv_heads, s.tk, s.d))
        v = t.operand(f"v{k}", s.dtype, (s.batch, s.kv_heads, s.tk, s.e))
        shape = (s.batch, s.heads, s.tq, s.e)
        t.results.append(t.op("attention", (q, key, v), s.dtype, shape, scale=scale, causal=s.causal))
    return t
