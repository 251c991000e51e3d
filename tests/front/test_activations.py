"""Options.activations: the numbers are those of torchao's configurations; manifest, report, commands, refusals."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.api import ExportInfo, stage_texts
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle
from hardtack.comparison import compare
from hardtack.errors import InputError
from hardtack.quantisation import quantise
from hardtack.smoothing import Sample, smoothing_divisors

TARGETS = ("cpu:x86-64-v3",)
MODEL = """
import torch

def small():
    torch.manual_seed(0)
    layers = torch.nn.Linear(128, 64), torch.nn.GELU(), torch.nn.Linear(64, 48)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(8, 128),)

def data():
    return list(torch.randn(3, 8, 128, generator=torch.Generator().manual_seed(1)))

def none():
    return []
"""
STATIC = {"weights": "int8", "activations": "int8:static"}


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")
    return result.exit_code, result.stdout + result.stderr


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "activations_here.py"
    path.write_text(MODEL)
    return path


def of_model(name: str) -> Any:
    space: dict[str, Any] = {}
    exec(MODEL, space)
    return space[name]()


def export(module: Any, args: Any, path: Path, dynamic: Any = None, **options: Any) -> ExportInfo:
    chosen = hardtack.Options(**options)
    return hardtack.export(module, args, path=path, targets=TARGETS, options=chosen, dynamic_shapes=dynamic)


def of_torchao(module: nn.Module, activations: str, data: list[torch.Tensor]) -> nn.Module:
    """What torchao's own configurations make; static scales from what hooks see."""
    from torchao.quantization import (
        Int8DynamicActivationInt8WeightConfig,
        Int8StaticActivationInt8WeightConfig,
        PerRow,
        PerTensor,
        quantize_,
    )

    made = copy.deepcopy(module)
    if activations == "int8:dynamic":
        quantize_(made, Int8DynamicActivationInt8WeightConfig(set_inductor_config=False))
        return made
    seen: dict[str, list[torch.Tensor]] = {}
    for name, m in module.named_modules():
        if isinstance(m, nn.Linear):
            m.register_forward_pre_hook(lambda _, x, name=name: seen.setdefault(name, []).append(x[0].flatten(0, -2)))
    with torch.no_grad():
        for x in data:
            module(x)
    for name, parts in seen.items():
        module.get_submodule(name)._forward_pre_hooks.clear()
        rows, linear = torch.cat(parts), made.get_submodule(name)
        assert isinstance(linear, nn.Linear)
        divisors = smoothing_divisors(linear.weight.detach(), Sample(rows.abs().amax(0), rows))
        scale = torch.full((1,) * data[0].dim(), float((rows / divisors).abs().max()) / 127.5)
        linear.weight = nn.Parameter(linear.weight * divisors)
        granularity: Any = [PerTensor(), PerRow()]
        config = Int8StaticActivationInt8WeightConfig(
            act_quant_scale=scale, granularity=granularity, set_inductor_config=False
        )
        quantize_(linear, config, lambda *_: True)
        weight: Any = linear.weight.data
        weight.act_pre_scale = 1 / divisors
        linear.weight = nn.Parameter(weight, requires_grad=False)
    return made


@pytest.mark.sweep(over="activations")
@pytest.mark.parametrize("rows", [(8,), (1,), (2, 5)], ids=str)
@pytest.mark.parametrize("activations", ["int8:dynamic", "int8:static"])
def test_numbers_are_those_of_torchao(activations: str, rows: tuple[int, ...], tmp_path: Path) -> None:
    module, _ = of_model("small")
    g = torch.Generator().manual_seed(2)
    x, *data = (torch.randn(*rows, 128, generator=g) for _ in range(3))
    calibration = data if activations == "int8:static" else None
    info = export(module, (x,), tmp_path / "m.pkg", weights="int8", activations=activations, calibration=calibration)
    with torch.no_grad():
        wanted = of_torchao(module, activations, data)(x)
        exact = module(x)
    torch.testing.assert_close(hardtack.load(info.path).session()(x), wanted, rtol=1e-5, atol=1e-6)
    assert 0.003 < (wanted - exact).norm() / exact.norm() < 0.2
    found = info.quantised
    assert found is not None
    assert (found.scheme, found.activations) == ("int8", activations)
    assert [layer.activations for layer in found.layers] == [activations] * 2
    assert info.weights_nbytes < 128 * 64 + 64 * 64 + 4096


