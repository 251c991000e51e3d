"""Options.embeddings from the front door: the numbers, the report, the file, the commands, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from torch import Tensor, nn

import hardtack
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle
from hardtack.comparison import compare
from hardtack.quantisation import Quantised, quantise
from hardtack.quantised_layers import KeptLayer

TARGETS = ("cpu:x86-64-v3",)
MODEL = """
import torch

class Words(torch.nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(500, 64), torch.nn.Embedding(16, 64)
        self.head = torch.nn.Linear(64, 500, bias=False)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, i):
        return self.head(self.words(i) + self.places(i % 16))

def words(tied=False):
    torch.manual_seed(0)
    return Words(tied).eval(), (torch.randint(0, 500, (2, 16)),)
"""
BOTH = ("--weights", "int8", "--embeddings", "int4:32")


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")
    return result.exit_code, result.stdout + result.stderr


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "words_here.py"
    path.write_text(MODEL)
    return path


def words(tied: bool = False) -> tuple[nn.Module, tuple[Tensor, ...]]:
    space: dict[str, Any] = {"__name__": "words"}
    exec(MODEL, space)
    module, args = space["words"](tied)
    return module, args


def export(module: nn.Module, args: Any, path: Path, *targets: str, **options: Any) -> hardtack.ExportInfo:
    chosen = hardtack.Options(**options)
    return hardtack.export(module, args, path=path, targets=targets or TARGETS, options=chosen)


def report(module: nn.Module, **options: Any) -> Quantised:
    found = quantise(module.eval(), hardtack.Options(**options)).report
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("scheme", "method"), [("int8", "nearest"), ("fp8", "nearest"), ("int8", "hqq"), ("int4:32", "nearest")]
)
def test_numbers_and_report_are_those_of_torchao(scheme: str, method: str, tmp_path: Path) -> None:
    module, (i,) = words()
    info = export(module, (i,), tmp_path / "m.pkg", embeddings=scheme, weights_method=method)
    quantised = quantise(module, hardtack.Options(embeddings=scheme, weights_method=method)).model
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(i), quantised(i))
        assert torch.equal(module.words.weight, words()[0].words.weight)
    found = info.quantised
    assert found is not None
    assert (found.scheme, found.embeddings, found.method) == (None, scheme, method)
    assert found.kept == (KeptLayer("head", "Linear is no embedding"),)
    assert [(x.name, x.kind, x.shape) for x in found.layers] == [
        ("words", "embedding", (500, 64)), ("places", "embedding", (16, 64)),
    ]  # fmt: skip
    codes = 516 * 64 // (2 if scheme.startswith("int4") else 1)
    scales = 516 * (2 if scheme.startswith("int4") else 1) * 4
    assert sum(x.stored_nbytes for x in found.layers) == codes + scales
    assert info.weights_nbytes < 500 * 64 * 4 + codes + scales + 8192
    assert 0.9 < found.accuracy["forward"][0].cosine <= 1
    assert info.widened == ()


def test_both_options(tmp_path: Path) -> None:
    """Each kind of layer as its own option has it; patterns are for both."""
    module, args = words()
    info = export(module, args, tmp_path / "m.pkg", weights="int8", embeddings="int4:64", keep_weights=("places",))
    found = info.quantised
    assert found is not None
    assert (found.scheme, found.embeddings) == ("int8", "int4:64")
    assert [(x.name, x.kind) for x in found.layers] == [("words", "embedding"), ("head", "linear layer")]
    assert found.kept == (KeptLayer("places", "keep_weights has 'places'"),)
    with open_bundle(info.path) as bundle:
        found = {k: v for k, v in bundle.manifest.numerics.items() if k not in ("accumulate", "fp_contract")}
    assert found == {
        "weights": "int8", "embeddings": "int4:64", "weights_method": "nearest", "keep_weights": '["places"]',
    }  # fmt: skip


def test_a_tied_weight_is_codes_in_both(tmp_path: Path) -> None:
    module, (i,) = words(tied=True)
    info = export(module, (i,), tmp_path / "m.pkg", weights="int8", embeddings="int8")
    assert info.weights_nbytes < 2 * (512 * 64 + 512 * 4) + 16 * 68 + 8192
    quantised = quantise(module, hardtack.Options(weights="int8", embeddings="int8")).model
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(i), quantised(i), rtol=1e-4, atol=1e-4)
    assert module.head.weight is module.words.weight


def test_a_gpu_has_embeddings_of_few_bits(tmp_path: Path) -> None:
    info = export(*words(), tmp_path / "m.pkg", "cuda:sm_90", embeddings="int4:32")
    assert info.widened == ()
    assert info.weights_nbytes < 500 * 64 * 4 + 516 * 40 + 8192


def test_a_bundle_is_compared_with_eager_of_the_same_weights(model_file: Path, tmp_path: Path) -> None:
    module, args = words()
    info = export(module, args, tmp_path / "m.pkg", weights="int8", embeddings="int4:32")
    assert all(x.good for x in compare(hardtack.load(info.path), module, args).outputs)
    status, text = run("compare", info.path, f"{model_file}:words")
    assert status == 0, text


def test_command(model_file: Path, tmp_path: Path) -> None:
    spec, path = f"{model_file}:words", tmp_path / "m.pkg"
    status, text = run("export", spec, "-o", path, "--target", *TARGETS, *BOTH)
    assert status == 0, text
    assert "1 linear layer as int8 and 2 embeddings as int4:32: 260 kB -> 54.6 kB\n" in text
    status, text = run("inspect", path)
    assert "linear layers have weights of int8\nembeddings have weights of int4:32\n" in text
    found = json.loads(run("export", spec, "-o", path, "--target", *TARGETS, "--embeddings", "int8", "--json")[1])
    assert (found["quantised"]["scheme"], found["quantised"]["embeddings"]) == (None, "int8")
    assert [x["kind"] for x in found["quantised"]["layers"]] == ["embedding", "embedding"]
    said = run("export", spec, "-o", path, "--embeddings", "int2")
    assert said[0] == 2
    assert said[1].startswith('error: --embeddings is \'int2\'; it may be "int8", "fp8" or "int4:GROUP"')
    said = run("export", spec, "-o", path, "--embeddings", "int8", "--compute", "f16")
    assert said == (2, "error: --embeddings int8 is there with --compute f32 only so far, not with f16\n")


class Scaled(nn.Embedding):
    def forward(self, i: Tensor) -> Tensor:
        return super().forward(i) * 2.0


def test_a_class_of_its_own_that_picks_rows(tmp_path: Path) -> None:
    """As Gemma's, BART's and OPT's embeddings are."""
    torch.manual_seed(0)
    module, i = Scaled(200, 32).eval(), torch.randint(0, 200, (2, 5))
    info = export(module, (i,), tmp_path / "m.pkg", embeddings="int8")
    found = quantise(module, hardtack.Options(embeddings="int8"))
    assert found.report is not None
    assert found.report.kept == ()
    assert info.weights_nbytes < 200 * 36 + 4096
    assert torch.equal(hardtack.load(info.path).session()(i), found.model(i))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_embeddings_of_16_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, i = nn.Embedding(200, 32, dtype=dtype).eval(), torch.randint(0, 200, (2, 5))
    info = export(module, (i,), tmp_path / "m.pkg", embeddings="int8")
    quantised = quantise(module, hardtack.Options(embeddings="int8")).model
    assert info.weights_nbytes < 200 * 34 + 4096
    assert torch.equal(hardtack.load(info.path).session()(i), quantised(i))


