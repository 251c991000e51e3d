"""Quantised models: the ops that torch.export finds in them, and models as libraries make them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.graph_text import step_text
from hardtack.codegen.ir.types import DType
from hardtack.exporter import narrowed, to_graphs
from hardtack.exporter.errors import UnsupportedOpError
from hardtack.exporter.precision import Precision
from tests.export.checks import assert_same, check, eager, entry, ours
from tests.support.torch_versions import TORCH
from tests.support.torchao_models import CONFIGS, QUANTISERS, of_pt2e, of_torchao

q = torch.ops.quantized_decomposed
I8, U8, I16, I32 = torch.int8, torch.uint8, torch.int16, torch.int32
X = torch.randn(6, 32, generator=torch.Generator().manual_seed(0)) * 3
BYTES = torch.arange(-96, 96, dtype=I8).view(6, 32)
SCALES, ZEROS = torch.rand(6, generator=torch.Generator().manual_seed(1)) + 0.01, torch.arange(-3, 3)
GROUPS = torch.rand(6, 4, generator=torch.Generator().manual_seed(2)) + 0.01
TOKENS = GROUPS[:, :1].double(), torch.arange(6).view(6, 1)


def _numbers(scale: float, zero_point: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([scale], dtype=torch.float64), torch.tensor([zero_point])


OPS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "per tensor": (lambda x: q.quantize_per_tensor(x, 0.0371, 3, -128, 127, I8), X),
    "per tensor, half": (lambda x: q.quantize_per_tensor(x, 0.0371, 120, 0, 255, U8), X.half()),
    "per tensor, few bits": (lambda x: q.quantize_per_tensor(x, 0.7, 0, -8, 7, I8), X),
    "per tensor, 16 bits": (lambda x: q.quantize_per_tensor(x, 1e-4, 0, -32768, 32767, I16), X),
    "by tensors": (lambda x: q.quantize_per_tensor.tensor(x, *_numbers(0.1, 5), -128, 127, I8), X),
    "by tensors, f32": (lambda x: q.quantize_per_tensor.tensor(x, SCALES[0], ZEROS[1], -128, 127, I8), X),
    "by tensors, limits": (
        lambda x: q.quantize_per_tensor.tensor2(x, *_numbers(0.1, 5), torch.tensor(-20), torch.tensor(20), I8),
        X.bfloat16(),
    ),
    "back": (lambda x: q.dequantize_per_tensor(x, 0.0371, 3, -128, 127, I8), BYTES),
    "back, half": (lambda x: q.dequantize_per_tensor(x, 0.37, 9, -128, 127, I8, out_dtype=torch.bfloat16), BYTES),
    "back by tensors": (lambda x: q.dequantize_per_tensor.tensor(x, *_numbers(0.1, 7), -128, 127, I8), BYTES),
    "back by tensors, half": (
        lambda x: q.dequantize_per_tensor.tensor(x, *_numbers(0.3, 99), -128, 127, I8, out_dtype=torch.float16),
        BYTES,
    ),
    "back by tensors, f64": (
        lambda x: q.dequantize_per_tensor.tensor(x, *_numbers(0.3, 99), -128, 127, I8, out_dtype=torch.float64),
        BYTES,
    ),
    "per channel": (lambda x: q.quantize_per_channel(x, SCALES, ZEROS, 0, -128, 127, I8), X),
    "per last channel": (lambda x: q.quantize_per_channel(x.T, SCALES.double(), ZEROS, 1, -128, 127, I8), X),
    "per channel back": (lambda x: q.dequantize_per_channel(x, SCALES, ZEROS, 0, -128, 127, I8), BYTES),
    "per channel back, symmetric": (lambda x: q.dequantize_per_channel(x.T, SCALES, None, 1, -128, 127, I8), BYTES),
    "parameters": (lambda x: q.choose_qparams.tensor(x, -128, 127, 1e-5, I8), X),
    "parameters, half": (lambda x: q.choose_qparams.tensor(x, 0, 255, 1e-5, U8), X.bfloat16()),
    "parameters of positive numbers": (lambda x: q.choose_qparams.tensor(x, 0, 255, 1e-5, U8), X.abs() + 1),
    "parameters of zeros": (lambda x: q.choose_qparams.tensor(x, -128, 127, 1e-5, I8), X * 0),
    "parameters, symmetric": (lambda x: q.choose_qparams_symmetric.tensor(x, -127, 127, 1e-5, I8), X),
    "parameters, symmetric, unsigned": (lambda x: q.choose_qparams_symmetric.tensor(x, 0, 255, 1e-5, U8), X),
    "parameters per token": (lambda x: q.choose_qparams_per_token(x, I8), X.half()),
    "parameters per token, asymmetric": (lambda x: q.choose_qparams_per_token_asymmetric(x, I8), X),
    "per token": (lambda x: q.quantize_per_token(x, *TOKENS, -128, 127, I8), X),
    "per token back": (lambda x: q.dequantize_per_token(x, *TOKENS, -128, 127, I8, torch.float32), BYTES),
    "per group": (lambda x: q.quantize_per_channel_group(x, GROUPS, ZEROS[:4].expand(6, 4), -8, 7, I8, 8), X),
    "per group back": (
        lambda x: q.dequantize_per_channel_group(x, GROUPS, ZEROS[:4].expand(6, 4), -8, 7, I8, 8, torch.bfloat16),
        BYTES,
    ),
    "per row as a group": (
        lambda x: q.dequantize_per_channel_group(x, GROUPS[:, :1], None, -8, 7, I8, 128, torch.float32),
        BYTES,
    ),
    "no fusion": (lambda x: q.convert_element_type.no_fuse(x, torch.bfloat16), X),
}


ON, OFF = torch.ones(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
PER_TENSOR = torch.tensor([0.37]), torch.tensor([3], dtype=I32)
FAKE: dict[str, Callable[..., Any]] = {
    "per tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.037, 3, -128, 127),
    "unsigned": lambda x: torch.fake_quantize_per_tensor_affine(x, 1 / 3, 128, 0, 255),
    "by tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, *PER_TENSOR, -8, 7),
    "by tensors, on": lambda x: _BY_TENSORS(x, *PER_TENSOR, ON, -8, 7),
    "by tensors, off": lambda x: _BY_TENSORS(x, *PER_TENSOR, OFF, -8, 7),
    "per channel": lambda x: torch.fake_quantize_per_channel_affine(x, SCALES, ZEROS.int(), 0, -128, 127),
    "by an axis": lambda x: torch.fake_quantize_per_channel_affine(x.T, SCALES, ZEROS.int(), 1, -8, 7),
}
_BY_TENSORS = torch.ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("name", FAKE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_numbers_are_rounded_to_few_as_in_torch(name: str, dtype: torch.dtype) -> None:
    function, x = FAKE[name], X.to(dtype, copy=True)
    x[0, :4] = torch.tensor([torch.inf, -torch.inf, torch.nan, 60000.0])
    for a, b in zip(ours(to_graphs(function, (x,)), (x,)), eager(function, (x,)), strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", OPS)
def test_an_op_rounds_as_in_torch(name: str) -> None:
    function, x = OPS[name]
    found, want = ours(to_graphs(function, (x,)), (x,)), eager(function, (x,))
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def test_rows_of_any_number_are_quantised() -> None:
    def forward(x: torch.Tensor) -> Any:
        scale, zero_point = q.choose_qparams.tensor(x, -128, 127, 1e-5, I8)
        small = q.quantize_per_tensor.tensor(x, scale, zero_point, -128, 127, I8)
        return small, q.dequantize_per_tensor.tensor(small, scale, zero_point, -128, 127, I8)

    check(forward, (X,), ({0: Dim.DYNAMIC},), [(X[:1],), (X[:3] * 100,)], atol=0)


@pytest.mark.parametrize("depth", [1, 1024, 1025, 2500])
def test_a_product_of_bytes_is_exact(depth: int) -> None:
    """Sums of 2500 products of -128 go beyond what f32 has. Eager's own is of no use where the depth is 1."""
    rows = torch.randint(-128, 128, (20, depth), generator=torch.Generator().manual_seed(3)).to(I8)
    rows[:2] = -128
    columns = rows[:16].flip(0).T.contiguous()
    exported = to_graphs(torch._int_mm, (rows, columns), None, ({0: Dim.DYNAMIC}, None))
    for x in (rows, rows[:18]):
        (found,) = ours(exported, (x, columns))
        assert torch.equal(found, x.to(I32) @ columns.to(I32))
    assert found[0, -1] == depth * 2**14


