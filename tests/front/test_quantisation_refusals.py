"""Options.weights from the front door: what is refused, in which words."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hardtack
from hardtack.quantisation import quantise
from tests.front.test_quantisation import export, report, small

_NAME_IT = "name a module as named_modules() does; * stands for any part of a path"
_OWN_WAY = "or quantise it before it is captured, with torchao's quantize_, and leave the option out"


def refusal(module: Any, weights: str = "int8", **options: Any) -> str:
    with pytest.raises(hardtack.ExportError) as caught:
        quantise(module, hardtack.Options(weights=weights, **options))
    return str(caught.value)


def test_wrong_options() -> None:
    schemes = 'it may be "int8", "fp8" or "int4:GROUP", GROUP one of 32, 64, 128, 256; "int4" is "int4:128"'
    cases: list[tuple[dict[str, Any], str]] = [
        *(
            ({"weights": w}, f"Options.weights is {w!r}; {schemes}")
            for w in ("fp4", "int4:16", "int4:48", "int8:32", 8)
        ),
        (
            {"weights": "external"},
            "Options.weights is 'external'; weights go to a file beside the bundle with Options.external_weights=True",
        ),
        (
            {"weights": "embedded"},
            "Options.weights is 'embedded'; weights are in the bundle without Options.external_weights=True",
        ),
        ({"weights_method": "awq"}, 'Options.weights_method is \'awq\'; it must be "nearest", "hqq" or "gptq"'),
        (
            {"weights": "fp8", "embeddings": "fp8", "weights_method": "hqq"},
            'Options.weights_method is \'hqq\', which chooses scales of integers; those of "fp8" are "nearest"',
        ),
        ({"weights": "int8", "keep_weights": "a"}, "Options.keep_weights is 'a'; it must be a tuple of patterns"),
        (
            {"weights": "int8", "activations": "int8", "keep_activations": "a"},
            "Options.keep_activations is 'a'; it must be a tuple of patterns",
        ),
        (
            {"weights": "int8", "keep_activations": ("a",)},
            "Options.keep_activations leaves layers out of Options.activations, which is not there",
        ),
        (
            {"weights": "int8", "compute": "bf16"},
            "Options.weights is 'int8' and Options.compute 'bf16'; weights of few bits are there with compute \"f32\" "
            "only so far",
        ),
    ]
    for options, said in cases:
        with pytest.raises(ValueError, match=r"^Options") as caught:
            hardtack.Options(**options)
        assert str(caught.value) == said


def test_layers_that_cannot_be_quantised() -> None:
    wide = nn.Sequential(nn.Linear(96, 200), nn.Linear(200, 64)).eval()
    assert refusal(wide, "int4:64") == (
        "groups of 64 do not divide the inputs of the linear layers 0 (96), 1 (200)\n"
        "  To fix: choose int8, or name the layers in keep_weights"
    )
    assert [x.name for x in report(wide, "int4:32", keep_weights=("1",)).layers] == ["0"]
    many = nn.Sequential(*(nn.Linear(96, 96) for _ in range(7))).eval()
    assert refusal(many, "int4") == (
        "groups of 128 do not divide the inputs of the linear layers 0 (96), 1 (96), 2 (96), 3 (96), "
        "4 (96) and 2 more\n"
        "  To fix: choose int4:32 or int8, or name the layers in keep_weights"
    )
    for value in (math.nan, math.inf):
        with torch.no_grad():
            many[3].weight[1, 2] = value
        assert refusal(many) == (
            "the linear layer '3' has weights that are infinite or NaN\n"
            "  To fix: look for what made them so, or name the layer in keep_weights"
        )


def test_models_that_have_nothing_to_quantise() -> None:
    assert refusal(nn.Linear(8, 8), keep_weights=("head",)) == (
        "keep_weights has 'head', but no linear layer of the model is, or stands in, such a module\n"
        f"  To fix: {_NAME_IT}"
    )
    assert refusal(nn.Conv2d(3, 8, 3)) == (
        "the model has no linear layer whose weights could be int8\n  To fix: export it without Options.weights"
    )
    assert refusal(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8).double()), keep_weights=("0",)) == (
        "the model has no linear layer whose weights could be int8; 1 kept: its weights are float64; "
        "1 kept: keep_weights has '0'\n  To fix: export it without Options.weights"
    )


def test_models_that_are_no_modules_any_more() -> None:
    module, args = small()
    program = torch.export.export(module, args)
    for given, said in (
        (program, "what is to be exported is an ExportedProgram"),
        (lambda x: module(x), "what is to be exported is a function"),
        ({"one": module, "two": module.forward}, "entry two is a function"),
        ({"one": program}, "entry one is an ExportedProgram"),
    ):
        assert refusal(given) == (
            f"{said}, whose weights cannot be made int8: its linear layers cannot be told any more\n"
            f"  To fix: pass the nn.Module, {_OWN_WAY}"
        )


class Locked(nn.Linear):
    def __deepcopy__(self, memo: object) -> Locked:
        raise TypeError("cannot pickle a lock")


def test_a_model_that_cannot_be_copied() -> None:
    assert refusal(nn.Sequential(Locked(8, 8))) == (
        "the model cannot be copied, which quantising it takes: cannot pickle a lock\n"
        f"  To fix: let copy.deepcopy take it, {_OWN_WAY}"
    )


class Reading(nn.Linear):
    def __init__(self) -> None:
        super().__init__(32, 32)
        self.inner = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.inner.weight.sum(0)


def test_a_model_that_reads_a_weight_itself(tmp_path: Path) -> None:
    with pytest.raises(hardtack.ExportError) as caught:
        export(Reading().eval(), (torch.randn(4, 32),), tmp_path / "m.pkg", weights="int8")
    assert str(caught.value) == (
        "the model reads the weights of a linear layer itself, by aten.sum, and not as that layer does\n"
        "  To fix: name the layer in keep_weights"
    )


def test_without_torchao(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "torchao"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchao", None)
    assert refusal(nn.Linear(8, 8)) == (
        "weights of int8 need the package torchao, from 0.18 on and before 0.19\n"
        "  To fix: pip install 'hardtack[quantize]'"
    )
