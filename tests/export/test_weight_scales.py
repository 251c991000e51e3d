"""Models whose weights were quantised with scales that are no numbers are refused, by the name of the layer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
from torch import nn

from hardtack.exporter import InputSpecError, to_graphs
from tests.support.torchao_models import of_pt2e, of_torchao

q = torch.ops.quantized_decomposed
X = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
FIX = (
    "\n  To fix: look at the weights that it was made of, and whether calibration reached the layer; then quantise "
    "again"
)


def said(module: nn.Module, x: torch.Tensor = X) -> str:
    with pytest.raises(InputSpecError) as caught:
        to_graphs(module, (x,))
    text = str(caught.value)
    assert text.endswith(FIX)
    return text.removesuffix(FIX)


@pytest.mark.parametrize(
    ("config", "value", "words"),
    [
        ("int8 weights", float("nan"), "the weight '1.weight', a Int8Tensor, has 1 of 32 scales that is NaN"),
        ("int8", 0.0, "the weight '1.weight', a Int8Tensor, has 1 of 32 scales that is zero"),
        (
            "int4 weights in groups",
            float("inf"),
            "the weight '1.weight', a IntxUnpackedToInt8Tensor, has 1 of 64 scales that is infinite",
        ),
    ],
)
def test_tensors_of_torchao(config: str, value: float, words: str) -> None:
    module = of_torchao(nn.Sequential(nn.ReLU(), nn.Linear(64, 32)).eval(), config)
    to_graphs(module, (X,))
    weight: Any = module.get_submodule("1").weight
    weight.scale.data.view(-1)[3] = value
    assert said(module) == words


def test_weights_of_a_quantised_graph() -> None:
    module = of_pt2e(nn.Sequential(nn.Linear(64, 32), nn.ReLU()).eval(), X, "x86, static")
    to_graphs(module, (X,))
    scales = next(b for n, b in module.named_buffers() if "scale" in n and b.shape == (32,))
    scales[5:7] = float("nan")
    found = said(module)
    assert "quantized_decomposed.dequantize_per_channel.default, at " in found
    assert found.endswith(" has 2 of 32 scales that are NaN")


class Scaled(nn.Module):
    """Activations, by a scale that stands in the program."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = q.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)
        found: torch.Tensor = q.dequantize_per_tensor(small, self.scale, 0, -128, 127, torch.int8)
        return found


def test_scales_that_stand_in_the_program() -> None:
    to_graphs(Scaled(0.1).eval(), (X,))
    assert said(Scaled(0.0).eval()).endswith("has a scale that is zero")
    assert said(nn.Sequential(Scaled(0.1), Scaled(0.0)).eval()).startswith("in '1', ")
    with pytest.raises(InputSpecError, match="has a scale that is zero"):
        to_graphs(torch.export.export(Scaled(0.0), (X,)))


class ByChannel(nn.Module):
    """A weight whose scales and zero points may be too few."""

    def __init__(self, scales: int, zeros: int) -> None:
        super().__init__()
        self.w = nn.Buffer(torch.ones(32, 64, dtype=torch.int8))
        self.scales, self.zeros = nn.Buffer(torch.ones(scales)), nn.Buffer(torch.zeros(zeros, dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = q.dequantize_per_channel(self.w, self.scales, self.zeros, 0, -128, 127, torch.int8)
        return nn.functional.linear(x, w)


@pytest.mark.parametrize(
    ("scales", "zeros", "words"), [(31, 32, "scales of shape [31]"), (32, 1, "zero points of shape [1]")]
)
def test_scales_that_are_not_one_a_channel(scales: int, zeros: int, words: str) -> None:
    to_graphs(ByChannel(32, 32).eval(), (X,))
    with pytest.raises(InputSpecError) as caught:
        to_graphs(nn.Sequential(nn.ReLU(), ByChannel(scales, zeros)).eval(), (X,))
    assert str(caught.value) == (
        "in '1', quantized_decomposed.dequantize_per_channel.default, at 'dequantize_per_channel', has "
        f"{words} for 32 channels\n  To fix: give one for each channel, dimension 0 of what it dequantises"
    )


def test_scales_that_are_computed_are_not_looked_at() -> None:
    def dynamic(x: torch.Tensor) -> torch.Tensor:
        scale, zero = q.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
        small = q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
        found: torch.Tensor = q.dequantize_per_tensor.tensor(small, scale, zero, -128, 127, torch.int8)
        return found

    to_graphs(dynamic, (X,))