def test_int8_is_static_with_data_and_dynamic_without() -> None:
    for calibration, text in ((None, "int8:dynamic"), ([1], "int8:static")):
        chosen = hardtack.Options(weights="int8", activations="int8", calibration=calibration)
        assert str(chosen.activation_scheme) == text
    chosen = hardtack.Options(weights="int8", activations="int8:dynamic", calibration=[1])
    assert str(chosen.activation_scheme) == "int8:dynamic"
    assert str(hardtack.Options(weights="fp8", activations="fp8", calibration=[1]).activation_scheme) == "fp8"


def float8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as float8 and their scales, in float32; scales are rounded to x's type first."""
    least = max(1e-12, torch.finfo(x.dtype).tiny)
    scales = (x.abs().amax(-1, keepdim=True).clamp(min=least) / 448).float()
    return (x.float() / scales).clamp(-448, 448).to(torch.float8_e4m3fn).float(), scales


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_activations_of_float8(dtype: torch.dtype, tmp_path: Path) -> None:
    """And rows of zeros, which torchao divides by zero, are zeros."""
    torch.manual_seed(0)
    module, x = nn.Linear(128, 48).eval().to(dtype), torch.randn(6, 128).to(dtype)
    x[2] = 0
    info = export(module, (x,), tmp_path / "m.pkg", weights="fp8", activations="fp8")
    (rows, scales), (weight, weight_scales) = float8(x), float8(module.weight.detach())
    wanted = ((rows @ weight.T) * scales * weight_scales.T + module.bias.detach().float()).to(dtype)
    tol = 1e-5 if dtype is torch.float32 else 2 * torch.finfo(dtype).eps
    got = hardtack.load(info.path).session()(x)
    torch.testing.assert_close(got, wanted, rtol=tol, atol=tol)
    assert torch.equal(got[2], module.bias)
    assert info.quantised is not None
    assert info.quantised.activations == "fp8"
    assert info.weights_nbytes < 128 * 64 + 2048


@pytest.mark.parametrize("activations", ["int8:dynamic", "int8:static", "fp8"])
def test_sizes_may_be_dynamic(activations: str, tmp_path: Path) -> None:
    module, (x,) = of_model("small")
    options = {"weights": activations.partition(":")[0], "activations": activations, "calibration": of_model("data")}
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    info = export(module, (x,), tmp_path / "m.pkg", dynamic, **options)
    made = quantise(module, hardtack.Options(**options), (x,), None, dynamic).model
    session = hardtack.load(info.path).session()
    for rows in (1, 3, 40):
        other = torch.randn(rows, 128)
        torch.testing.assert_close(session(other), made(other), rtol=1e-5, atol=1e-5)


def test_scales_of_hqq_and_codes_of_gptq_go_with_activations(tmp_path: Path) -> None:
    module, (x,) = of_model("small")
    for method in ("hqq", "gptq"):
        options = {**STATIC, "activations": "int8:dynamic", "weights_method": method, "calibration": of_model("data")}
        info = export(module, (x,), tmp_path / "m.pkg", **options)
        made = quantise(module, hardtack.Options(**options), (x,)).model
        torch.testing.assert_close(hardtack.load(info.path).session()(x), made(x), rtol=1e-5, atol=1e-5)
        only = quantise(module, hardtack.Options(**{**options, "activations": None}), (x,)).model
        assert torch.equal(made[0].weight.qdata, only[0].weight.qdata)
        torch.testing.assert_close(made[0].weight.scale.flatten(), only[0].weight.scale.flatten())