def test_a_product_of_bytes_stays_one() -> None:
    """Whatever is behind it: whole factors are not folded into a weight that they would not fit in."""
    weight = BYTES[:, :32]
    for forward in (
        lambda x, w, z, s: torch._int_mm(x, w.t()),
        lambda x, w, z, s: torch._int_mm(x, w.t()) * 7 + 3,
        lambda x, w, z, s: torch._int_mm(x, w.t()).float() * s[:, 0],
    ):
        graph = entry(check(Stored(forward, 128).eval(), (weight.repeat(3, 1),), atol=0)).graph
        (product,) = (op for op in graph.ops if op.kind == "matmul")
        assert [str(graph.type_of(x).dtype) for x in product.inputs] == ["i8", "i8"]
        assert graph.types[product.outputs[0]].dtype is DType.I32


def test_a_product_of_bytes_of_dynamic_depth_is_exact() -> None:
    rows, wide = torch.full((20, 40), -128, dtype=I8), torch.full((20, 3000), -128, dtype=I8)
    depth = Dim("depth", max=4096)
    check(torch._int_mm, (rows, rows.T[:, :16]), ({1: depth}, {0: depth}), [(wide, wide.T[:, :16])], atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_with_packed_bytes(dtype: torch.dtype) -> None:
    weight, scales = BYTES[:, :32], SCALES.to(dtype)
    check(torch._weight_int8pack_mm, (X.to(dtype), weight, scales), atol=1e-3 if dtype is torch.float32 else 0.5)


FLOATS = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.sweep(over="by_row")
@pytest.mark.parametrize("out", [None, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_scaled_product(dtype: torch.dtype, by_row: bool, out: torch.dtype | None) -> None:
    if by_row and TORCH < (2, 12):
        pytest.skip("torch 2.11 has no scales of rows on CPUs to compare with")
    weight = (torch.randn(16, 32, generator=torch.Generator().manual_seed(3)) * 40).to(dtype).t()
    scales = (GROUPS[:, :1], torch.rand(1, 16) + 0.01) if by_row else (SCALES[0], SCALES[1])
    bias = torch.randn(16).to(out or torch.bfloat16)
    atol = {None: 33, torch.float32: 1e-3, torch.bfloat16: 4, torch.float16: 0.5}[out]  # the last place of some 400
    for rest in ((), (bias,)):
        check(
            lambda x, w, sx, sw, *b: torch._scaled_mm(x, w, sx, sw, *b, out_dtype=out).float(),
            (X.to(FLOATS[0]), weight, *scales, *rest),
            atol=atol,
        )


def test_a_scale_of_a_scaled_product_of_float8_is_refused() -> None:
    x, one = X.to(FLOATS[0]), torch.ones(())
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(lambda x, w: torch._scaled_mm(x, w, one, one, scale_result=one), (x, x.t()))
    assert (
        "a scaled product with a scale of its result, of f8e4m3fn, is not supported: take the result as bfloat16 or "
        "float32, and divide by the scale before it is made float8" in str(caught.value)
    )
    check(
        lambda x, w: torch._scaled_mm(x, w, one, one, scale_result=one, out_dtype=torch.float32), (x, x.t()), atol=0.1
    )


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "scales"),
    [
        (16, 256, 256, ((16, 2), (2, 2))),
        (16, 2048, 16, ((16, 16), (16, 16))),
        (16, 2048, 16, ((16, 16), (16, 1))),
        (256, 384, 48, ((2, 3), (3, 48))),
    ],
)
@pytest.mark.skipif(TORCH < (2, 13), reason="torch 2.11 and 2.12 refuse them themselves")
def test_scales_of_blocks(rows: int, depth: int, columns: int, scales: tuple[tuple[int, int], ...]) -> None:
    """Eager has them on GPUs alone: by what torch says that they are, each for 128 along K, or for 128 x 128."""
    x, sx, sw = torch.randn(rows, depth).to(FLOATS[0]), *(torch.rand(s) for s in scales)  # type: ignore[misc]
    weight = torch.randn(columns, depth).to(FLOATS[0]).t()
    args = (x, weight, sx, sw)
    exported = to_graphs(lambda x, w, a, b: torch._scaled_mm(x, w, a, b, out_dtype=torch.float32), args)
    left = sx.repeat_interleave(128, 1)
    if scales[0][0] != rows:
        left = left.repeat_interleave(128, 0)
    right = sw.repeat_interleave(128, 0)
    if scales[1][1] != columns:
        right = right.repeat_interleave(128, 1)[:, :columns]
    want = (x.double() * left[:, :depth].double()) @ (weight.double() * right[:depth].double())
    (got,) = ours(exported, args)
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-3)


