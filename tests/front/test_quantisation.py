"""Options.weights from the front door: the numbers, the report, the file and the commands."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.api import ExportInfo, stage_texts, tuning_keys
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle
from hardtack.comparison import compare
from hardtack.quantisation import KeptLayer, Quantised, quantise

TARGETS = ("cpu:x86-64-v3",)
MODEL = """
import torch

def small():
    torch.manual_seed(0)
    first, second, third = (torch.nn.Linear(*sizes) for sizes in ((128, 64), (64, 64), (64, 32)))
    layers = first, torch.nn.GELU(), second, torch.nn.GELU(), third
    return torch.nn.Sequential(*layers).eval(), (torch.randn(8, 128),)

def deep():
    torch.manual_seed(0)
    module = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(7)), torch.nn.Conv1d(8, 8, 1)).eval()
    return module, (torch.randn(8, 32),)
"""
SCHEMES = [("int8", "nearest"), ("fp8", "nearest"), ("int8", "hqq"), ("int4:32", "nearest"), ("int4:64", "hqq")]


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="hardtack")
    return result.exit_code, result.stdout + result.stderr


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "quantised_here.py"
    path.write_text(MODEL)
    return path


def small(name: str = "small") -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    space: dict[str, Any] = {}
    exec(MODEL, space)
    module, args = space[name]()
    return module, args


def of_torchao(module: nn.Module, scheme: str, method: str = "nearest") -> nn.Module:
    """What torchao makes of all linear layers of a copy."""
    from torchao.quantization import (
        Float8WeightOnlyConfig,
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
        PerAxis,
        PerGroup,
        quantize_,
    )
    from torchao.quantization.quantize_.workflows import IntxChooseQParamsAlgorithm

    made = copy.deepcopy(module)
    config: Any = Int8WeightOnlyConfig(set_inductor_config=False)
    if scheme == "fp8":
        config = Float8WeightOnlyConfig(set_inductor_config=False)
    elif (scheme, method) != ("int8", "nearest"):
        group = scheme.partition(":")[2]
        config = IntxWeightOnlyConfig(
            weight_dtype=getattr(torch, scheme.partition(":")[0]),
            granularity=PerGroup(int(group)) if group else PerAxis(0),
            intx_choose_qparams_algorithm=IntxChooseQParamsAlgorithm[
                {"nearest": "AFFINE", "hqq": "HQQ_SCALE_ONLY"}[method]
            ],
        )
    quantize_(made, config)
    return made


def export(module: Any, args: Any, path: Path, **options: Any) -> ExportInfo:
    return hardtack.export(module, args, path=path, targets=TARGETS, options=hardtack.Options(**options))


def report(module: Any, weights: str = "int8", **options: Any) -> Quantised:
    found = quantise(module, hardtack.Options(weights=weights, **options)).report
    assert found is not None
    return found


@pytest.mark.parametrize(("scheme", "method"), SCHEMES)
def test_numbers_and_report_are_those_of_torchao(scheme: str, method: str, tmp_path: Path) -> None:
    module, (x,) = small()
    before, tensors = copy.deepcopy(module.state_dict()), dict(module.named_parameters())
    precision = torch.get_float32_matmul_precision()
    info = export(module, (x,), tmp_path / "m.pkg", weights=scheme, weights_method=method)
    wanted = of_torchao(module, scheme, method)
    with torch.no_grad():
        exact, given = module(x), wanted(x)
    torch.testing.assert_close(hardtack.load(info.path).session()(x), given)

    assert torch.get_float32_matmul_precision() == precision
    assert {n: id(p) for n, p in module.named_parameters()} == {n: id(p) for n, p in tensors.items()}
    for name, value in module.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)

    found = info.quantised
    assert found is not None
    assert (found.scheme, found.method, found.kept) == (scheme, method, ())
    assert [layer.name for layer in found.layers] == ["0", "2", "4"]
    for layer in found.layers:
        linear, quantised = module.get_submodule(layer.name), wanted.get_submodule(layer.name)
        assert isinstance(linear, nn.Linear)
        made: Any = quantised.weight
        assert layer.shape == tuple(linear.weight.shape)
        assert layer.nbytes == 4 * linear.weight.numel()
        codes = linear.weight.numel() // (2 if scheme.startswith("int4") else 1)
        assert layer.stored_nbytes == codes + 4 * made.scale.numel()
        error = (linear.weight - made.dequantize()).norm().item() / linear.weight.norm().item()
        assert layer.error == pytest.approx(error, rel=1e-5)
    (figures,) = found.accuracy["forward"]
    noise = (given - exact).double()
    assert figures.output == "output"
    assert figures.absolute == pytest.approx(float(noise.abs().max()), rel=1e-4)
    assert figures.relative == pytest.approx(figures.absolute / float(exact.abs().max()), rel=1e-4)
    assert figures.snr == pytest.approx(10 * math.log10(exact.double().square().sum() / noise.square().sum()), rel=1e-4)
    assert figures.cosine == pytest.approx(
        float(F.cosine_similarity(exact.flatten(), given.flatten(), dim=0)), abs=1e-5
    )
    assert figures.top1 == float((exact.argmax(-1) == given.argmax(-1)).float().mean())
    assert figures.num_lost == 0


def test_groups_have_a_usual_size() -> None:
    assert hardtack.Options(weights="int4").scheme == hardtack.Options(weights="int4:128").scheme
    assert report(nn.Linear(128, 8), "int4").scheme == "int4:128"


class Parts(nn.Module):
    """One of each that stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 2)
        self.old, self.new = (
            norm(nn.Linear(32, 32)) for norm in (nn.utils.weight_norm, nn.utils.parametrizations.weight_norm)
        )
        self.own = Own(32, 32)
        self.double = nn.Linear(32, 32).double()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(32, 32, 1))
        self.embedding, self.lstm, self.norm = nn.Embedding(5, 32), nn.LSTM(32, 32), nn.LayerNorm(32)
        self.heads = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.last = Named(32, 32)


