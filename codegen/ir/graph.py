"""Graph: what the model computes, on whole tensors, before anything is decided about how.

    Graph    ::= name, inputs, outputs, constants, states, ops, syms, guards, types
    Op       ::= Op(kind, inputs, attrs, outputs, origin)      in execution order; each value is defined once
    Operand  ::= value name (str) | Lit(value, dtype) | Expr    Lit and Expr are scalars (rank 0); an Expr is an i64
    State    ::= State(name, type, init, final)                 final: the value the state takes after a run, or None
    Input    ::= Input(name, type, strides, final)              likewise: the caller's memory takes it

Values are tensors (dtype, shape); they have no strides, no address and are never written twice. Mutation is a State,
or an Input, whose `final` names the value that replaces it. Shapes are Exprs over `syms`; each symbol says which input
dimension binds it.

Op kinds (shapes by example; `attrs` in brackets):

  pointwise   any name of ops.SCALAR_OPS; operands broadcast by numpy's rules; [dtype] for cast, bitcast and code
  full        () -> value everywhere; operand 0 is a scalar
  iota        [dim] -> i64, element = its index along dim
  reshape     x -> same elements in row-major order, shape from the output's type
  permute     [dims] x -> output dim i is x's dim dims[i]
  expand      x -> numpy broadcasting to the output's type, rank may grow at the front
  slice       [dim, start, step] x -> x[..., start : : step, ...], length from the output's type; start may be an Expr
  flip        [dims] x
  cat         [dim] x, y, ... -> joined along dim
  pad         [lo, hi, mode] x (, value) -> lo/hi: one Expr or int a dim (negative crops); mode constant | reflect |
              replicate | circular; `value` is a scalar operand for mode constant
  reduce      [kind, dims, keepdim, dtype] x -> kind: sum prod max min any all argmax argmin; argmax and argmin have one
              dim and give i64, the first of equals; any and all take and give bool; an empty max, min, argmax is
              refused in convert; dtype: i32 of a sum of i8, else absent
  moments     [groups] x [N, C, *S] -> mean, variance [N, groups] of each group of C/groups channels, uncorrected;
              float, half types give f32
  scan        [kind, dim] x -> inclusive; kind: sum prod max min (max and min carry NaN) logsumexp (of floats)
  matmul      [dtype, sums] a [..., M, K], b [..., K, N] -> [..., M, N]; equal batch dims; float, i8 or a float of 8
              bits; dtype: f32 where the product of half types is not rounded to theirs, and of floats of 8 bits; i32 of
              i8, whose sums are modulo 2^32; else absent; sums: float8 or float8_fast, where tensor cores may add up
              floats of 8 bits, or what was made of them, as they do (FLOAT8_SUMS); else absent
  grouped_matmul  [dtype] a [M, K], b [G, K, N], ends [G] (i32 or i64, ascending) -> [M, N]; row r of a times b[g] of
              the first g with r < ends[g]; zeros where there is none; float; dtype: as of a float matmul
  conv        [stride, padding, dilation, groups, transposed, output_padding, dtype, fill] x [N, C, *S],
              w [O, C/groups, *K] (transposed: w [C, O/groups, *K]), bias [O] or absent; padding: one (lo, hi) pair a
              spatial dim; 1 to 3 dims; dtype: as of a matmul, and the bias, added before anything is rounded, is of the
              result's; of i8 not transposed; fill: what padding adds to x of i8, -128 to 127; of all else absent, and 0
  attention   [scale, causal, dtype, codes] q [B, H, T, D], k [B, G, S, D], v [B, G, S, E] (, k_scales, v_scales
              [B, G, S]) (, mask broadcastable to [B, H, T, S], bool or float) -> [B, H, T, E]; H a multiple of G
              (grouped queries); causal: query t sees keys s <= t; dtype: as of matmul; a float mask is of q's dtype or
              of the result's; codes: true where k and v are codes, both i8 or both f8e4m3fn: each row stands for its
              codes as f32, times its scale of f32, rounded to q's dtype; else absent, and there are no scales
  take        [dims, at, wraps] x, i1, ..., ik -> advanced indexing: index tensor ij (integer, broadcast together) picks
              along x's dim dims[j]; the broadcast index dims stand at output position `at`, x's other dims keep their
              order. Negative indices count from the end, but with wraps = false are out of range; one that is stops the
              run with an error. wraps: else absent
  put         [dims, at, accumulate, wraps] x, value, i1, ..., ik -> x with x[.., i1, .., ik, ..] = (or +=) value; dims
              ascend; value broadcasts to what take gives for the same dims, at and indices; wraps: as of take
  gather      [dim] x, index -> torch.gather; its indices, and those of scatter, do not wrap
  scatter     [dim, reduce] x, index, src -> torch.scatter / scatter_reduce(include_self=True); reduce: none sum prod
              amax amin
  pool        [kind, kernel, stride, padding, dilation, count] x [N, C, *S] -> kind max | avg; padding (lo, hi) pairs;
              count for avg: "kernel" (divide by the kernel size), "padded" (by what lies in the padded input, as
              count_include_pad with ceil_mode) or "valid" (by what lies in the input), or an int divisor_override
  pool_index  like pool max -> i64, the flat index into the input's spatial dims of the element taken, the
              first of equals; of the last NaN where there is one
  adaptive_pool [kind] x [N, C, *S] -> spatial sizes from the output's type; avg or max
  resize      [mode, align_corners, scales] x [N, C, *S] -> mode nearest | nearest-exact | linear | cubic; spatial sizes
              from the output's type; scales: one float or None a dim, as the user gave scale_factor
  sort        [dim, descending] x -> values, i64 indices; stable; NaN counts as largest
  topk        [dim, largest] x -> values, i64 indices, sorted; k from the output's type
  lstm, gru, rnn_tanh, rnn_relu
              [reverse, has_bias] x [T, B, I], h0 [B, H], (c0 [B, H] for lstm,) w_ih [G*H, I], w_hh [G*H, H], b_ih,
              b_hh [G*H] -> y [T, B, H], hT [B, H] (, cT [B, H]); one layer, one direction; torch's gate order
  custom      [op, code, arguments, grid, strided, written, workspace, worker_workspace] tensors... -> what a user's op
              gives, computed by a kernel of its own (kernel_code.py), then what it leaves of the operands `written`;
              op: its name in torch; arguments: as its schema has them; strided: the operands that may have any strides;
              the workspaces: bytes, of all workers and of each; grid: of Triton's, the programs in x, y and z, else ().
              Sizes and dtypes are those of its fake kernel
  read        [sym] n (i64 scalar) -> (); the symbol, a size that is known from here on, takes the value
  assert      [message] condition (bool, any shape) -> (); the run fails with the message where it is false
  cond        [then, orelse] predicate (bool scalar), operands... -> outputs; both branches are Graphs whose inputs are
              the operands
  while       [cond, body] carried..., extra... -> carried...; cond gives a bool scalar, body the next carried values

`attrs` hold ints, floats, strs, bools, None, DType, Expr, Graph, Code and (nested) tuples of these; nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from hardtack.codegen.ir.constants import Recipe
from hardtack.codegen.ir.expr import Expr, Sym, as_expr, to_text
from hardtack.codegen.ir.types import DType, half_value

T = TypeVar("T")


@dataclass(frozen=True)
class Origin:
    """Where an op comes from: the user's source line, the framework op and the module path ("encoder.layer.0")."""

    file: str = ""
    line: int = 0
    source: str = ""
    op: str = ""
    module: str = ""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else "unknown source"
        return f"{self.op or 'op'} at {place}" + (f" in {self.module}" if self.module else "")


