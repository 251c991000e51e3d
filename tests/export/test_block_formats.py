"""Weights of MXFP4, MXFP8 and NVFP4, as torchao and torch itself have them: what the graph keeps of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from hardtack.codegen.ir.graph import Quantized
from hardtack.codegen.ir.graph_text import step_text
from hardtack.exporter import Exported, InputSpecError, UnsupportedOpError, to_graphs
from tests.export.checks import entry
from tests.export.test_quantized import check
from tests.support.block_formats import Blocks

E4M3, FLOAT4 = torch.float8_e4m3fn, torch.float4_e2m1fn_x2


def _torchao(kind: str, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """A linear layer of 256 to 320, whose scales torchao keeps as cuBLAS wants them."""
    from torchao.prototype import mx_formats
    from torchao.quantization import quantize_
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(256, 320, dtype=dtype)).eval()
    if kind == "nvfp4":
        config: Any = mx_formats.NVFP4WeightOnlyConfig()
    elif kind == "nvfp4 without a factor":
        config = mx_formats.NVFP4WeightOnlyConfig(use_dynamic_per_tensor_scale=False)
    else:
        codes = FLOAT4 if kind == "mxfp4" else E4M3
        way = KernelPreference.AUTO if kind == "mxfp8 by a kernel" else KernelPreference.EMULATED
        config = mx_formats.MXDynamicActivationMXWeightConfig(32, codes, codes, kernel_preference=way)
    quantize_(module, config)
    return module


def quantized(exported: Exported) -> Quantized:
    (found,) = (c.quantized for c in entry(exported).graph.constants if c.quantized is not None)
    return found


@pytest.mark.parametrize(
    ("kind", "bits", "step"),
    [
        ("nvfp4", 4, "mul [16, 1] of f8e4m3fn with a factor to bf16"),
        ("nvfp4 without a factor", 4, "mul [16, 1] of f8e4m3fn to bf16"),
        ("mxfp4", 4, "mul [32, 1] of f8e8m0fnu to bf16"),
        ("mxfp8", 8, "mul [32, 1] of f8e8m0fnu to bf16"),
    ],
)
def test_models_of_torchao(kind: str, bits: int, step: str) -> None:
    exported = check(_torchao(kind), (torch.randn(5, 256).bfloat16(),), atol=0.02)
    found = quantized(exported)
    assert (found.bits, [step_text(s) for s in found.steps]) == (bits, [step])


def test_nvfp4_in_float32() -> None:
    exported = check(_torchao("nvfp4", torch.float32), (torch.randn(5, 256),))
    assert [step_text(s) for s in quantized(exported).steps] == ["mul [16, 1] of f8e4m3fn with a factor"]


@pytest.mark.parametrize("bits", [False, True])
def test_however_it_is_written(bits: bool) -> None:
    for kind, step in (("nvfp4", "mul [16, 1] of f8e4m3fn with a factor"), ("mxfp4", "mul [32, 1] of f8e8m0fnu")):
        found = quantized(check(Blocks(1024, 2080, kind, bits=bits).eval(), (torch.randn(2, 1024),), atol=1.0))
        assert (found.bits, [step_text(s) for s in found.steps]) == (4, [step])


def test_products_by_scales_of_mx_are_refused() -> None:
    """Those of KernelPreference.AUTO, which eager has on some GPUs alone."""
    with pytest.raises(UnsupportedOpError) as caught:
        to_graphs(_torchao("mxfp8 by a kernel"), (torch.randn(5, 256).bfloat16(),))
    assert (
        "a scaled product with scales f8e8m0fnu[1024] and f8e8m0fnu[96, 32] is not supported: it takes one for each "
        "operand, (5, 1) and (1, 320), or float32 for blocks of 1 x 128 or 128 x 128 along a depth that is fixed"
    ) in str(caught.value)


def test_what_fills_tiles_of_scales_is_no_scale() -> None:
    module = _torchao("nvfp4")
    weight: Any = module.get_submodule("0").weight
    assert bool((weight.scale.float() == 0).any())
    to_graphs(module, (torch.randn(5, 256).bfloat16(),))
    weight.scale.data.view(torch.uint8).view(-1)[3] = 0x7F
    with pytest.raises(InputSpecError) as caught:
        to_graphs(module, (torch.randn(5, 256).bfloat16(),))
    assert str(caught.value).startswith("the weight '0.weight', a NVFP4Tensor, has 1 of 5120 scales that is NaN")


def test_floats_that_are_no_bytes_of_a_model_have_no_codes() -> None:
    """Numbers that float4_e2m1 has, by chance or as a mask, in a constant of float32."""

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask = nn.Buffer(torch.randint(0, 2, (64, 64)).float())
            self.w = nn.Buffer(torch.randn(64, 64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.mask * self.w)

    exported = check(Masked().eval(), (torch.randn(2, 64),))
    assert all(c.quantized is None for c in entry(exported).graph.constants)