class Own(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


class Named(nn.Linear):
    """With the forward of a linear layer."""


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
def test_what_is_kept_and_why() -> None:
    found = report(Parts().eval(), keep_weights=("heads.1", "*.2"))
    assert [layer.name for layer in found.layers] == ["heads.0", "last"]
    assert found.kept == (
        KeptLayer("attention.out_proj", "nn.MultiheadAttention reads its weights itself"),
        KeptLayer("old", "its weights are computed, as by weight_norm"),
        KeptLayer("new", "its weights are computed, as by weight_norm"),
        KeptLayer("own", "Own has a forward of its own"),
        KeptLayer("double", "its weights are float64"),
        KeptLayer("heads.1", "keep_weights has 'heads.1'"),
        KeptLayer("heads.2", "keep_weights has '*.2'"),
        KeptLayer("attention", "MultiheadAttention is no linear layer"),
        KeptLayer("conv", "ParametrizedConv1d is no linear layer"),
        KeptLayer("embedding", "Embedding is no linear layer"),
        KeptLayer("lstm", "LSTM is no linear layer"),
    )


def test_layers_of_torch_that_read_weights_themselves(tmp_path: Path) -> None:
    """An encoder of transformers has a fast path, which reads those of its linear layers."""
    torch.manual_seed(0)
    module, x = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).eval(), torch.randn(2, 5, 32)
    info = export(module, (x,), tmp_path / "m.pkg", weights="int8")
    assert info.quantised is not None
    assert [layer.name for layer in info.quantised.layers] == ["linear1", "linear2"]
    wanted = copy.deepcopy(module)
    wanted.linear1, wanted.linear2 = of_torchao(module.linear1, "int8"), of_torchao(module.linear2, "int8")
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(x), wanted(x), rtol=1e-4, atol=1e-5)