@dataclass(frozen=True)
class TensorType:
    """dtype and logical shape of a value; rank 0 is a scalar tensor."""

    dtype: DType
    shape: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(to_text, self.shape))}]"


@dataclass(frozen=True)
class Lit:
    """A scalar literal. `value` is a bool, int or float of Python; NaN and infinities included. One of a half type has
    a value of that type: what is given is rounded. That of a float of 8 bits is its code."""

    value: bool | int | float
    dtype: DType

    def __post_init__(self) -> None:
        if self.dtype.is_half:
            object.__setattr__(self, "value", half_value(float(self.value), self.dtype))

    def __str__(self) -> str:
        return f"{self.value!r}:{self.dtype}"


Operand = str | Lit | Expr


@dataclass(frozen=True)
class Op:
    """One operation; `attrs` are sorted (key, value) pairs, so that equal ops compare and hash equal."""

    kind: str
    inputs: tuple[Operand, ...]
    attrs: tuple[tuple[str, object], ...]
    outputs: tuple[str, ...]
    origin: Origin = field(default=Origin(), compare=False)

    def attr(self, name: str) -> object:
        """The attribute `name`. KeyError if the op has none of that name."""
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(f"{self.kind} has no attribute {name!r}")

    @property
    def wraps(self) -> bool:
        """Of take and put: whether a negative index counts from the end."""
        return dict(self.attrs).get("wraps") is not False

    def value(self, k: int) -> str:
        """The name of operand k, which is no scalar literal."""
        name = self.inputs[k]
        assert isinstance(name, str), f"operand {k} of {self.kind} is {name}"
        return name

    def attr_of(self, name: str, of: type[T]) -> T:
        """The attribute `name`, which is of a type, as the kind's type rule has made sure of."""
        found = self.attr(name)
        assert isinstance(found, of), f"{name} of {self.kind} is {found!r}"
        return found

    def int_attr(self, name: str) -> int:
        """An attribute that is a number."""
        return self.attr_of(name, int)

    def float_attr(self, name: str) -> float:
        """Likewise."""
        return self.attr_of(name, float)

    def bool_attr(self, name: str) -> bool:
        """An attribute that is true or false."""
        return self.attr_of(name, bool)

    def str_attr(self, name: str) -> str:
        """An attribute that is a word, or a message."""
        return self.attr_of(name, str)

    def expr_attr(self, name: str) -> Expr:
        """An attribute that is a size: a number, or an Expr."""
        found = self.attr(name)
        return found if isinstance(found, Expr) else as_expr(self.int_attr(name))

    def tuple_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute that has several numbers or pairs."""
        return self.attr_of(name, tuple)


def make_attrs(**attrs: object) -> tuple[tuple[str, object], ...]:
    """Keyword arguments as the sorted pairs that Op wants; lists become tuples."""
    return tuple(sorted((k, _freeze(v)) for k, v in attrs.items()))


def _freeze(value: object) -> object:
    return tuple(_freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class Input:
    """A tensor input. `strides`: in elements, one Expr a dim, what the caller must give (dims of size 1 excepted).
    `final`: the value that the caller's tensor has behind the run; None: it stays as it is.
    """

    name: str
    strides: tuple[Expr, ...]
    final: str | None = None


@dataclass(frozen=True)
class Constant:
    """A weight, buffer or folded value. `name` is the user's qualified name where there is one; `key` names its bytes
    in the graph's constant store, so that two constants of equal content share a key. `tensors`: the module's
    parameters and buffers that the content was computed from, sorted. `recipe`: how, where elements of one only moved.
    `quantized`: what it was dequantised from, where it was.
    """

    name: str
    key: str
    tensors: tuple[str, ...] = ()
    recipe: Recipe | None = None
    quantized: Quantized | None = None

    def parts(self) -> tuple[Constant, ...]:
        """The codes, the tables, the factors that it was dequantised from and then its signed codes, by names of their
        own; nothing where it was not."""
        q = self.quantized
        if q is None:
            return ()
        factors = (s.factor for s in q.steps if s.factor)
        inner = (q.codes, *(s.table for s in q.steps), *factors, *((q.signed,) if q.signed else ()))
        return tuple(replace(c, name=f"{self.name}.{c.name}") for c in inner)


@dataclass(frozen=True)
class QuantizedStep:
    """A step of dequantisation, each element by itself: `kind` (sub, mul or add) with a number of `table`,
    computed in f32. runs: one a dimension of the weight, whose size it divides: as many neighbours have one number of
    the table. number: the table's dtype, f32, bf16, f16, f8e4m3fn or f8e8m0fnu; result: what the result is rounded to,
    f32, bf16 or f16. limits: the least and the largest number where all are whole, up to 2^22 from 0, and cannot be
    replaced; else None. factor: one number of f32, with which those of the table are multiplied first, in f32.
    """

    kind: str
    table: Constant
    runs: tuple[int, ...]
    number: DType
    result: DType
    limits: tuple[int, int] | None = None
    factor: Constant | None = None


@dataclass(frozen=True)
class Quantized:
    """How a constant of f32, bf16 or f16 follows from one of few bits, in its own shape: codes as float, then the steps
    in turn, each rounded. Names of the constants are what parts() puts behind the name of theirs. dtype: that of the
    codes, i8, u8 or a float of 8 bits; bits: 4 where all of them are in -8..7 (i8) or 0..15 (u8) or are numbers that
    float4_e2m1 has (f8e4m3fn), else 8. signed: of u8, the same as i8, 128 less, which products of integers multiply.
    """

    codes: Constant
    steps: tuple[QuantizedStep, ...]
    dtype: DType
    bits: int
    signed: Constant | None = None


@dataclass(frozen=True)
class State:
    """A buffer that a run may change: a KV cache, running statistics. Kept by the Session between runs.

    `name` is also the value that holds its content at the start of the run. `init` is the key of its first content in
    the constant store, or None for zeros. `final` is the value it takes when the run ends; None if this graph only
    reads it. States are matched between entry points by name.
    """

    name: str
    init: str | None
    final: str | None


@dataclass(frozen=True)
class SymBinding:
    """`sym` takes the size of dimension `dim` of input `input`, or with dim None the value of that 0-d i64 input. With
    input None an op `read` gives it its value; those stand behind the others, in the order of their ops."""

    sym: Sym
    input: str | None
    dim: int | None


@dataclass(frozen=True)
class Guard:
    """A condition on sizes, checked at every run as soon as they are known: a relation (eq ne le lt) of two Exprs, and
    how to say it."""

    relation: str
    a: Expr
    b: Expr
    text: str


@dataclass(frozen=True)
class Graph:
    """See the module's grammar. `types` has every value: inputs, constants, states and op outputs.

    `inputs` are in the order in which the runtime takes them (flattened pytree order); `outputs` likewise, one value
    name each, and the same value, an input, a constant or a state may stand there too.
    """

    name: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    output_names: tuple[str, ...]
    constants: tuple[Constant, ...]
    states: tuple[State, ...]
    ops: tuple[Op, ...]
    syms: tuple[SymBinding, ...]
    guards: tuple[Guard, ...]
    types: Mapping[str, TensorType]

    def finals(self) -> dict[str, str]:
        """What a run changes, states and inputs -> the value that each has behind it."""
        held: tuple[State | Input, ...] = (*self.states, *self.inputs)
        return {x.name: x.final for x in held if x.final is not None}

    def type_of(self, operand: Operand) -> TensorType:
        """The type of a value, literal or Expr (an i64 scalar)."""
        if isinstance(operand, str):
            return self.types[operand]
        return TensorType(operand.dtype if isinstance(operand, Lit) else DType.I64, ())


def uses(op: Op) -> Iterator[str]:
    """The values that op reads, in operand order."""
    return (x for x in op.inputs if isinstance(x, str))