class OutDtype(nn.Module):
    """A product of int8 in int32 as torchao has it in programs for GPUs."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch._higher_order_ops.out_dtype(torch.ops.aten.mm.default, torch.int32, x, y)


def test_products_with_a_dtype_of_their_own() -> None:
    x, y = (torch.randint(-128, 128, s).to(torch.int8) for s in ((5, 300), (300, 7)))
    (got,) = ours(to_graphs(OutDtype().eval(), (x, y)), (x, y))
    assert torch.equal(got, (x.long() @ y.long()).int())


class OutDtypeSum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch._higher_order_ops.out_dtype(torch.ops.aten.mul.Tensor, torch.int32, x, y)


def test_other_ops_with_a_dtype_of_their_own_are_refused() -> None:
    x = torch.ones(5, 5, dtype=torch.int8)
    words = "aten.mul.Tensor with results of i32: out_dtype is supported for products (mm, bmm) of int8 in int32"
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(OutDtypeSum().eval(), (x, x))
    assert words in str(caught.value)


class Stored(nn.Module):
    """A weight of int8 (8, 32), zero points and scales of groups of 8, and how they are read."""

    def __init__(self, function: Callable[..., Any], codes: int = 8) -> None:
        super().__init__()
        self.function = function
        g = torch.Generator().manual_seed(5)
        self.w = nn.Buffer(torch.randint(-codes, codes, (8, 32), generator=g).to(I8))
        self.z = nn.Buffer(torch.randint(-8, 8, (8, 4), generator=g).to(I8))
        self.s = nn.Buffer(torch.rand(8, 4, generator=g) + 0.01)

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x, self.w, self.z, self.s)


def _wide(t: torch.Tensor) -> torch.Tensor:
    return t.repeat_interleave(8, 1)


def _of_pt2e(x: torch.Tensor, w: torch.Tensor, z: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return F.linear(x, q.dequantize_per_channel(w, s[:, 0], z[:, 0].long(), 0, -128, 127, I8))


SPELLINGS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "a conversion": (lambda x, w, z, s: F.linear(x, w.to(x.dtype)), []),
    "of the transpose": (lambda x, w, z, s: x @ w.t().float(), []),
    "a scale behind": (lambda x, w, z, s: F.linear(x, w.float()) * s[:, 0], []),
    "read twice": (lambda x, w, z, s: F.linear(x, w.float()) + F.linear(x * 2, w.float()), []),
    "a part": (lambda x, w, z, s: F.linear(x, w.float()[:5]), []),
    "per tensor": (lambda x, w, z, s: F.linear(x, (w.float() - 3) * 0.1), ["sub [32, 8]", "mul [32, 8]"]),
    "per channel": (lambda x, w, z, s: F.linear(x, w.float() * s[:, :1]), ["mul [32, 1]"]),
    "per channel, of integers": (_of_pt2e, ["sub [32, 1]", "mul [32, 1]"]),
    "groups": (
        lambda x, w, z, s: F.linear(x, ((w.view(8, 4, 8).float() - z[..., None].float()) * s[..., None]).view(8, 32)),
        ["sub [8, 1]", "mul [8, 1]"],
    ),
    "groups repeated": (
        lambda x, w, z, s: F.linear(x, (w.float() - _wide(z).float()) * _wide(s)), ["sub [8, 1]", "mul [8, 1]"]
    ),
    "groups expanded": (
        lambda x, w, z, s: x @ (s[:, :, None].expand(8, 4, 8).reshape(8, 32) * w.float()).t(), ["mul [8, 1]"]
    ),
    "groups of integers": (
        lambda x, w, z, s: F.linear(x, (w.int() - _wide(z.int())).float() * _wide(s)), ["sub [8, 1]", "mul [8, 1]"]
    ),
    "a shift behind": (lambda x, w, z, s: F.linear(x, _wide(s) * w.float() + 0.5), ["mul [8, 1]", "add [32, 8]"]),
    "of a transposed weight": (
        lambda x, w, z, s: x @ (w.t().float().view(4, 8, 8) * s.t()[:, None]).view(32, 8), ["mul [8, 1]"]
    ),
    "in blocks": (
        lambda x, w, z, s: F.linear(x, w.float() * _wide(s[:2].repeat_interleave(4, 0))), ["mul [8, 4]"]
    ),
    "of half numbers": (lambda x, w, z, s: F.linear(x.bfloat16(), w.bfloat16()).float(), []),
    "rounded in turn": (
        lambda x, w, z, s: F.linear(x.half(), (w.half() - _wide(z).half()) * _wide(s).half()).float(),
        ["sub [8, 1]", "mul [8, 1] to f16"],
    ),
    "rounded each time": (
        lambda x, w, z, s: F.linear(x.half(), (w.half() - _wide(s).half()) * _wide(s).half()).float(),
        ["sub [8, 1] to f16", "mul [8, 1] to f16"],
    ),
    "rounded at the end": (
        lambda x, w, z, s: F.linear(x.half(), ((w.int() - _wide(z.int())) * _wide(s)).half()).float(),
        ["sub [8, 1]", "mul [8, 1] to f16"],
    ),
    "rounded on the way": (
        lambda x, w, z, s: F.linear(x, (w.half() * s[:, :1].half()).float()), ["mul [32, 1] to f16"]
    ),
    "exact, and the last": (  # whose result is the constant's: it stays of its type
        lambda x, w, z, s: F.linear(x.half(), w.half() * ((s[:, :1] > 0.3) * 0.5 + 0.25).half()).float(),
        ["mul [32, 1] to f16"],
    ),
    "of unsigned": (lambda x, w, z, s: F.linear(x, (w.view(U8) & 15).float() * s[:, :1]), ["mul [32, 1]"]),
}  # fmt: skip


@pytest.mark.sweep(over="codes")
@pytest.mark.parametrize("codes", [8, 128])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_constant_says_what_it_was_dequantised_from(spelling: str, codes: int) -> None:
    function, steps = SPELLINGS[spelling]
    exported = check(Stored(function, codes).eval(), (X,), atol=1e-3)
    (weight,) = (c for c in entry(exported).graph.constants if len(entry(exported).graph.types[c.name].shape) == 2)
    found = weight.quantized
    assert found is not None
    assert [step_text(s) for s in found.steps] == steps
    assert found.bits == (4 if codes == 8 or spelling == "of unsigned" else 8)
    assert exported.store[found.codes.key].array.dtype.itemsize == 1


def test_a_constant_of_floats_was_dequantised_from_nothing() -> None:
    functions: list[Callable[..., Any]] = [
        lambda x, w, z, s: F.linear(x, _wide(s)),
        lambda x, w, z, s: F.linear(x, w.float() / 3),
        lambda x, w, z, s: F.linear(x.half(), (w.bfloat16() * 0.1).half()),
        lambda x, w, z, s: F.linear(x, (w.int() - (1 << 23)).float()),
        lambda x, w, z, s: F.linear(x, (w.long() + torch.full((1,), -(1 << 63))).float()),
    ]
    for function in functions:
        exported = check(Stored(function, 128).eval(), (X,), atol=1e-1)
        assert all(c.quantized is None for c in entry(exported).graph.constants)


def test_a_zero_point_of_zero_is_no_step_and_stays_what_it_is() -> None:
    module = Stored(lambda x, w, z, s: F.linear(x, (w.float() - _wide(z).float()) * s[:, :1])).eval()
    module.z.zero_()
    exported = check(module, (X,), atol=1e-3)
    (weight,) = (c for c in entry(exported).graph.constants if c.quantized is not None)
    assert weight.quantized is not None
    assert [s.kind for s in weight.quantized.steps] == ["mul"]
    assert exported.store.inlined == {"z"}


def test_a_scale_behind_a_convolution_is_folded_into_weights_of_bytes() -> None:
    """No kernel of convolutions reads codes; one of products may."""
    image = torch.randn(2, 8, 6, 6)

    def forward(x: torch.Tensor, w: torch.Tensor, z: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w.float().view(8, 8, 2, 2)) * s[:, :1, None]

    graph = entry(check(Stored(forward).eval(), (image,), atol=1e-3)).graph
    assert [op.kind for op in graph.ops] == ["conv"]


def test_large_weights_are_folded_whatever_lies_in_between() -> None:
    """Wide integers and repeated scales are many times as large as what they are made of."""
    module = Stored(SPELLINGS["groups of integers"][0]).eval()
    for name, t in (("w", module.w), ("z", module.z), ("s", module.s)):
        setattr(module, name, nn.Buffer(t.repeat(64, 32)))
    graph = entry(to_graphs(module, (torch.randn(2, 1024),))).graph
    assert [op.kind for op in graph.ops] == ["matmul"]
    (weight,) = graph.constants
    assert weight.quantized is not None
    assert [s.runs for s in weight.quantized.steps] == [(8, 1), (8, 1)]


def test_a_large_index_of_bytes_is_not_stored_wider() -> None:
    class Index(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = nn.Buffer(torch.randint(0, 5, (1 << 18,)).to(U8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[self.rows.long()]

    exported = check(Index().eval(), (torch.randn(6),), atol=0)
    assert [exported.store[c.key].dtype for c in entry(exported).graph.constants] == [DType.U8]


@pytest.mark.parametrize("spelling", ["a conversion", "groups"])
def test_a_narrow_model_has_its_weights_in_its_own_type(spelling: str) -> None:
    exported = to_graphs(Stored(SPELLINGS[spelling][0]).eval(), (X,))
    narrow, _ = narrowed(exported, Precision(DType.BF16, fewest=0))
    (weight,) = entry(narrow).graph.constants
    assert narrow.store[weight.key].dtype is DType.BF16


class Network(nn.Module):
    """Convolutions, dense, grouped and by channel; a sum; pooling; a product."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.last = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        y = torch.max_pool2d(y + torch.relu(self.second(y)), 2)
        return self.last(y.mean((2, 3)))


@pytest.mark.parametrize("quantiser", QUANTISERS)
def test_models_of_pt2e(quantiser: str) -> None:
    """As convert_pt2e gives them, which cannot be put in eval mode, and exported again."""
    x = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(4))
    module = of_pt2e(Network().eval(), x, quantiser)
    assert module.training
    want = eager(module, (x,))
    assert_same(ours(to_graphs(module, (x,)), (x,)), want)
    assert_same(ours(to_graphs(torch.export.export(module, (x,))), (x,)), want)


@pytest.mark.parametrize("config", CONFIGS)
def test_models_of_torchao(config: str) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).eval()
    x = torch.randn(20, 64)
    quantised = of_torchao(module, config)
    assert not torch.equal(eager(quantised, (x,))[0], eager(module, (x,))[0])
    check(quantised, (x,), ({0: Dim.DYNAMIC},), [(torch.randn(33, 64),)])


def test_ops_that_are_registered_between_two_exports_are_taken_apart() -> None:
    """As those of a library are that is imported after the first."""
    check(lambda x: x + 1, (X,))
    with torch.library._scoped_library("hardtack_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
        check(lambda x: torch.ops.hardtack_test.twice(x), (X,))