class Tied(nn.Module):
    """An embedding and two heads with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(48, 32)
        self.head, self.second = nn.Linear(32, 48, bias=False), nn.Linear(32, 48)
        self.head.weight = self.second.weight = self.embed.weight

    def forward(self, i: torch.Tensor) -> torch.Tensor:
        x = self.embed(i)
        return self.head(x) + self.second(torch.tanh(x))


def test_tied_weights(tmp_path: Path) -> None:
    """Both linear layers are quantised, and stored once; the embedding is as it was."""
    torch.manual_seed(0)
    module, i = Tied().eval(), torch.arange(12).reshape(2, 6)
    info = export(module, (i,), tmp_path / "m.pkg", weights="int8")
    assert info.quantised is not None
    assert [layer.name for layer in info.quantised.layers] == ["head", "second"]
    assert [k.name for k in info.quantised.kept] == ["embed"]
    wanted = copy.deepcopy(module)
    wanted.head, wanted.second = of_torchao(module.head, "int8"), of_torchao(module.second, "int8")
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(i), wanted(i))
    assert module.head.weight is module.embed.weight
    with open_bundle(info.path) as bundle:
        sizes = [math.prod(c.shape) for c in bundle.manifest.constants if str(c.dtype) == "i8"]
        assert len({c.tensor for c in bundle.manifest.constants if str(c.dtype) == "i8"}) == 1, sizes


class Counting(nn.Module):
    """A state, a part of which has a name of its own, and a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(32, 32)
        self.register_buffer("seen", torch.zeros(32))
        self.offset = torch.ones(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.sum(0))
        return self.inner(x) + self.seen + self.offset


def test_states_are_not_disturbed(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Counting().eval(), torch.randn(4, 32)
    info = export(module, (x,), tmp_path / "m.pkg", weights="int4:32")
    assert torch.equal(module.seen, torch.zeros(32))
    wanted = copy.deepcopy(module)
    wanted.inner = of_torchao(module.inner, "int4:32")
    session = hardtack.load(info.path).session()
    with torch.no_grad():
        exact = copy.deepcopy(module)(x)
        first = wanted(x)
        torch.testing.assert_close(session(x), first)
        torch.testing.assert_close(session(x), wanted(x))
    assert info.quantised is not None
    (figures,) = info.quantised.accuracy["forward"]
    assert figures.absolute == pytest.approx(float((first - exact).abs().max()), rel=1e-3)


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.last = inner, nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.inner(x))


def test_entry_points_share_modules(tmp_path: Path) -> None:
    """A layer is quantised once, whatever it is called by; a pattern may have any of its names."""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 64)).eval()
    entries, x = {"inner": inner, "first": Outer(inner).eval(), "second": Outer(inner).eval()}, torch.randn(4, 32)
    given = dict.fromkeys(entries, (x,))
    info = export(entries, given, tmp_path / "m.pkg", weights="int8", keep_weights=("inner.2",))
    assert info.quantised is not None
    assert [layer.name for layer in info.quantised.layers] == ["inner 0", "first last", "second last"]
    assert info.quantised.kept == (KeptLayer("inner 2", "keep_weights has 'inner.2'"),)
    assert list(info.quantised.accuracy) == list(entries)
    wanted = copy.deepcopy(entries)
    wanted["inner"][0] = of_torchao(inner[0], "int8")  # type: ignore[operator, index]
    model = hardtack.load(info.path)
    for name, module in wanted.items():
        if isinstance(module, Outer):
            module.last = of_torchao(module.last, "int8")
        with torch.no_grad():
            torch.testing.assert_close(model.session(name)(x), module(x))
    for name in entries:
        assert all(d.good for d in compare(model, entries, given, entry=name).outputs)
    with open_bundle(info.path) as bundle:
        assert len({c.tensor for c in bundle.manifest.constants if str(c.dtype) == "i8"}) == 3