def test_what_is_kept_and_why() -> None:
    bag = nn.EmbeddingBag(9, 32)
    modules = nn.ModuleList(
        [nn.Embedding(9, 32), Scaled(9, 32), nn.Embedding(9, 32, max_norm=1.0), bag, nn.Linear(32, 2)]
    )
    assert report(modules, embeddings="int4:32").kept == (
        KeptLayer("2", "max_norm changes its weights as they are read"),
        KeptLayer("3", "EmbeddingBag is no embedding"),
        KeptLayer("4", "Linear is no embedding"),
    )
    both = report(modules, embeddings="int8", weights="int8")
    assert both.kept[-1] == KeptLayer("3", "EmbeddingBag is neither a linear layer nor an embedding")


def test_what_is_refused() -> None:
    small = nn.Embedding(9, 40)
    lost = nn.Embedding(9, 32)
    with torch.no_grad():
        lost.weight[3, 5] = float("nan")
    cases: list[tuple[nn.Module, dict[str, Any], str]] = [
        (
            nn.Sequential(small),
            {},
            "groups of 32 do not divide the columns of the embeddings 0 (40)\n"
            "  To fix: choose int8, or name the layers in keep_weights",
        ),
        (
            nn.Sequential(lost),
            {},
            "the embedding '0' has weights that are infinite or NaN\n"
            "  To fix: look for what made them so, or name the layer in keep_weights",
        ),
        (
            nn.Sequential(nn.Linear(32, 32)),
            {},
            "the model has no embedding whose weights could be int4:32\n  To fix: export it without Options.embeddings",
        ),
        (
            nn.Sequential(nn.Embedding(9, 32), nn.Linear(32, 32)),
            {"weights": "int8", "keep_weights": ("x",)},
            "keep_weights has 'x', but no linear layer or embedding of the model is, or stands in, such a module\n"
            "  To fix: name a module as named_modules() does; * stands for any part of a path",
        ),
    ]
    for module, options, said in cases:
        with pytest.raises(hardtack.ExportError) as caught:
            report(module, embeddings="int4:32", **options)
        assert str(caught.value) == said
    with pytest.raises(ValueError, match=r"^Options.embeddings is 'int3'; it may be"):
        hardtack.Options(embeddings="int3")


def test_models_that_are_no_modules_any_more() -> None:
    with pytest.raises(hardtack.ExportError) as caught:
        quantise(torch.relu, hardtack.Options(weights="int4:64", embeddings="int8"))
    assert str(caught.value) == (
        "what is to be exported is a function, whose weights cannot be made int4:64 or int8: its linear layers and "
        "embeddings cannot be told any more\n  To fix: pass the nn.Module, or quantise it before it is captured, with "
        "torchao's quantize_, and leave the option out"
    )


def test_a_table_that_the_model_reads_itself(tmp_path: Path) -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(20, 32)

        def forward(self, i: Tensor) -> Tensor:
            return F.linear(self.words(i), self.words.weight) + self.words.weight.sum()

    said = "the model reads the weights of an embedding itself, by aten.sum, and not as that layer does"
    with pytest.raises(hardtack.ExportError) as caught:
        export(Reads().eval(), (torch.randint(0, 20, (3,)),), tmp_path / "m.pkg", embeddings="int8")
    assert str(caught.value) == f"{said}\n  To fix: name the layer in keep_weights"
