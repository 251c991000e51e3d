"""Static scales of activations whose channels are of different sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import hardtack
from hardtack import torchao_layers
from hardtack.quantisation import quantise
from hardtack.smoothing import MOST_ROWS, Sample, smoothing_divisors

STATIC = {"weights": "int8", "activations": "int8:static"}
TARGETS = ("cpu:x86-64-v3",)


def sample_of(rows: torch.Tensor) -> Sample:
    found = Sample(torch.zeros(rows.shape[1]), rows.new_zeros(0, rows.shape[1]))
    found.add(rows)
    return found


def rounded(x: torch.Tensor, scale: Any) -> torch.Tensor:
    return (x / scale).round().clamp(-128, 127) * scale


def error(x: torch.Tensor, weight: torch.Tensor, divisors: torch.Tensor) -> float:
    """Of the results of a layer, one scale for all activations and one for each row of weights."""
    rows = rounded(x / divisors, (x / divisors).abs().max() / 127.5)
    made = weight * divisors
    off = rows @ rounded(made, made.abs().amax(1, keepdim=True) / 127.5).T - x @ weight.T
    return float(off.norm() / (x @ weight.T).norm())


def outliers(rows: int = 256, depth: int = 64) -> torch.Tensor:
    """Rows of which two channels are a hundred times as large."""
    x = torch.randn(rows, depth, generator=torch.Generator().manual_seed(3))
    x[:, 5] *= 100
    x[:, 40] *= 60
    return x


def test_large_channels_cost_others_little() -> None:
    torch.manual_seed(0)
    x, weight = outliers(), torch.randn(48, 64)
    divisors = smoothing_divisors(weight, sample_of(x))
    assert error(x, weight, divisors) < 0.5 * error(x, weight, torch.ones(64))
    torch.testing.assert_close((x / divisors).abs().max(), x.abs().max())
    assert int(divisors.argmax()) == 5


def test_rows_decide_and_not_their_lengths() -> None:
    """Many rows with one large channel beside one row that is larger than all, in which all channels are alike."""
    torch.manual_seed(0)
    x, weight = outliers() / 100, torch.randn(48, 64)
    divisors = smoothing_divisors(weight, sample_of(torch.cat((x, torch.full((1, 64), 1.0)))))
    assert torch.isfinite(divisors).all()
    assert (divisors > 0).all()
    with_long = smoothing_divisors(weight, sample_of(torch.cat((x, x[:1] * 4))))
    assert error(x, weight, with_long) < error(x, weight, torch.ones(64))


def test_channels_that_data_do_not_show_are_not_cut_off() -> None:
    torch.manual_seed(0)
    x, weight = outliers(), torch.randn(48, 64)
    x[:, 7], weight[:, 9] = 0, 0
    divisors = smoothing_divisors(weight, sample_of(x))
    reach = x.abs().max() * divisors  # of each channel
    assert torch.isfinite(divisors).all()
    assert (reach > x.abs().max() / 2**9).all()


def test_alike_channels_and_zeros() -> None:
    x = torch.ones(8, 16)
    torch.testing.assert_close(smoothing_divisors(torch.ones(4, 16), sample_of(x)), torch.ones(16))
    torch.testing.assert_close(smoothing_divisors(torch.zeros(4, 16), sample_of(x)), torch.ones(16))


def test_a_sample_is_of_all_rows() -> None:
    rows = torch.arange(1, 20001).float()[:, None].repeat(1, 2)
    found = Sample(torch.zeros(2), torch.zeros(0, 2))
    for part in rows.split(300):
        found.add(torch.cat((part, torch.zeros(5, 2))))
    assert (found.num_rows, found.rows.shape) == (20000, (MOST_ROWS, 2))
    assert found.largest.tolist() == [20000, 20000]
    places = found.rows[:, 0]
    assert len(places.unique()) == MOST_ROWS
    assert abs(float(places.mean()) - 10000) < 1000  # four deviations of the mean of 512


def test_factors_are_judged_at_rows_that_did_not_make_them() -> None:
    """Few rows show less of each channel than others will have: where all channels are alike that costs more than it
    gains."""
    torch.manual_seed(0)
    x, weight = torch.randn(16, 64), torch.randn(48, 64)
    torch.testing.assert_close(smoothing_divisors(weight, sample_of(x)), torch.ones(64))
    one = smoothing_divisors(weight, sample_of(x[:1]))
    assert torch.isfinite(one).all()


class Spread(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 32)
        self.register_buffer("sizes", torch.ones(64))
        self.sizes[3], self.sizes[30] = 80.0, 50.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.second(F.gelu(self.first(x)) * self.sizes)
        return made


def data(count: int = 12) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return [torch.randn(8, 64, generator=g) for _ in range(count)]


def spread(dtype: torch.dtype = torch.float32) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Spread().eval().to(dtype), torch.randn(8, 64).to(dtype)


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("method", ["nearest", "hqq", "gptq"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bundles_have_the_numbers_of_torchao(method: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Its tensor has the factors as act_pre_scale."""
    module, x = spread(dtype)
    given = [t.to(dtype) for t in data()]
    options = hardtack.Options(**STATIC, weights_method=method, calibration=given)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS, options=options)
    made = quantise(module, options, (x,)).model
    tol = 1e-5 if dtype is torch.float32 else 2**-5
    with torch.no_grad():
        wanted, exact = made(x), module(x)
    got = hardtack.load(info.path).session()(x)
    torch.testing.assert_close(got, wanted, rtol=tol, atol=tol * float(exact.abs().max()))
    pre = made.second.weight.act_pre_scale
    assert pre.shape == (64,)
    assert pre.argmin() in (3, 30)
    assert info.quantised is not None
    assert info.widened == ()
    assert all(layer.output_error is not None and layer.output_error < 0.02 for layer in info.quantised.layers)
    weight = made.second.weight.dequantize().float().detach() * pre
    assert float((weight - module.second.weight).norm() / module.second.weight.norm()) == pytest.approx(
        info.quantised.layers[1].error, rel=2e-2
    )


def snr(module: nn.Module, x: torch.Tensor, **options: Any) -> float:
    made = quantise(module, hardtack.Options(weights="int8", **options), (x,)).model
    with torch.no_grad():
        off = made(x) - module(x)
        return float(20 * (module(x).norm() / off.norm()).log10())


def test_static_is_better_with_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = spread()
    static = snr(module, x, activations="int8:static", calibration=data())
    dynamic = snr(module, x, activations="int8:dynamic")
    monkeypatch.setattr(torchao_layers, "smoothing_divisors", lambda weight, sample: torch.ones_like(sample.largest))
    plain = snr(module, x, activations="int8:static", calibration=data())
    assert static > plain + 3, (static, plain, dynamic)
    assert static > dynamic - 3, (static, plain, dynamic)


def test_layers_with_one_weight_have_it_once() -> None:
    """By the rows of both, each with a scale of its own."""
    module, x = spread()
    module.second = nn.Linear(64, 64)
    module.second.weight = module.first.weight
    made = quantise(module, hardtack.Options(**STATIC, calibration=data()), (x,)).model
    first, second = made.first.weight, made.second.weight
    assert torch.equal(first.qdata, second.qdata)
    assert torch.equal(first.scale, second.scale)
    assert torch.equal(first.act_pre_scale, second.act_pre_scale)
    assert float(first.act_quant_scale) < float(second.act_quant_scale)