def test_a_bundle_is_compared_with_eager_of_the_same_weights(model_file: Path, tmp_path: Path) -> None:
    module, args = small()
    info = export(module, args, tmp_path / "m.pkg", weights="int4:64", weights_method="hqq", keep_weights=("4",))
    with open_bundle(info.path) as bundle:
        assert bundle.manifest.numerics == {
            "accumulate": "f32",
            "fp_contract": "off",
            "weights": "int4:64",
            "weights_method": "hqq",
            "keep_weights": '["4"]',
        }
    found = compare(hardtack.load(info.path), module, args, steps=True)
    assert found.steps
    assert all(d.good and d.relative < 1e-5 for d in (*found.outputs, *found.steps))
    status, text = run("compare", info.path, f"{model_file}:small", "--steps")
    assert status == 0, text
    assert 'linear layers have weights of int4:64, but for ["4"]\n' in run("inspect", info.path)[1]


def test_a_usual_bundle_says_nothing_of_weights(tmp_path: Path) -> None:
    module, args = small()
    info = export(module, args, tmp_path / "m.pkg")
    assert info.quantised is None
    assert "linear layers" not in run("inspect", info.path)[1]


def test_command(model_file: Path, tmp_path: Path) -> None:
    spec, path = f"{model_file}:small", tmp_path / "m.pkg"
    status, text = run("export", spec, "-o", path, "--target", *TARGETS, "--weights", "int8", "--keep-weights", "4")
    assert status == 0, text
    assert "2 linear layers as int8: 49.2 kB -> 12.8 kB; 1 kept: keep_weights has '4'\n" in text
    assert "those with the largest errors, by the method nearest\n" in text
    assert re.search(r"\n0 +\[64, 128\] +32\.8 kB +8\.45 kB +0\.\d\d%\n", text)
    assert "at the example inputs, from f32\n" in text
    assert "cosine" in text
    assert "top 1" in text
    assert "100.0%" in text
    document = json.loads(run("export", spec, "-o", path, "--target", *TARGETS, "--weights", "int4:32", "--json")[1])
    found = document["quantised"]
    assert set(found) == {
        "scheme", "embeddings", "activations", "method", "layers", "kept", "nbytes", "stored_nbytes", "num_examples",
        "accuracy", "perplexity",
    }  # fmt: skip
    assert (found["scheme"], found["method"], found["kept"]) == ("int4:32", "nearest", [])
    assert [(x["name"], x["shape"], x["nbytes"], x["stored_nbytes"]) for x in found["layers"]] == [
        ("0", [64, 128], 32768, 4096 + 4 * 64 * 4),
        ("2", [64, 64], 16384, 2048 + 2 * 64 * 4),
        ("4", [32, 64], 8192, 1024 + 2 * 32 * 4),
    ]
    assert (found["nbytes"], found["stored_nbytes"]) == (57344, 7168 + 4 * (4 * 64 + 2 * 64 + 2 * 32))
    assert set(found["layers"][0]) == {
        "name", "kind", "shape", "nbytes", "stored_nbytes", "method", "error", "output_error", "activations",
        "activation_scale",
    }  # fmt: skip
    figures = {"output", "absolute", "relative", "snr", "num_lost", "cosine", "top1"}
    assert set(found["accuracy"]["forward"][0]) == figures


