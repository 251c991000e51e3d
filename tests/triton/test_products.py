"""Products of one activation as one: how many launches there are, that nothing is copied, and results against eager."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.backends.triton.triton_backend import PASSES, TritonBackend
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.plan import Launch
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Join
from hardtack.codegen.machine.data import H200
from hardtack.codegen.passes.gpu.join_products import KIND
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.tune.choice import Tuning, key_of, plan_fields
from hardtack.codegen.tune.gemm_plan import GemmShape, plan_gemm
from hardtack.codegen.tune.table import TableEntry, TuningTable
from hardtack.exporter import to_graphs
from tests.codegen.compare import Compiled, assert_same, eager
from tests.models.test_bundles import load
from tests.triton.test_loops import normal, on_gpu


def kernels(compiled: Compiled) -> list[str]:
    """What is launched, in order, without the hashes."""
    return [i.kernel.rpartition("_")[0] for i in compiled.entry.plan.body if isinstance(i, Launch)]


def decisions(compiled: Compiled) -> list[tuple[str, bool]]:
    return [(d.partner, d.accepted) for d in compiled.entry.decisions if d.kind == KIND]


def joins(compiled: Compiled) -> list[tuple[int, ...]]:
    """The shapes of the constants that are joined."""
    return [r.shape for r in compiled.entry.prepacks.values() if isinstance(r, Join)]


class SelfAttention(nn.Module):
    """Projections with a bias or without, queries of another width than keys and values, a factor before attention."""

    def __init__(self, biases: Sequence[bool], factor: float | None = None) -> None:
        super().__init__()
        widths = (64, 32, 32)
        self.q, self.k, self.v = (nn.Linear(48, n, bias=b) for n, b in zip(widths, biases, strict=True))
        self.out, self.factor = nn.Linear(64, 48, bias=False), factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        scale = None
        if self.factor is not None:
            q, scale = q * self.factor, 1.0
        q, k, v = (t.unflatten(-1, (-1, 16)).transpose(1, 2) for t in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("biases", [(True, True, True), (False, False, False), (True, False, True)])
def test_queries_keys_and_values_are_one_product(biases: tuple[bool, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = SelfAttention(biases).to(dtype)
    x = normal(2, 24, 48).to(dtype)
    compiled = on_gpu(module, (x,))
    assert decisions(compiled) == [("3 products", True)]
    assert [k.split("_")[0] for k in kernels(compiled)] == ["gemm", "attention", "gemm"]
    weights = (128, 48) if dtype is torch.float32 else (48, 128)
    assert sorted(joins(compiled)) == sorted([weights, (128,)] if any(biases) else [weights])
    assert_same(compiled(x), eager(module, (x,)))


def test_a_power_of_two_goes_into_the_scale() -> None:
    torch.manual_seed(0)
    module, x = SelfAttention((True, False, True), 0.25).bfloat16(), normal(2, 24, 48).bfloat16()
    compiled = on_gpu(module, (x,))
    assert [k.split("_")[0] for k in kernels(compiled)] == ["gemm", "attention", "gemm"]
    assert_same(compiled(x), eager(module, (x,)))


def test_another_factor_is_a_kernel() -> None:
    torch.manual_seed(0)
    module, x = SelfAttention((True, True, True), 0.3).bfloat16(), normal(2, 24, 48).bfloat16()
    compiled = on_gpu(module, (x,))
    assert decisions(compiled) == [("3 products", True)]
    assert [k.split("_")[0] for k in kernels(compiled)] == ["gemm", "mul", "attention", "gemm"]
    assert_same(compiled(x), eager(module, (x,)))


def test_any_number_of_rows() -> None:
    torch.manual_seed(0)
    module, free = SelfAttention((True, True, True)), torch.export.Dim.AUTO
    compiled = on_gpu(module, (normal(2, 24, 48),), ({0: free, 1: free},))
    assert decisions(compiled) == [("3 products", True)]
    for shape in ((1, 5, 48), (3, 17, 48)):
        x = normal(*shape)
        assert_same(compiled(x), eager(module, (x,)))


class SwiGLU(nn.Module):
    def __init__(self, width: int = 64, hidden: int = 96) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gate_and_up_are_one_product_and_one_nest(rows: int, dtype: torch.dtype) -> None:
    """One row reads its weights by columns, and so does f32."""
    torch.manual_seed(0)
    module, x = SwiGLU().to(dtype), normal(1, rows, 64).to(dtype)
    compiled = on_gpu(module, (x,))
    assert decisions(compiled) == [("2 products", True)]
    launched = [k.split("_")[0] for k in kernels(compiled)]
    assert launched in (["gemm", "mul", "gemm"], ["gemm", "gemm"])  # a product of one row may compute it as it reads
    by_columns = rows == 1 or dtype is torch.float32
    assert joins(compiled) == ([(192, 64)] if by_columns else [(64, 192)])
    assert_same(compiled(x), eager(module, (x,)))


class Rounded(nn.Module):
    """Products of the codes of each row, of int8 or float8, with scales of rows and of columns, and biases.

    late: the scales of rows are computed after the first product. last: what is done to the last result."""

    def __init__(self, dtype: torch.dtype, biases: Sequence[bool], late: bool = False, last: Any = None) -> None:
        super().__init__()
        self.dtype, self.late, self.last = dtype, late, last
        for k, (n, bias) in enumerate(zip((64, 32, 32), biases, strict=True)):
            codes = torch.randint(-100, 100, (n, 48)).to(torch.int8) if dtype is torch.int8 else torch.randn(n, 48)
            self.register_buffer(f"w{k}", codes.to(dtype))
            self.register_buffer(f"scale{k}", torch.rand(n) / 50)
            self.register_buffer(f"bias{k}", torch.randn(n) if bias else None)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        largest = 127.0 if self.dtype is torch.int8 else 448.0
        scale = x.abs().amax(1, keepdim=True) / largest
        codes = (x / scale).round() if self.dtype is torch.int8 else x / scale
        found: list[torch.Tensor] = []
        for k in range(3):
            y = self.product(codes.to(self.dtype), getattr(self, f"w{k}").t(), scale)
            if self.late and k == 0:
                scale = scale * y.abs().amax()  # which the product has to be there for
            y = y * scale * getattr(self, f"scale{k}")
            bias = getattr(self, f"bias{k}")
            y = (y if bias is None else y + bias).bfloat16()
            found.append(self.last(y) if self.last is not None and k == 2 else y)
        return tuple(found)

    def product(self, left: torch.Tensor, right: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        if self.dtype is torch.int8:
            return torch._int_mm(left, right).float()
        one = torch.ones(())
        return torch._scaled_mm(left, right, one, one, out_dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn], ids=str)
def test_products_of_bytes_are_one_with_their_scales_and_biases(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module, x = Rounded(dtype, (True, True, True)), normal(24, 48)
    compiled = on_gpu(module, (x,))
    assert decisions(compiled) == [("3 products", True)]
    assert len(kernels(compiled)) <= 3, "rows are rounded, one product, and its parts given out"
    assert sorted(joins(compiled)) == [(128,), (128,), (128, 48)]
    assert_same(compiled(x), eager(module, (x,)))


def test_products_of_bytes_whose_chains_differ_are_joined_with_those_alike() -> None:
    torch.manual_seed(0)
    module, x = Rounded(torch.int8, (True, True, False)), normal(24, 48)
    compiled = on_gpu(module, (x,))
    assert decisions(compiled) == [("2 products", True)]
    assert_same(compiled(x), eager(module, (x,)))


def test_what_follows_a_chain_reads_its_slice() -> None:
    torch.manual_seed(0)
    module, x = Rounded(torch.int8, (True, True, True), last=torch.sin), normal(24, 48)
    compiled = on_gpu(module, (x,))
    assert decisions(compiled) == [("3 products", True)]
    assert_same(compiled(x), eager(module, (x,)))


def test_a_scale_that_waits_for_the_first_product_is_not_shared() -> None:
    torch.manual_seed(0)
    module, x = Rounded(torch.int8, (True, True, True), late=True), normal(24, 48)
    compiled = on_gpu(module, (x,))
    assert ("3 products", True) not in decisions(compiled)
    assert_same(compiled(x), eager(module, (x,)))


class Mixed(nn.Module):
    """Products of one row of codes: the first one's chain waits for its product, the last one's is the same, and the
    one between has a bias or nothing."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.bias = nn.Buffer(torch.randn(32)) if bias else None
        self.w = nn.ParameterList(nn.Parameter(torch.randint(-9, 9, (48, 32)).to(torch.int8), False) for _ in range(3))
        self.s = nn.ParameterList(nn.Parameter(torch.rand(32)) for _ in range(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = torch._int_mm(x, self.w[0])
        scale = y.amax(1, keepdim=True)  # computed behind the first product
        other = torch._int_mm(x, self.w[1]).float()
        last = torch._int_mm(x, self.w[2])
        other = other if self.bias is None else other + self.bias
        return first.float() * scale * self.s[0], other, last.float() * scale * self.s[1]


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_that_is_not_joined_gives_no_other_its_chain(bias: bool) -> None:
    torch.manual_seed(0)
    module, args = Mixed(bias), (torch.randint(-9, 9, (24, 48)).to(torch.int8), normal(24, 48))
    compiled = on_gpu(module, args)
    assert not [d for d in compiled.entry.decisions if d.kind == KIND and d.accepted]
    assert_same(compiled(*args), eager(module, args))


def test_sums_that_stay_integers_are_not_joined_with_a_bias() -> None:
    """Zeros stand in for a bias that is missing, and not for a conversion."""

    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Buffer(torch.randint(-99, 99, (48, 32)).to(torch.int8)) for _ in range(2))
            self.bias = nn.Buffer(torch.randn(32))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch._int_mm(x, self.a), torch._int_mm(x, self.b).float() + self.bias

    torch.manual_seed(0)
    module, x = Sums(), torch.randint(-99, 99, (24, 48)).to(torch.int8)
    compiled = on_gpu(module, (x,))
    assert_same(compiled(x), eager(module, (x,)))
    assert not [d for d in compiled.entry.decisions if d.kind == KIND]


class Shared(nn.Module):
    """The weight of one product is read elsewhere, too; the others' results are outputs, and read before their bias."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(torch.randn(32, n)) for n in (16, 16, 24))
        self.bias = nn.Parameter(torch.randn(24))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        b, c = x @ self.b, x @ self.c
        return x @ self.a, self.a * x[0, 0], b, c + self.bias, c.exp()


def test_only_constants_that_nothing_else_reads_are_joined() -> None:
    torch.manual_seed(0)
    module, x = Shared(), normal(40, 32)
    compiled = on_gpu(module, (x,))
    assert decisions(compiled) == [("2 products", True)]
    assert joins(compiled) == [(40, 32)]
    assert_same(compiled(x), eager(module, (x,)))


def test_a_set_that_gains_nothing_stays_apart() -> None:
    """What follows each of the two large products was computed along with it, and moves more memory than they save."""

    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Linear(2048, 8192, bias=False, dtype=torch.bfloat16) for _ in range(2))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.a(x).relu(), self.b(x).tanh()

    with torch.device("meta"):
        shapes = Large()
    module, x = shapes.to_empty(device="cpu").eval(), torch.zeros(4096, 2048, dtype=torch.bfloat16)
    (found,) = to_graphs(module, (x,), {}, None, False).entries.values()
    entry = compile_entry(found.graph, {}, TritonBackend(H200))
    (refused,) = [d for d in entry.decisions if d.kind == KIND]
    assert not refused.accepted
    assert "us apart" in refused.reason
    assert "2 kernels for what follows" in refused.reason


@pytest.mark.parametrize(("joined_ns", "accepted"), [(5000, True), (10000, False)])
def test_measured_times_decide_where_a_table_has_them_all(joined_ns: int, accepted: bool) -> None:
    module = SelfAttention((False, False, False)).bfloat16().eval()
    (found,) = to_graphs(module, (normal(2, 24, 48).bfloat16(),), {}, None, False).entries.values()
    shapes = {n: GemmShape(1, 48, n, 48, DType.BF16, streamable=True) for n in (64, 32, 128)}
    plans = {n: plan_fields(plan_gemm(s, H200)) for n, s in shapes.items()}
    times = {64: 4000, 32: 2000, 128: joined_ns}  # apart: 4 + 2 + 2 us

    def decided(columns: Sequence[int]) -> Decision:
        entries = {key_of(shapes[n]): TableEntry(plans[n], times[n]) for n in columns}
        tuning = Tuning((("user", TuningTable("sm_90", "3.6.0", entries)),))
        entry = compile_entry(found.graph, {}, TritonBackend(H200, tuning=tuning))
        (decision,) = [d for d in entry.decisions if d.kind == KIND]
        return decision

    complete = decided((64, 32, 128))
    assert complete.accepted == accepted
    assert complete.reason == f"measured: 8.0 us apart, {joined_ns / 1000:.1f} us as 48x128x48"
    assert decided((64, 128)).reason.startswith("about ")


LAYERS = 2


MODELS = [
    *("bert", "llama"),
    *(pytest.param(n, marks=pytest.mark.sweep(only=True)) for n in ("vit", "whisper_encoder", "llama_static_cache")),
]


@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_zoo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer of a model whose projections are apart takes two launches fewer, and nothing more is copied."""
    model: Any = load(name)
    joined = on_gpu(copy.deepcopy(model.module), model.args)
    assert decisions(joined).count(("3 products", True)) == LAYERS
    assert_same(joined(*model.args), eager(model.module, model.args))
    with monkeypatch.context() as m:
        m.setattr(TritonBackend, "passes", lambda self: replace(PASSES, graph=()))
        apart = on_gpu(copy.deepcopy(model.module), model.args)
    assert len(kernels(joined)) <= len(kernels(apart)) - 2 * LAYERS
    copies = [c.entry.texts["fuse"].count(".copy") for c in (joined, apart)]
    assert copies[0] <= copies[1]