def test_a_bundle_is_compared_with_eager_of_the_same_data(model_file: Path, tmp_path: Path) -> None:
    module, args = of_model("small")
    info = export(module, args, tmp_path / "m.pkg", **STATIC, weights_method="gptq", calibration=of_model("data"))
    with open_bundle(info.path) as bundle:
        assert bundle.manifest.numerics == {
            "accumulate": "f32",
            "fp_contract": "off",
            "weights": "int8",
            "activations": "int8:static",
            "weights_method": "gptq",
        }
    model = hardtack.load(info.path)
    found = compare(model, module, args, steps=True, calibration=of_model("data"))
    assert found.steps
    assert all(d.good and d.relative < 1e-5 for d in (*found.outputs, *found.steps))
    said = (
        "the bundle was exported with calibration data, which its activations of int8:static come from: give the same "
        "by calibration=, or by --calibration"
    )
    with pytest.raises(InputError) as caught:
        compare(model, module, args)
    assert str(caught.value) == said
    spec = f"{model_file}:small"
    assert run("compare", info.path, spec) == (1, f"error: {said}\n")
    status, text = run("compare", info.path, spec, "--calibration", f"{model_file}:data")
    assert status == 0, text
    assert "linear layers round their inputs to int8:static\n" in run("inspect", info.path)[1]
    export(module, args, tmp_path / "m.pkg", weights="int4:32", weights_method="gptq", calibration=of_model("data"))
    assert run("compare", info.path, spec)[1].startswith(
        "error: the bundle was exported with calibration data, which its weights_method of gptq come from"
    )


def test_command(model_file: Path, tmp_path: Path) -> None:
    spec, path, file = f"{model_file}:small", tmp_path / "m.pkg", tmp_path / "data.npz"
    np.savez(file, input=torch.stack(of_model("data")).numpy())
    common = ("export", spec, "-o", path, "--target", *TARGETS, "--weights", "int8", "--activations", "int8")
    status, text = run(*common, "--calibration", file)
    assert status == 0, text
    assert "2 linear layers as int8, activations as int8:static: 45.1 kB -> 11.7 kB\n" in text
    assert re.search(r"\nlayer +shape +from +to +error +of results\n", text)
    assert "at the 3 calibration examples, from f32\n" in text
    document = json.loads(run(*common, "--calibration", f"{model_file}:data", "--json")[1])["quantised"]
    assert (document["activations"], document["num_examples"]) == ("int8:static", 3)
    for layer in document["layers"]:
        assert layer["activations"] == "int8:static"
        assert 0 < layer["activation_scale"] < 0.1
        assert 0 < layer["output_error"] < 0.01
    without = json.loads(run(*common, "--json")[1])["quantised"]
    assert (without["activations"], without["num_examples"]) == ("int8:dynamic", 0)
    assert without["layers"][0]["output_error"] is None
    status, text = run("export", spec, "--stop-after", "graph", "--weights", "int8", "--activations", "int8")
    module, args = of_model("small")
    assert status == 0, text
    assert (
        text.rstrip()
        == stage_texts("graph", module, args, options=hardtack.Options(weights="int8", activations="int8"))[
            "forward"
        ].rstrip()
    )


@pytest.mark.parametrize(("scheme", "allowed"), [("int8", 2**-5), ("fp8", 2**-3), (None, 1e-4)])
def test_outputs_may_differ_by_codes(scheme: str | None, allowed: float, tmp_path: Path) -> None:
    module, args = of_model("small")
    info = export(module, args, tmp_path / "m.pkg", weights=scheme, activations=scheme)
    (found,) = compare(hardtack.load(info.path), module, args).outputs
    assert found.allowed == allowed
    assert found.good


_PAIRS = 'activations of int8 go with weights of "int8", those of fp8 with "fp8"'


