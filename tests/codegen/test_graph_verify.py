"""The graph verifier: it accepts a sound graph and names what is wrong with each of many broken ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.graph import Constant, Graph, Guard, Input, Lit, Op, State, SymBinding, TensorType, make_attrs
from hardtack.codegen.ir.graph_text import to_text_graph
from hardtack.codegen.ir.graph_verify import GraphError, verify_graph
from hardtack.codegen.ir.types import DType

N = sym("n", 0, 64)
F32 = DType.F32


def t(*shape: Expr | int, dtype: DType = F32) -> TensorType:
    """A type from sizes."""
    return TensorType(dtype, tuple(s if isinstance(s, Expr) else const(s) for s in shape))


def graph() -> Graph:
    """x [n, 4] @ w [4, 3] + 1, summed; a counter as state."""
    ops = (
        Op("matmul", ("x", "w"), (), ("y",)),
        Op("add", ("y", Lit(1.0, F32)), (), ("z",)),
        Op("reduce", ("z",), make_attrs(kind="sum", dims=(0,), keepdim=False), ("r",)),
        Op("add", ("steps", Lit(1, DType.I64)), (), ("next",)),
    )
    types = {"x": t(N, 4), "w": t(4, 3), "y": t(N, 3), "z": t(N, 3), "r": t(3)}
    counter = t(1, dtype=DType.I64)
    return Graph(
        name="small",
        inputs=(Input("x", (const(4), const(1))),),
        outputs=("r",),
        output_names=("sum",),
        constants=(Constant("w", "0123456789abcdef"),),
        states=(State("steps", None, "next"),),
        ops=ops,
        syms=(SymBinding(N, "x", 0),),
        guards=(),
        types={**types, "steps": counter, "next": counter},
    )


def test_sound_graph() -> None:
    assert verify_graph(graph()) == graph()


def test_text() -> None:
    assert to_text_graph(graph()) == (
        "graph small\n"
        "sym   n = x.size(0), 0 <= n <= 64\n"
        "input x: f32[n, 4] strides [4, 1]\n"
        "const w: f32[4, 3] 01234567\n"
        "state steps: i64[1] zeros -> next\n"
        "y: f32[n, 3] = matmul(x, w)\n"
        "z: f32[n, 3] = add(y, 1.0:f32)\n"
        "r: f32[3] = reduce(z, dims=(0), keepdim=False, kind=sum)\n"
        "next: i64[1] = add(steps, 1:i64)\n"
        "return r as sum\n"
    )


def with_op(position: int, op: Op) -> Callable[[Graph], Graph]:
    """Replace one op."""
    return lambda g: replace(g, ops=(*g.ops[:position], op, *g.ops[position + 1 :]))


def with_type(name: str, new: TensorType) -> Callable[[Graph], Graph]:
    """Replace one type."""
    return lambda g: replace(g, types={**g.types, name: new})


BROKEN: list[tuple[str, Callable[[Graph], Graph]]] = [
    ("y is stated as f32[n, 5], matmul gives f32[n, 3]", with_type("y", t(N, 5))),
    ("z is stated as f64[n, 3], add gives f32[n, 3]", with_type("z", t(N, 3, dtype=DType.F64))),
    ("matmul inner sizes differ: 4 and 5", with_type("w", t(5, 3))),
    ("unknown op kind 'matmull'", with_op(0, Op("matmull", ("x", "w"), (), ("y",)))),
    ("matmul reads later before it is defined", with_op(0, Op("matmul", ("x", "later"), (), ("y",)))),
    ("graph small defines more than once: x", with_op(0, Op("matmul", ("x", "w"), (), ("x",)))),
    ("literal 1 is not a f32", with_op(1, Op("add", ("y", Lit(1, F32)), (), ("z",)))),
    ("literal 300 does not fit i8", with_op(1, Op("add", ("y", Lit(300, DType.I8)), (), ("z",)))),
    ("add is not defined on (f32, i64)", with_op(1, Op("add", ("y", Lit(1, DType.I64)), (), ("z",)))),
    ("reduce has no attribute 'kind'", with_op(2, Op("reduce", ("z",), make_attrs(dims=(0,), keepdim=False), ("r",)))),
    ("add has an attribute of type set", with_op(1, Op("add", ("y", Lit(1.0, F32)), (("a", {1}),), ("z",)))),
    ("add: attributes are not sorted", with_op(1, Op("add", ("y", Lit(1.0, F32)), (("b", 1), ("a", 1)), ("z",)))),
    ("matmul has 2 outputs, expected 1", with_op(0, Op("matmul", ("x", "w"), (), ("y", "x2")))),
    ("returns nowhere, which nothing defines", lambda g: replace(g, outputs=("nowhere",))),
    ("one output name an output", lambda g: replace(g, output_names=())),
    ("state steps is i64[1], its final value f32[3]", lambda g: replace(g, states=(State("steps", None, "r"),))),
    ("the type of x mentions n, which nothing binds", lambda g: replace(g, syms=())),
    ("input x: one stride a dim", lambda g: replace(g, inputs=(Input("x", (const(1),)),))),
    ("symbol n is bound by x of f32[n, 4], dim 1", lambda g: replace(g, syms=(SymBinding(N, "x", 1),))),
    ("unknown relation 'gt'", lambda g: replace(g, guards=(Guard("gt", N, const(1), "n > 1"),))),
]


@pytest.mark.parametrize(("message", "break_it"), BROKEN, ids=[m for m, _ in BROKEN])
def test_broken_graphs(message: str, break_it: Callable[[Graph], Graph]) -> None:
    broken = break_it(graph())
    broken = replace(broken, types={"x2": t(1), **broken.types})
    with pytest.raises(GraphError) as caught:
        verify_graph(broken)
    assert message in str(caught.value)


def test_error_shows_the_neighbours() -> None:
    with pytest.raises(GraphError) as caught:
        verify_graph(with_type("z", t(N, 4))(graph()))
    assert "> z: f32[n, 4] = add(y, 1.0:f32)" in str(caught.value)
    assert "  y: f32[n, 3] = matmul(x, w)" in str(caught.value)


def test_equality_by_guard() -> None:
    """Two sizes that only a guard makes equal may meet in an op."""
    m = sym("m", 0, None)
    g = graph()
    two = replace(
        g,
        inputs=(*g.inputs, Input("v", (const(3), const(1)))),
        ops=(*g.ops[:1], Op("add", ("y", "v"), (), ("z",)), *g.ops[2:]),
        syms=(*g.syms, SymBinding(m, "v", 0)),
        types={**g.types, "v": t(m, 3)},
    )
    with pytest.raises(GraphError, match="sizes n and m do not broadcast"):
        verify_graph(two)
    verify_graph(replace(two, guards=(Guard("eq", m, N, "m == n"),)))


POINTWISE = {
    "stride": (1,),
    "padding": ((0, 0),),
    "dilation": (1,),
    "groups": 1,
    "transposed": False,
    "output_padding": (0,),
}
KINDS: list[tuple[Op, tuple[TensorType, ...], tuple[TensorType, ...], str]] = [
    (Op("reshape", ("a",), (), ("o",)), (t(2, 3),), (t(7),), "reshape of 6 elements to 7"),
    (Op("permute", ("a",), make_attrs(dims=(0, 0)), ("o",)), (t(2, 3),), (t(2, 2),), "not a permutation"),
    (Op("expand", ("a",), (), ("o",)), (t(2, 3),), (t(4, 3),), "expand of size 2 to 4"),
    (Op("slice", ("a",), make_attrs(dim=0, start=1, step=1), ("o",)), (t(3),), (t(3),), "leaves size 3"),
    (Op("slice", ("a",), make_attrs(dim=0, start=1, step=-1), ("o",)), (t(3),), (t(2),), "not positive"),
    (Op("cat", ("a", "b"), make_attrs(dim=0), ("o",)), (t(2, 3), t(2, 4)), (t(4, 3),), "cat along dim 0"),
    (Op("pad", ("a",), make_attrs(lo=(1,), hi=(1,), mode="mirror"), ("o",)), (t(3),), (t(5),), "unknown pad mode"),
    (Op("gather", ("a", "b"), make_attrs(dim=0), ("o",)), (t(3), t(2)), (t(2),), "gather from"),
    (Op("take", ("a", "b"), make_attrs(dims=(2,), at=0), ("o",)), (t(3), t(2, dtype=DType.I64)), (t(2),), "along dims"),
    (
        Op("topk", ("a",), make_attrs(dim=0, largest=True), ("o", "p")),
        (t(3),),
        (t(4), t(4, dtype=DType.I64)),
        "topk takes 4 of 3",
    ),
    (
        Op(
            "conv",
            ("a", "b"),
            make_attrs(stride=(1,), padding=((0, 0),), dilation=(1,), groups=1, transposed=False, output_padding=(0,)),
            ("o",),
        ),
        (t(1, 4, 9), t(2, 3, 3)),
        (t(1, 2, 7),),
        "conv input has 4 channels, the weight wants 3",
    ),
    (
        Op("attention", ("a", "b", "b"), make_attrs(scale=1.0, causal=False), ("o",)),
        (t(1, 3, 5, 8), t(1, 2, 5, 8)),
        (t(1, 3, 5, 8),),
        "3 query heads are not a multiple of 2",
    ),
    (
        Op("conv", ("a", "b", "c"), make_attrs(**POINTWISE, dtype=F32), ("o",)),
        (t(1, 3, 9, dtype=DType.BF16), t(2, 3, 1, dtype=DType.BF16), t(2, dtype=DType.BF16)),
        (t(1, 2, 9),),
        "conv bias is bf16[2], expected f32[2]",
    ),
    (
        Op("conv", ("a", "b"), make_attrs(**POINTWISE, dtype=DType.BF16), ("o",)),
        (t(1, 3, 9), t(2, 3, 1)),
        (t(1, 2, 9, dtype=DType.BF16),),
        "conv of f32 as bf16",
    ),
    (
        Op("grouped_matmul", ("a", "b", "c"), make_attrs(dtype=DType.F16), ("o",)),
        (t(4, 8, dtype=DType.BF16), t(2, 8, 3, dtype=DType.BF16), t(2, dtype=DType.I32)),
        (t(4, 3, dtype=DType.F16),),
        "grouped_matmul of bf16 as f16",
    ),
    (
        Op("attention", ("a", "a", "a", "b"), make_attrs(scale=1.0, causal=False, dtype=F32), ("o",)),
        (t(1, 2, 5, 8, dtype=DType.BF16), t(5, 5, dtype=DType.F16)),
        (t(1, 2, 5, 8),),
        "attention mask of f16",
    ),
    (
        Op("attention", ("a", "b", "b", "c", "c"), make_attrs(scale=1.0, causal=False, codes=True), ("o",)),
        (t(1, 2, 5, 8), t(1, 2, 5, 8, dtype=DType.U8), t(1, 2, 5)),
        (t(1, 2, 5, 8),),
        "attention of f32 and codes u8",
    ),
    (
        Op("attention", ("a", "b", "b", "c", "c"), make_attrs(scale=1.0, causal=False, codes=True), ("o",)),
        (t(1, 2, 5, 8), t(1, 2, 5, 8, dtype=DType.I8), t(1, 2, 1, 5)),
        (t(1, 2, 5, 8),),
        "scales f32[1, 2, 1, 5] are not those of rows i8[1, 2, 5, 8]",
    ),
    (
        Op("attention", ("a", "b", "b", "c", "c"), make_attrs(scale=1.0, causal=False), ("o",)),
        (t(1, 2, 5, 8), t(1, 2, 5, 8, dtype=DType.I8), t(1, 2, 5)),
        (t(1, 2, 5, 8),),
        "attention operands differ in dtype",
    ),
    (Op("cond", ("a", "b"), make_attrs(then=1, orelse=2), ("o",)), (t(), t()), (t(),), "the predicate is f32[]"),
]


@pytest.mark.parametrize(("op", "args", "results", "message"), KINDS, ids=[f"{k[0].kind}: {k[3]}" for k in KINDS])
def test_kind_rules(op: Op, args: tuple[TensorType, ...], results: tuple[TensorType, ...], message: str) -> None:
    names = list(dict.fromkeys(x for x in op.inputs if isinstance(x, str)))
    types = {**dict(zip(names, args, strict=True)), **dict(zip(op.outputs, results, strict=True))}
    inputs = tuple(Input(n, tuple(const(1) for _ in types[n].shape)) for n in names)
    one = Graph("one", inputs, op.outputs, op.outputs, (), (), (op,), (), (), types)
    with pytest.raises(GraphError, match=message.replace("[", r"\[").replace("]", r"\]")):
        verify_graph(one)