def test_wrong_commands(model_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.pkg"
    for command in (("export", f"{model_file}:small", "-o", out), ("tune", f"{model_file}:small", "-o", out)):
        target = ("--target", "cpu:x86-64-v3")
        said = run(*command, *target, "--weights", "external")
        assert said == (
            2, "error: --weights is 'external'; weights go to a file beside the bundle with --external-weights\n"
        )  # fmt: skip
        said = run(*command, *target, "--keep-weights", "0")
        without = {
            "export": "--weights or --embeddings, of which none is there",
            "tune": "--weights, which is not there",
        }
        assert said == (2, f"error: --keep-weights leaves layers out of {without[command[0]]}\n")
        said = run(*command, *target, "--weights", "int8", "--compute", "f16")
        assert said == (2, "error: --weights int8 is there with --compute f32 only so far, not with f16\n")


def test_command_shows_the_worst_five(model_file: Path, tmp_path: Path) -> None:
    arguments = ("export", f"{model_file}:deep", "-o", tmp_path / "m.pkg", "--target", *TARGETS, "--weights", "int4:32")
    status, text = run(*arguments)
    assert status == 0, text
    assert "7 linear layers as int4:32: 28.7 kB -> 4.48 kB; 1 kept: Conv1d is no linear layer\n" in text
    assert text.count("4.1 kB  640 B") == 5
    layers = json.loads(run(*arguments, "--json")[1])["quantised"]["layers"]
    worst = max(layers, key=lambda x: float(x["error"]))
    shown = text.partition("those with the largest errors")[2].splitlines()[2]
    assert shown.split()[0] == worst["name"]
    assert shown.endswith(f"{worst['error']:.2%}")


def test_stages_and_keys_are_those_of_quantised_weights(model_file: Path) -> None:
    spec = f"{model_file}:small"
    status, text = run("export", spec, "--stop-after", "graph", "--weights", "int4:32", "--keep-weights", "0")
    assert status == 0, text
    module, args = small()
    assert (
        text.rstrip()
        == stage_texts("graph", module, args, options=hardtack.Options(weights="int4:32", keep_weights=("0",)))[
            "forward"
        ].rstrip()
    )
    wanted = stage_texts("graph", of_torchao(module, "int8", "hqq"), args)
    assert stage_texts("graph", module, args, options=hardtack.Options(weights="int8", weights_method="hqq")) == wanted
    keys = tuning_keys(of_torchao(module, "int8"), args, target="cpu:x86-64-v3")
    assert tuning_keys(module, args, target="cpu:x86-64-v3", options=hardtack.Options(weights="int8")) == keys


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("scheme", ["int8", "fp8", "int4:32"])
def test_rows_of_zeros_stay_zeros(scheme: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Such as that of padding; torchao's own float8 of them is NaN."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Embedding(500, 64, padding_idx=0), nn.Linear(64, 32)).eval().to(dtype)
    linear = module[1]
    assert isinstance(linear, nn.Linear)
    with torch.no_grad():
        linear.weight[3] = 0
    ids = torch.tensor([[0, 1, 7]])
    info = export(module, (ids,), tmp_path / "m.pkg", weights=scheme, embeddings=scheme)
    got = hardtack.load(info.path).session()(ids)
    assert torch.equal(got[..., 3], linear.bias[3].expand(1, 3))
    torch.testing.assert_close(got[0, 0], linear.bias)
    assert got.isfinite().all()


@pytest.mark.parametrize(
    ("scheme", "dtype", "target"),
    [
        ("int8", torch.bfloat16, "cuda:sm_90"),
        ("int4:32", torch.float32, "hip:gfx942"),
        ("fp8", torch.float16, "cuda:sm_80"),
    ],
)
def test_a_gpu_reads_codes(scheme: str, dtype: torch.dtype, target: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    module, (x,) = small()
    module, x = module.to(dtype), x[:1].to(dtype)
    options = hardtack.Options(weights=scheme)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=(target,), options=options)
    assert info.widened == ()
    assert info.quantised is not None
    held = sum(layer.stored_nbytes for layer in info.quantised.layers)
    assert held <= info.weights_nbytes < held + 8192
    (text,) = stage_texts("render", module, (x,), target=target, options=hardtack.Options(weights=scheme)).values()
    assert ("e4m3_at" if scheme == "fp8" else "code_at") in text
    assert tuning_keys(module, (x,), target=target, options=hardtack.Options(weights=scheme)) == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_models_of_16_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    module, (x,) = small()
    module, x = module.to(dtype), x.to(dtype)
    info = export(module, (x,), tmp_path / "m.pkg", weights="int8")
    assert info.widened == ()
    with torch.no_grad():
        want = of_torchao(module, "int8")(x)
    tol = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(hardtack.load(info.path).session()(x), want, rtol=tol, atol=tol)
    assert info.quantised is not None
    assert all(0 < layer.error < 0.02 for layer in info.quantised.layers)
