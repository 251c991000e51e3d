"""Products of int8 and of floats of 8 bits on GPUs, through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
import pytest
import torch
from torch import nn
from torch.export import Dim

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.nest_verify import verify_nest
from hardtack.codegen.ir.nests import TemplateNest
from hardtack.codegen.ir.roles import Sizes
from hardtack.codegen.ir.types import BYTES, DType
from hardtack.codegen.lower.gpu_matmul import Gemm
from hardtack.codegen.machine.data import A100, B200, H200, MI300X
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.tune import gemm_plan as gemm_plans
from hardtack.codegen.tune.candidates import candidates, problem
from hardtack.codegen.tune.gemm_plan import GemmPlan, GemmShape, plan_gemm
from hardtack.exporter import narrowed, to_graphs
from hardtack.exporter.precision import Precision
from tests.codegen.compare import Compiled, compile_module
from tests.triton import template_cases as cases
from tests.triton.simulate import Simulator
from tests.triton.template_runs import lowered, run
from tests.triton.test_loops import on_gpu

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FACTORS = {E4M3: "pointer_type(tl.float8e4nv)", E5M2: "pointer_type(tl.float8e5)"}


def by_bytes(compiled: Compiled) -> list[str]:
    """The kernels that multiply floats of 8 bits as they are."""
    return [t for t in compiled.entry.sources.values() if any(name in t for name in FACTORS.values())]


@pytest.mark.sweep(share=2)
@pytest.mark.parametrize(
    ("arch", "dtype"),
    [(arch, d) for arch in ("sm_80", "sm_90", "sm_100") for d in BYTES if arch != "sm_80" or d is DType.I8],
    ids=str,
)
@pytest.mark.parametrize(
    "case",
    [
        lambda d: cases.scaled_bytes(40, 70, 100, d, dynamic=True),
        lambda d: cases.scaled_bytes(1, 33, 64, d),
        lambda d: cases.gemm(30, 51, 64, d, constant=False, transposed=False),
        lambda d: cases.gemm(30, 51, 7, d, constant=False, left="columns"),
        lambda d: cases.gemm(9, 20, 64, d, batch=(2, 3), constant=False, left="heads"),
        lambda d: cases.gemm(17, 24, 2100, d),
        lambda d: cases.gemm(5, 6, 0, d),
    ],
    ids=["dynamic", "row", "rows_of_b", "columns_of_a", "heads", "split", "empty"],
)
def test_products_of_bytes(case: Callable[[DType], cases.Case], dtype: DType, arch: str) -> None:
    made = case(dtype)
    cases.close(made, run(made.graph, made.tensors, made.sizes, arch), made.want(made.tensors))


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("dtype", BYTES, ids=str)
@pytest.mark.parametrize(("rows", "programs"), [(128, 132), (128, 0), (192, 0)])
def test_streams_of_bytes(monkeypatch: pytest.MonkeyPatch, dtype: DType, rows: int, programs: int) -> None:
    """Bulk copies are for products too large for an interpreter: here they are preferred at any size."""
    estimate = gemm_plans.estimate

    def preferred(p: GemmPlan, *rest: Any) -> float:
        wanted = p.variant == "stream" and (p.block_m, p.block_n, p.programs) == (rows, 128, programs)
        return 0.0 if wanted else estimate(p, *rest)

    monkeypatch.setattr(gemm_plans, "estimate", preferred)
    monkeypatch.setattr(gemm_plans, "PAIRS_BY_COST", True)
    made = cases.scaled_bytes(136, 272, 208, dtype)
    chosen = [d.partner for d in lowered(made.graph, "sm_90", made.sizes).decisions if d.kind == "template"]
    assert chosen == [f"gemm stream {rows}x128x128"]
    cases.close(made, run(made.graph, made.tensors, made.sizes), made.want(made.tensors))


def test_sums_of_int8_are_exact_beyond_what_f32_has() -> None:
    a, b = torch.full((3, 70_000), 127, dtype=torch.int8), torch.full((70_000, 16), 127, dtype=torch.int8)
    a[0, 0] = b[1, 1] = 126
    module = nn.Module()
    module.forward = lambda a, b: torch._int_mm(a, b)  # type: ignore[method-assign]
    (got,) = on_gpu(module, (a, b))(a, b)
    assert torch.equal(got, (a.long() @ b.long()).int())
    assert got[0, 0] > 2**24


@pytest.mark.parametrize("rows", [1, pytest.param(40, marks=pytest.mark.sweep(only=True))])  # 40: two minutes
def test_sums_that_may_leave_int32_are_made_by_loops(rows: int) -> None:
    """Modulo 2^32: some tensor cores saturate."""
    depth = 131_100
    a, b = torch.full((rows, depth), -128, dtype=torch.int8), torch.full((depth, 2), -128, dtype=torch.int8)
    module = nn.Module()
    module.forward = lambda a, b: torch._int_mm(a, b)  # type: ignore[method-assign]
    compiled = on_gpu(module, (a, b))
    assert not any("tl.dot" in text for text in compiled.entry.sources.values())
    said = [d.reason for d in compiled.entry.decisions if d.partner == "reductions"]
    assert said == ["sums of 131100 products of int8 may leave int32"]
    if rows > 1:  # Triton's interpreter cannot wrap the sum of a whole row
        assert torch.equal(compiled(a, b)[0], torch.full((rows, 2), depth * 2**14 - 2**32, dtype=torch.int32))


def test_a_nest_of_int8_that_is_too_deep_is_refused() -> None:
    made = cases.gemm(40, 64, 64, DType.I8)
    low = lowered(made.graph, "sm_90", made.sizes)
    nest = next(n for n in low.nests if isinstance(n, TemplateNest))
    sizes = Sizes({"*batch": (), "M": const(40), "N": const(64), "K": const(131_072)})
    with pytest.raises(LoopError, match="sums of 131072 products of int8 may leave int32"):
        nest.template.verify_sizes(nest, sizes)


class Scaled(nn.Module):
    """A product of floats of 8 bits, a constant's among them, with scales of its rows."""

    def __init__(self, k: int, n: int, dtype: torch.dtype = E4M3, fast: bool = False) -> None:
        super().__init__()
        self.codes = nn.Buffer((torch.randn(n, k) * 40).to(dtype))
        self.scales = nn.Buffer(torch.rand(1, n) * 0.01)
        self.dtype, self.fast = dtype, fast

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ones = torch.ones(x.shape[0], 1, device=x.device)
        return torch._scaled_mm(
            x.to(self.dtype), self.codes.t(), ones, self.scales, out_dtype=torch.bfloat16, use_fast_accum=self.fast
        )

    def want(self, x: torch.Tensor) -> torch.Tensor:
        """What eager gives where it has scales of rows on CPUs, which torch 2.11 lacks."""
        return (x.to(self.dtype).float() @ self.codes.float().t() * self.scales).bfloat16()


