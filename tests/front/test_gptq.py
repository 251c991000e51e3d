"""weights_method "gptq": what it keeps, that it is better than rounding to the nearest, and on a trained model, too."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import hardtack
from bench.quantised_accuracy import batches, sentences
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle
from hardtack.exporter.precision import AccuracyMeter
from hardtack.gptq import gptq_codes, result_errors
from hardtack.moments import Moments
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


def test_few_columns_are_nearer_to_the_best_that_there_is() -> None:
    """Beside every choice of codes."""
    weight = torch.randn(16, 4, generator=torch.Generator().manual_seed(2))
    x, scales = correlated(50, 4), torch.full((16, 1), 0.9)
    codes = gptq_codes(weight, scales, x.T @ x, -2, 1)
    every = torch.tensor(list(itertools.product(range(-2, 2), repeat=4)), dtype=torch.float32)
    best = torch.stack([lost(row.expand(len(every), 4), every, scales[:1], x).min() for row in weight])
    rounded = lost(weight, (weight / 0.9).round().clamp(-2, 1), scales, x)
    assert lost(weight, codes, scales, x).sum() - best.sum() < 0.6 * (rounded.sum() - best.sum())


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
    assert layer.method == "gptq"
    rows = torch.nn.functional.normalize(torch.cat(data))
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
    module, x = Tied().eval(), correlated(80, 32)
    options = hardtack.Options(weights="int8", weights_method="gptq", calibration=[x])
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=("cpu:x86-64-v3",), options=options)
    with open_bundle(info.path) as bundle:
        assert len({c.tensor for c in bundle.manifest.constants if str(c.dtype) == "i8"}) == 1


def test_layers_that_are_given_few_rows_are_rounded_to_the_nearest(tmp_path: Path) -> None:
    """And the report names them."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(32, 96), nn.Linear(96, 16)).eval()
    x = torch.randn(95, 32)
    options = hardtack.Options(weights="int4:32", weights_method="gptq", calibration=[x])
    found, plain = quantise(module, options, (x,)), quantise(module, hardtack.Options(weights="int4:32")).model
    assert found.report is not None
    assert [layer.method for layer in found.report.layers] == ["gptq", "nearest"]
    assert not torch.equal(found.model[0].weight.qdata, plain[0].weight.qdata)
    assert torch.equal(found.model[1].weight.qdata, plain[1].weight.qdata)
    torch.save(module, tmp_path / "module.pt")
    torch.save([x], tmp_path / "x.pt")
    model = tmp_path / "few_rows_here.py"
    model.write_text(
        "import torch\n\n"
        f"def make():\n    x = torch.load({str(tmp_path / 'x.pt')!r})[0]\n"
        f"    return torch.load({str(tmp_path / 'module.pt')!r}, weights_only=False), (x,)\n"
    )
    given = ["--weights", "int4:32", "--weights-method", "gptq", "--calibration", str(tmp_path / "x.pt")]
    out = ["-o", str(tmp_path / "m.pkg"), "--target", "cpu:x86-64-v3"]
    result = CliRunner().invoke(main, ["export", f"{model}:make", *out, *given], prog_name="hardtack")
    assert "given fewer rows than they have inputs, and so by the method nearest: 1\n" in result.stdout


def test_no_row_weighs_more_than_another() -> None:
    rows = torch.randn(40, 16)
    one, other = Moments(torch.zeros(16, 16)), Moments(torch.zeros(16, 16))
    one.add(rows)
    other.add(rows * torch.logspace(-3, 5, 40)[:, None])
    other.add(torch.zeros(3, 16))
    torch.testing.assert_close(one.sums, other.sums)
    assert one.num_rows == other.num_rows == 40


def test_embeddings_beside_are_rounded_to_the_nearest() -> None:
    torch.manual_seed(0)
    module, i = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 32)).eval(), torch.arange(50)
    options = hardtack.Options(weights="int8", embeddings="int8", weights_method="gptq", calibration=[i])
    made = quantise(module, options, (i,)).model
    plain = quantise(module, hardtack.Options(embeddings="int8")).model
    assert torch.equal(made[0].weight.qdata, plain[0].weight.qdata)


def test_a_trained_model_is_better_with_it() -> None:
    """minilm with int4 weights in its first layers, at sentences that calibration has not seen."""
    try:
        model = zoo.load("minilm")
        data, held_out = (list(batches(sentences(p)[:n])) for p, n in (("adr/*.md", 96), ("*.md", 16)))
    except (ModuleNotFoundError, FileNotFoundError) as error:
        pytest.skip(str(error))
    keep = tuple(f"bert.encoder.layer.{k}" for k in range(2, 6))
    snr: dict[str, float] = {}
    for method in ("nearest", "gptq"):
        options = hardtack.Options(weights="int4:128", weights_method=method, keep_weights=keep, calibration=data)
        found = quantise(model.module, options, model.args, None, model.dynamic[0])
        assert found.report is not None
        assert [x.method for x in found.report.layers] == [method] * 12
        meter = AccuracyMeter("embedding")
        with torch.no_grad():
            for x in held_out:
                meter.add(found.model(*x), model.module(*x))
        snr[method] = meter.result().snr
    assert snr["gptq"] > snr["nearest"] + 1, snr
