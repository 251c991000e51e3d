"""Options.keep_activations: layers whose weights alone have few bits, beside others that round their inputs, too."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.api import stage_texts, tuning_keys
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle
from hardtack.comparison import compare
from hardtack.quantisation import quantise

TARGETS = ("cpu:x86-64-v3",)
MODEL = """
import torch

def small():
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 48), torch.nn.GELU(), torch.nn.Linear(48, 32)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(8, 64),)

def data():
    return list(torch.randn(3, 8, 64, generator=torch.Generator().manual_seed(1)))
"""


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")
    return result.exit_code, result.stdout + result.stderr


def small() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    space: dict[str, Any] = {}
    exec(MODEL, space)
    module, args = space["small"]()
    return module, args


def refusal(**options: Any) -> str:
    module, args = small()
    with pytest.raises(hardtack.ExportError) as caught:
        quantise(module, hardtack.Options(**options), args)
    return str(caught.value)


@pytest.mark.parametrize("scheme", ["int8", "fp8"])
def test_each_layer_is_as_it_would_be_alone(scheme: str, tmp_path: Path) -> None:
    module, (x,) = small()
    options = hardtack.Options(weights=scheme, activations=scheme, keep_activations=("2",))
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS, options=options)
    both, alone = (
        quantise(module, hardtack.Options(weights=scheme, activations=a), (x,)).model for a in (scheme, None)
    )
    wanted = copy.copy(both[0]), both[1], alone[2]
    with torch.no_grad():
        y = wanted[2](wanted[1](wanted[0](x)))
    torch.testing.assert_close(hardtack.load(info.path).session()(x), y, rtol=1e-5, atol=1e-6)
    assert not torch.equal(both(x), y)
    assert info.quantised is not None
    said = "int8:dynamic" if scheme == "int8" else "fp8"
    assert info.quantised.activations == said
    assert [layer.activations for layer in info.quantised.layers] == [said, None]
    assert info.widened == ()


def test_manifest_and_commands(tmp_path: Path) -> None:
    file, path = tmp_path / "kept_here.py", tmp_path / "m.pkg"
    file.write_text(MODEL)
    spec, data = f"{file}:small", ("--calibration", f"{file}:data")
    given = ("--weights", "int8", "--activations", "int8", "--keep-activations", "0", *data)
    status, text = run("export", spec, "-o", path, "--target", *TARGETS, *given)
    assert status == 0, text
    assert "2 linear layers as int8, activations as int8:static but of 1: " in text
    with open_bundle(path) as bundle:
        assert json.loads(bundle.manifest.numerics["keep_activations"]) == ["0"]
    assert 'linear layers round their inputs to int8:static, but for ["0"]\n' in run("inspect", path)[1]
    assert run("compare", path, spec, *data)[0] == 0
    module, args = small()
    found = compare(hardtack.load(path), module, args, steps=True, calibration=[args])
    assert found.steps
    status, text = run("export", spec, "--stop-after", "graph", *given[:-2])
    module, args = small()
    assert status == 0, text
    chosen = {"weights": "int8", "activations": "int8", "keep_activations": ("0",)}
    assert text.rstrip() == stage_texts("graph", module, args, options=hardtack.Options(**chosen))["forward"].rstrip()  # type: ignore[arg-type]


def test_tuning_keys_are_those_of_the_export() -> None:
    """A product of codes has a key of its own, and one that is kept that of its weights."""
    module, args = small()
    target = "cuda:sm_90"

    def keys(**options: Any) -> set[str]:
        return set(tuning_keys(module, args, target=target, options=hardtack.Options(weights="int8", **options)))

    weights, both, mixed = keys(), keys(activations="int8"), keys(activations="int8", keep_activations=("2",))
    assert not weights & both
    assert len(mixed & weights) == len(mixed & both) == 1
    static = keys(activations="int8:static", calibration=[args])
    assert static == both


def test_refusals() -> None:
    asked = {"weights": "int8", "activations": "int8"}
    assert refusal(**asked, keep_activations=("head",)) == (
        "keep_activations has 'head', but no linear layer that is quantised is, or stands in, such a module\n"
        "  To fix: name a module as named_modules() does; * stands for any part of a path"
    )
    assert refusal(**asked, keep_activations=("2",), keep_weights=("2",)) == (
        "keep_activations has '2', but no linear layer that is quantised is, or stands in, such a module\n"
        "  To fix: name a module as named_modules() does; * stands for any part of a path"
    )
    assert refusal(**asked, keep_activations=("*",)) == (
        "keep_activations names every linear layer, so that none has activations of int8:dynamic\n"
        "  To fix: export it without Options.activations"
    )


def test_a_command_line_without_activations(tmp_path: Path) -> None:
    file = tmp_path / "kept_alone.py"
    file.write_text(MODEL)
    said = (2, "error: --keep-activations leaves layers out of --activations, which is not there\n")
    given = ("--weights", "int8", "--keep-activations", "0")
    assert run("export", f"{file}:small", "-o", tmp_path / "m.pkg", *given) == said
    assert run("tune", f"{file}:small", "-o", tmp_path / "t.json", "--target", "cpu:native", *given) == said