class Behind(nn.Module):
    """Products of values that are views of what was converted."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        one = torch.ones((), device=x.device)
        a, b = x.to(E4M3), y.to(E4M3)
        flat = a.reshape(4, 2, 32).permute(1, 0, 2).reshape(8, 32)
        return (
            torch._scaled_mm(flat, b[:, ::2].t(), one, one, out_dtype=torch.float32),
            torch._scaled_mm(a.flip(0), b[4:8, :32].t(), one, one, out_dtype=torch.float32) + a.float()[:, :4],
            torch._scaled_mm(a[:, :1].expand(8, 32), b[:16, 32:].t(), one, one, out_dtype=torch.float32),
        )


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=str)
def test_a_scaled_product_multiplies_codes(rows: int, dtype: torch.dtype) -> None:
    """Of one row the matrix alone is read as codes, which takes no tensor cores."""
    torch.manual_seed(0)
    module, x = Scaled(256, 40, dtype).eval(), torch.randn(rows, 256)
    compiled = on_gpu(module, (x,))
    assert len(by_bytes(compiled)) == (rows > 1)
    assert not any("tile_product(" in text for text in compiled.entry.sources.values())
    torch.testing.assert_close(compiled(x)[0], module.want(x), rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize("fast", [True, False])
def test_sums_stay_on_tensor_cores_only_where_the_model_says_so(fast: bool) -> None:
    torch.manual_seed(0)
    compiled = on_gpu(Scaled(64, 32, fast=fast).eval(), (torch.randn(6, 64),))
    (text,) = by_bytes(compiled)
    assert ("max_num_imprecise_acc=64" in text) != fast


def test_a_scaled_product_that_is_computed_in_bf16_is_still_one_of_codes() -> None:
    """Its operands are narrowed for machines that have no float8; others look through that."""
    exported = to_graphs(Scaled(256, 256).eval(), (torch.randn(64, 256),))
    narrow, report = narrowed(exported, Precision(DType.BF16))
    assert report.num_narrowed == 1
    compiled = compile_entry(narrow.entries["forward"].graph, {}, TritonBackend(H200))
    assert any(FACTORS[E4M3] in text for text in compiled.sources.values())


def test_views_move_in_front_of_the_conversion() -> None:
    torch.manual_seed(0)
    module, args = Behind(), (torch.randn(8, 32), torch.randn(24, 64))
    compiled = on_gpu(module, args)
    assert len(by_bytes(compiled)) == 3
    for got, want in zip(compiled(*args), module(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_a_dynamic_number_of_rows() -> None:
    torch.manual_seed(0)
    module = Scaled(64, 48).eval()
    compiled = on_gpu(module, (torch.randn(5, 64),), ({0: Dim.AUTO},))
    assert by_bytes(compiled)
    for rows in (2, 5, 70):
        x = torch.randn(rows, 64)
        torch.testing.assert_close(compiled(x)[0], module.want(x), rtol=2**-7, atol=2**-7)


class Widened(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.to(E4M3).float() @ y.to(E4M3).float()


def test_what_a_model_widens_itself_is_added_up_in_f32() -> None:
    """Tensor cores keep 14 bits of such sums, which nobody asked for."""
    torch.manual_seed(0)
    args = (torch.randn(6, 64), torch.randn(64, 16))
    compiled = on_gpu(Widened(), args)
    assert not by_bytes(compiled)
    torch.testing.assert_close(compiled(*args)[0], Widened()(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("machine", [A100, MI300X], ids=lambda m: m.name)
def test_machines_without_float8_widen_it(machine: Gpu) -> None:
    torch.manual_seed(0)
    module, x = Scaled(64, 32).eval(), torch.randn(6, 64)
    compiled = compile_module(module, (x,), None, None, TritonBackend(machine), Simulator)
    assert not by_bytes(compiled)
    if machine.device == "cuda":  # Triton 3.6 interprets no kernel of the other
        torch.testing.assert_close(compiled(x)[0], module.want(x), rtol=2**-7, atol=2**-7)


class Codes(nn.Module):
    """A layer of codes with zero points, as PT2E writes one, its weight of int8 or, as ONNX may have it, of uint8."""

    def __init__(self, k: int, n: int, unsigned: bool) -> None:
        super().__init__()
        self.zero = 131.0 if unsigned else 0.0
        low, dtype = (0, torch.uint8) if unsigned else (-128, torch.int8)
        self.weight = nn.Buffer(torch.randint(low, low + 256, (n, k)).to(dtype))
        self.scales = nn.Buffer(torch.rand(n, 1) * 0.01)
        self.bias = nn.Buffer(torch.randn(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        codes = ((x / 0.05).round() + 17).clamp(0, 255).to(torch.uint8)
        back, weight = (codes.float() - 17) * 0.05, (self.weight.float() - self.zero) * self.scales
        made = nn.functional.linear(back, weight, self.bias).relu()
        return ((made / 0.1).round() - 3).clamp(-128, 127).to(torch.int8)


@pytest.mark.parametrize("machine", [A100, H200], ids=lambda m: m.name)
@pytest.mark.parametrize(("rows", "unsigned"), [(1, False), (40, False), (40, True)])
def test_products_of_what_codes_stand_for_are_products_of_int8(rows: int, unsigned: bool, machine: Gpu) -> None:
    torch.manual_seed(0)
    module, x = Codes(96, 33, unsigned).eval(), torch.randn(rows, 96)
    compiled = compile_module(module, (x,), None, None, TritonBackend(machine), Simulator)
    (said,) = (d for d in compiled.entry.decisions if d.kind == "integers")
    assert said.accepted == (rows > 1)
    assert any("out_dtype=tl.int32" in text for text in compiled.entry.sources.values()) == (rows > 1)
    assert (compiled(x)[0].int() - module(x).int()).abs().max() <= 1  # on the border of two codes


def test_convolutions_of_codes_stay_float32_on_gpus() -> None:
    class Convolved(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weight = torch.arange(-36, 36).reshape(4, 2, 3, 3).to(torch.int8)
            return nn.functional.conv2d(x.to(torch.int8).float() * 0.5, weight.float() * 0.25)

    x = torch.randint(-100, 100, (2, 2, 7, 7)).float()
    compiled = on_gpu(Convolved(), (x,))
    (said,) = (d for d in compiled.entry.decisions if d.kind == "integers")
    assert (said.accepted, said.reason) == (False, "GPUs have no convolution of int8")
    torch.testing.assert_close(compiled(x)[0], Convolved()(x))


@pytest.mark.parametrize("machine", [A100, H200, B200], ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", BYTES, ids=str)
def test_every_plan_for_bytes_is_legal(dtype: DType, machine: Gpu) -> None:
    for m, n, k in ((1, 4096, 4096), (16, 1000, 48), (300, 64, 100_000), (4096, 4096, 4096)):
        for streamable in (True, False):
            shape = GemmShape(1, m, n, k, dtype, depth_first=True, one_row=m == 1, streamable=streamable)
            for plan in candidates(shape, machine):
                assert problem(plan, shape, machine) == ""
                assert plan.block_k >= 32  # type: ignore[union-attr]


def test_plans_that_bytes_have_no_kernel_for() -> None:
    shape = GemmShape(1, 1, 4096, 4096, DType.I8, depth_first=True, one_row=True)
    row = GemmPlan("vector", 1, 16, 64, 4, 1, 1, "")
    assert problem(row, shape, H200) == "the variant vector takes no i8"
    shallow = GemmPlan("tile", 16, 32, 16, 4, 3, 1, "")
    assert problem(shallow, shape, H200) == "block_k is 16; it must be a power of two of at least 32"
    assert plan_gemm(shape, H200).variant == "tile"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sums": "float8"}, "it adds up i8 as 'float8'"),
        ({"plan": GemmPlan("vector", 1, 16, 64, 4, 1, 1, "")}, "its variant vector takes no i8"),
        ({"plan": GemmPlan("tile", 16, 32, 16, 4, 3, 1, "")}, "tensor cores take 32 of i8 along K, its blocks have 16"),
    ],
)
def test_a_nest_of_bytes_is_verified(change: dict[str, Any], message: str) -> None:
    made = cases.gemm(40, 64, 64, DType.I8)
    low = lowered(made.graph, "sm_90", made.sizes)
    nest = next(n for n in low.nests if isinstance(n, TemplateNest))
    assert isinstance(nest.template, Gemm)
    verify_nest(nest, low.buffers)
    with pytest.raises(LoopError, match=message):
        verify_nest(replace(nest, template=replace(nest.template, **change)), low.buffers)
