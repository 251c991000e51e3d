"""Quantised models from the front door: compiled, and what the export says of their weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig, quantize_
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

import hardtack
from hardtack.cli import main
from hardtack.widened import Widened

TARGETS = ("cpu:x86-64-v3",)
MODEL = """
import torch
from torchao.quantization import Int8WeightOnlyConfig, quantize_

def small():
    torch.manual_seed(0)
    module = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6))).eval()
    quantize_(module, Int8WeightOnlyConfig())
    return module, (torch.randn(8, 64),)
"""


def test_a_static_model_of_convolutions_gives_what_eager_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 5)).eval()
    x = torch.randn(2, 3, 16, 16)
    quantiser = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), quantiser)
    prepared(x)
    quantised = convert_pt2e(prepared)
    info = hardtack.export(quantised, (x,), path=tmp_path / "m.pkg", targets=TARGETS)
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(x)[0], quantised(x)[0])
    assert [(w.dtype, w.stored_dtype) for w in info.widened] == [("i8", "f32")] * 2


@pytest.mark.parametrize("depth", [64, 1500])
def test_a_model_of_bytes_gives_what_eager_does(tmp_path: Path, depth: int) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(depth, 128), nn.GELU(), nn.Linear(128, 32)).eval()
    quantize_(module, Int8DynamicActivationInt8WeightConfig())
    x = torch.randn(20, depth)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS)
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(x), module(x))


def test_what_an_export_says_of_widened_weights(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 32)).eval()
    plain = hardtack.export(module, (torch.randn(8, 64),), path=tmp_path / "plain.pkg", targets=TARGETS)
    assert plain.widened == ()
    quantize_(module, Int8WeightOnlyConfig())
    info = hardtack.export(module, (torch.randn(8, 64),), path=tmp_path / "m.pkg", targets=TARGETS)
    (found,) = info.widened
    assert found == Widened(found.name, "i8", 64 * 32, "f32", 64 * 32 * 4)
    assert found.name.startswith("0.")


def test_the_command_shows_the_largest(tmp_path: Path) -> None:
    model = tmp_path / "quantised_model.py"
    model.write_text(MODEL)
    arguments = ["export", f"{model}:small", "-o", str(tmp_path / "m.pkg"), "--target", *TARGETS]
    said = CliRunner().invoke(main, arguments, prog_name="hardtack").output
    assert "6 quantised weights are stored in floating point" in said
    assert said.count("i8 4.1 kB") == 5
    assert "all 6" in said
    assert "24.6 kB" in said
    told = json.loads(CliRunner().invoke(main, [*arguments, "--json"], prog_name="hardtack").output)
    assert [(w["dtype"], w["nbytes"], w["stored_nbytes"]) for w in told["widened"]] == [("i8", 4096, 16384)] * 6
