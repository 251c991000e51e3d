"""Models that torchao quantised on the GPU, against eager there: products of bytes are of its tensor cores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hardtack
from tests.gpu.support import assert_close, check, eager
from tests.support.torchao_models import of_pt2e

CONFIGS: dict[str, Callable[[Any], Any]] = {
    "int8": lambda q: q.Int8DynamicActivationInt8WeightConfig(),
    "int8 weights": lambda q: q.Int8WeightOnlyConfig(),
    "fp8 weights": lambda q: q.Float8WeightOnlyConfig(),
    "fp8 by row": lambda q: q.Float8DynamicActivationFloat8WeightConfig(granularity=q.PerRow()),
    "fp8": lambda q: q.Float8DynamicActivationFloat8WeightConfig(granularity=q.PerTensor()),
}
"""Of torchao.quantization, which is imported by the tests: it imports Triton, which others do first."""


class Block(nn.Module):
    """A norm, products that share their rows, and a wide layer: what quantises rows is fused with what makes them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + torch.sigmoid(self.left(y)) * self.right(y)
        out = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        assert isinstance(out, torch.Tensor)
        return out


@pytest.mark.parametrize("rows", [1, 16, 300])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_models_of_torchao(config: Callable[[Any], Any], rows: int, tmp_path: Path, target: str) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    module = nn.Sequential(Block(256), Block(256)).eval().bfloat16().cuda()
    quantization.quantize_(module, config(quantization))
    check(module, [(torch.randn(rows, 256, device="cuda", dtype=torch.bfloat16),)], tmp_path, target)


@pytest.mark.parametrize("rows", [2, 100])
def test_a_static_model_of_pt2e(rows: int, tmp_path: Path, target: str) -> None:
    """Quantised and exported on the CPU, whose eager is what it is compared with."""
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64)).eval(), torch.randn(rows, 128)
    quantised = of_pt2e(module, x, "xnnpack, static, per channel")
    hardtack.export(quantised, (x,), path=tmp_path / "m.pkg", targets=(target,))
    got = hardtack.load(tmp_path / "m.pkg", device="cuda:0").session()(x.cuda())
    with torch.no_grad():
        want = quantised(x)
    assert_close([g.cpu() for g in (got if isinstance(got, tuple) else (got,))], [want], scale=100)


def test_sums_of_float8_are_those_of_torch(tmp_path: Path, target: str) -> None:
    """As near to the exact ones with each way of adding up."""
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("eager multiplies float8 from compute capability 8.9 on")

    class Products(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
            one = torch.ones((), device=a.device)
            how: dict[str, Any] = {"scale_a": one, "scale_b": one, "out_dtype": torch.float32}
            a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
            return torch._scaled_mm(a, b.t(), **how), torch._scaled_mm(a, b.t(), use_fast_accum=True, **how)

    torch.manual_seed(0)
    args = torch.randn(256, 8192, device="cuda"), torch.randn(512, 8192, device="cuda")
    hardtack.export(Products().eval(), args, path=tmp_path / "m.pkg", targets=(target,))
    got = hardtack.load(tmp_path / "m.pkg", device="cuda:0").session()(*args)
    a, b = (x.to(torch.float8_e4m3fn).double() for x in args)
    exact = a @ b.t()
    for ours, theirs in zip(got, eager(Products(), args), strict=True):
        off, allowed = ((x.double() - exact).norm().item() for x in (ours, theirs))
        assert off <= 1.5 * allowed


def test_activations_of_float8_where_torch_multiplies_them(tmp_path: Path, target: str) -> None:
    """On a GPU it asks for sizes that 16 divides: a head of 10 classes takes its inputs as they are."""
    pytest.importorskip("torchao")
    torch.manual_seed(0)
    module = nn.Sequential(Block(256), nn.Linear(256, 10)).eval().bfloat16().cuda()
    x = torch.randn(40, 256, device="cuda", dtype=torch.bfloat16)
    options = hardtack.Options(weights="fp8", activations="fp8")
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=(target,), options=options)
    assert info.quantised is not None
    made = {layer.name: layer.activations for layer in info.quantised.layers}
    assert made.pop("1") is None
    assert set(made.values()) == {"fp8"}
    with pytest.raises(hardtack.InputSpecError, match="where 16 divides inputs and outputs on a GPU: none is so"):
        hardtack.export(module[1], (x,), path=tmp_path / "n.pkg", targets=(target,), options=options)


class Codes(nn.Module):
    """x (1, 32) by 256 columns, the first number of each being one code of float8, the others zeros."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        codes = torch.zeros(256, 32, dtype=torch.uint8)
        codes[:, 0] = torch.arange(256)
        self.codes = nn.Buffer(codes.view(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.codes.to(x.dtype))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_one_row_has_the_number_of_every_code(dtype: torch.dtype, tmp_path: Path, target: str) -> None:
    """Those below the smallest normal number, infinities and NaN, too: instructions convert them, which no interpreter
    runs."""
    module, x = Codes(dtype).eval().cuda(), torch.zeros(1, 32, device="cuda")
    x[0, 0] = 1
    hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=(target,))
    got = hardtack.load(tmp_path / "m.pkg", device="cuda:0").session()(x)
    assert torch.equal(torch.nan_to_num(got, nan=1e9), torch.nan_to_num(module.codes[:, 0].float()[None], nan=1e9))
