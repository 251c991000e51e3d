"""Options.compute from the front door: the file, the report, the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.api import tuning_keys
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle
from hardtack.comparison import compare

TARGETS = ("cpu:x86-64-v3",)
MODEL = """
import torch

def small():
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 32)
    return torch.nn.Sequential(*layers).eval(), (torch.randn(8, 64),)
"""


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "narrowed_model.py"
    path.write_text(MODEL)
    return path


def small() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    space: dict[str, Any] = {}
    exec(MODEL, space)
    module, args = space["small"]()
    return module, args


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    module, args = small()
    path = tmp_path_factory.mktemp("narrowed") / "small.pkg"
    options = hardtack.Options(compute="bf16", keep_f32=("2",))
    return hardtack.export(module, args, path=path, targets=TARGETS, options=options), path


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def test_numbers_are_those_of_rounded_operands(exported: tuple[Any, Path]) -> None:
    module, (x,) = small()
    first, gelu, last = module.children()
    want = last(gelu(rounded(x) @ rounded(first.weight).mT + first.bias)).detach()
    torch.testing.assert_close(hardtack.load(exported[1])(x), want, rtol=1e-5, atol=1e-5)


def test_report(exported: tuple[Any, Path]) -> None:
    info, path = exported
    assert (info.narrowed.dtype, info.narrowed.num_products) == ("bf16", 1)
    assert info.narrowed.num_kept == {"keep_f32 has '2'": 1}
    (found,) = info.narrowed.accuracy["forward"]
    module, args = small()
    (measured,) = compare(hardtack.load(path), module, args).outputs
    assert found.output == "output"
    assert found.relative == pytest.approx(measured.relative, rel=1e-2)
    assert 35 < found.snr < 80
    assert found.num_lost == 0


def test_file(exported: tuple[Any, Path], tmp_path: Path) -> None:
    """The weight is there in 16 bits alone, and what was chosen is in the manifest; not so without the option."""
    with open_bundle(exported[1]) as bundle:
        assert bundle.manifest.numerics["compute"] == "bf16"
        assert json.loads(bundle.manifest.numerics["keep_f32"]) == ["2"]
        sizes = sum(str(c.dtype) == "bf16" for c in bundle.manifest.constants)
        assert sizes == 1
    module, args = small()
    info = hardtack.export(module, args, path=tmp_path / "wide.pkg", targets=TARGETS)
    assert info.narrowed is None
    assert info.weights_nbytes - exported[0].weights_nbytes >= 2 * 64 * 64
    with open_bundle(tmp_path / "wide.pkg") as bundle:
        assert bundle.manifest.numerics == {"accumulate": "f32", "fp_contract": "off"}


def test_comparison_allows_what_16_bits_do(exported: tuple[Any, Path]) -> None:
    """Of floats. Steps are compared with a graph whose products take as many bits."""
    module, args = small()
    found = compare(hardtack.load(exported[1]), module, args, steps=True)
    assert [d.allowed for d in found.outputs] == [5e-2]
    assert 1e-4 < found.outputs[0].relative < 5e-2
    assert found.steps
    assert all(d.relative < 1e-5 for d in found.steps)


def test_command(model_file: Path, tmp_path: Path) -> None:
    spec, path = f"{model_file}:small", tmp_path / "m.pkg"
    status, text = run("export", spec, "-o", path, "--target", *TARGETS, "--compute", "bf16", "--json")
    assert status == 0, text
    document = json.loads(text)["narrowed"]
    assert (document["dtype"], document["num_products"], document["num_kept"]) == ("bf16", 2, {})
    assert set(document["accuracy"]["forward"][0]) == {
        "output",
        "absolute",
        "relative",
        "snr",
        "num_lost",
        "cosine",
        "top1",
    }
    assert "products take operands of bf16" in run("inspect", path)[1]
    assert run("compare", path, spec, "--steps")[0] == 0
    status, text = run("export", spec, "-o", path, "--target", *TARGETS, "--compute", "bf16", "--keep-f32", "0")
    assert status == 0, text
    assert "1 products of bf16; 1 stay f32: keep_f32 has '0'" in text
    assert "at the example inputs, from f32" in text
    assert 'products take operands of bf16, but for ["0"]' in run("inspect", path)[1]


def test_command_prints_stages(model_file: Path) -> None:
    status, text = run("export", f"{model_file}:small", "--stop-after", "graph", "--compute", "f16")
    assert status == 0
    assert text.count("dtype=f16)") == 2
    assert text.count(", dtype=f32)") == 2


def test_wrong_options(model_file: Path) -> None:
    with pytest.raises(ValueError, match=r'^Options\.compute is \'half\'; it must be "f32", "bf16" or "f16"$'):
        hardtack.Options(compute="half")
    with pytest.raises(ValueError, match=r"^Options\.keep_f32 is 'head'; it must be a tuple of patterns$"):
        hardtack.Options(compute="bf16", keep_f32="head")  # type: ignore[arg-type]
    status, text = run("export", f"{model_file}:small", "-o", "m.pkg", "--keep-f32", "0")
    assert (status, text) == (2, "error: --keep-f32 leaves products out of --compute, which is f32 for all\n")
    module, args = small()
    options = hardtack.Options(compute="bf16", keep_f32=("head",))
    with pytest.raises(hardtack.ExportError, match=r"^keep_f32 has 'head', but no product of the model stands in such"):
        hardtack.export(module, args, path="m.pkg", targets=TARGETS, options=options)


def test_a_program_without_examples_is_not_measured(tmp_path: Path) -> None:
    module, args = small()
    program = torch.export.export(module, args)
    program.example_inputs = None
    options = hardtack.Options(compute="bf16")
    info = hardtack.export(program, path=tmp_path / "m.pkg", targets=TARGETS, options=options)
    assert info.narrowed is not None
    assert (info.narrowed.num_products, info.narrowed.accuracy) == (2, {})


def test_a_table_is_made_for_what_products_are_computed_in() -> None:
    module, args = small()
    for compute in ("f32", "bf16"):
        keys = tuning_keys(module, args, target="cuda:sm_90", options=hardtack.Options(compute=compute))
        assert keys
        assert all(compute in key for key in keys)
    kept = hardtack.Options(compute="bf16", keep_f32=("*",))
    assert tuning_keys(module, args, target="cuda:sm_90", options=kept) == tuning_keys(
        module, args, target="cuda:sm_90"
    )