@pytest.mark.parametrize("calibration", [None, [1]])
def test_wrong_options(calibration: Any) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"weights": "int8", "activations": "int4"},
            'Options.activations is \'int4\'; it may be "int8", "int8:dynamic", "int8:static" or "fp8"',
        ),
        ({"activations": "int8"}, f"Options.activations is 'int8', and Options.weights is not there; {_PAIRS}"),
        (
            {"weights": "int4", "activations": "int8"},
            f"Options.activations is 'int8' and Options.weights 'int4'; {_PAIRS}",
        ),
        (
            {"weights": "int8", "activations": "fp8"},
            f"Options.activations is 'fp8' and Options.weights 'int8'; {_PAIRS}",
        ),
        (
            {"weights": "fp8", "activations": "int8:dynamic"},
            f"Options.activations is 'int8:dynamic' and Options.weights 'fp8'; {_PAIRS}",
        ),
        (
            {"embeddings": "int8", "weights_method": "gptq"},
            "Options.weights_method is 'gptq', which is for linear layers; give Options.weights",
        ),
        (
            {"weights": "fp8", "weights_method": "gptq"},
            'Options.weights_method is \'gptq\', which chooses codes of integers; those of "fp8" are "nearest"',
        ),
    ]
    if calibration is None:
        cases += [
            (
                STATIC,
                "Options.activations is 'int8:static', whose scales come from data; give some by Options.calibration",
            ),
            (
                {"weights": "int8", "weights_method": "gptq"},
                "Options.weights_method is 'gptq', which rounds by data; give some by Options.calibration",
            ),
            (
                {"weights": "int8", "calibration": 3},
                "Options.calibration is of type int; it must be an iterable of inputs, a dict of these by entry point, "
                "or the path of a file",
            ),
        ]
    else:
        cases.append(
            (
                {},
                "Options.calibration is there, and nothing to quantise; give Options.weights, Options.embeddings or "
                "Options.cache",
            )
        )
    for options, said in cases:
        with pytest.raises(ValueError, match=r"^Options") as caught:
            hardtack.Options(**{"calibration": calibration, **options})
        assert str(caught.value) == said


def test_wrong_commands(model_file: Path, tmp_path: Path) -> None:
    common = ("export", f"{model_file}:small", "-o", tmp_path / "m.pkg", "--target", *TARGETS)
    data = ("--calibration", f"{model_file}:data")
    cases: list[tuple[tuple[str, ...], str]] = [
        (("--activations", "int8"), f"--activations is 'int8', and --weights is not there; {_PAIRS}"),
        (
            ("--weights", "int4", "--activations", "int8"),
            f"--activations is 'int8' and --weights 'int4'; {_PAIRS}",
        ),
        (
            ("--weights", "int8", "--activations", "int8:static"),
            "--activations is 'int8:static', whose scales come from data; give some by --calibration",
        ),
        (
            ("--weights", "int4", "--weights-method", "gptq"),
            "--weights-method is 'gptq', which rounds by data; give some by --calibration",
        ),
        (data, "--calibration is there, and nothing to quantise; give --weights, --embeddings or --cache"),
        (("--weights", "int8", "--calibration", "no.npz"), "--calibration: there is no file 'no.npz'"),
        (
            ("--weights", "int8", "--calibration", "data.csv"),
            "--calibration 'data.csv' is neither a .npz, .safetensors, .pt file nor MODULE:FUNCTION",
        ),
    ]
    for given, said in cases:
        assert run(*common, *given) == (2, f"error: {said}\n")
    assert run(*common, "--weights", "int8", "--calibration", f"{model_file}:none") == (
        1,
        "error: the calibration has no examples\n  To fix: give a few inputs that are like those the model will see\n",
    )


def test_a_gpu_runs_them_too(tmp_path: Path) -> None:
    """Compiled here: products of int8 are of float32 there, exactly."""
    pytest.importorskip("triton")
    module, args = of_model("small")
    for scheme in ("int8", "fp8"):
        options = hardtack.Options(weights=scheme, activations=scheme)
        info = hardtack.export(module, args, path=tmp_path / "m.pkg", targets=("cuda:sm_90",), options=options)
        assert info.quantised is not None
