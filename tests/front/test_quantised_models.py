"""Quantised models from the front door: compiled, and what the export says of their weights."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.cli import main
from hardtack.codegen.package.bundle import open_bundle
from hardtack.codegen.package.errors import ReplaceError
from hardtack.widened import Widened
from tests.support.torchao_models import of_pt2e, of_torchao

TARGETS = ("cpu:x86-64-v3",)
MODEL = """
import torch
import torch.nn.functional as F

class Convolution(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Buffer(torch.randint(-8, 8, (64, 64, 1)).to(torch.int8))

    def forward(self, x):
        return F.conv1d(x, self.weight.float() * 0.01)

def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(Convolution() for _ in range(6))).eval(), (torch.randn(8, 64, 5),)
"""


def test_a_static_model_of_convolutions_gives_what_eager_does(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 5)).eval()
    x = torch.randn(2, 3, 16, 16)
    quantised = of_pt2e(module, x, "xnnpack, static, per channel")
    info = hardtack.export(quantised, (x,), path=tmp_path / "m.pkg", targets=TARGETS)
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(x)[0], quantised(x)[0])
    assert [(w.dtype, w.stored_dtype, w.nbytes) for w in info.widened] == [("i8", "f32", 8 * 27)]  # the convolution's


@pytest.mark.parametrize("depth", [64, 1500])
def test_a_model_of_bytes_gives_what_eager_does(tmp_path: Path, depth: int) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(depth, 128), nn.GELU(), nn.Linear(128, 32)).eval()
    module = of_torchao(module, "int8")
    x = torch.randn(20, depth)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS)
    with torch.no_grad():
        torch.testing.assert_close(hardtack.load(info.path).session()(x), module(x))


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_weights_of_float8_are_stored_and_read_as_float8(dtype: torch.dtype, rows: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32)).eval().to(dtype)
    module = of_torchao(module, "float8 weights")
    x = torch.randn(rows, 64).to(dtype)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS)
    assert info.widened == ()
    assert info.weights_nbytes < 64 * 128 + 128 * 32 + 160 * 8 + 2048
    with torch.no_grad():
        close(hardtack.load(info.path).session()(x), module(x))


class DynamicFloat8(nn.Module):
    """A layer whose activations become float8 as it runs, with a scale for each row or for all, as torchao has it."""

    def __init__(self, depth: int, columns: int, by_row: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.by_row, wide = by_row, torch.randn(columns, depth) * 0.05
        scales = self.largest(wide) / 448
        self.weight = nn.Buffer((wide / scales).to(torch.float8_e4m3fn))
        self.scales = nn.Buffer(scales.t())
        self.bias = nn.Buffer(torch.randn(columns).to(dtype))

    def largest(self, x: torch.Tensor) -> torch.Tensor:
        return (x.abs().amax(-1, keepdim=True) if self.by_row else x.abs().amax()).float().clamp(min=1e-12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scales = self.largest(x) / 448
        small = (x.float() / scales).clamp(-448, 448).to(torch.float8_e4m3fn)
        return torch._scaled_mm(small, self.weight.t(), scales, self.scales, bias=self.bias, out_dtype=x.dtype)


@pytest.mark.sweep(over="rows")
@pytest.mark.parametrize("rows", [1, 6, 40])
@pytest.mark.parametrize("by_row", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_activations_of_float8(dtype: torch.dtype, by_row: bool, rows: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = DynamicFloat8(256, 96, by_row, dtype).eval(), torch.randn(rows, 256).to(dtype)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS)
    assert info.widened == ()
    assert info.weights_nbytes < 256 * 96 + 96 * 8 + 2048
    close(hardtack.load(info.path).session()(x), module(x))


class Scaled(nn.Module):
    """As people write int8 weights by hand."""

    def __init__(self, depth: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.randint(-128, 128, (columns, depth)).to(torch.int8))
        self.scales = nn.Parameter(torch.rand(columns) * 0.01, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, self.weight.to(x.dtype)) * self.scales)


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    """To what their type and sums of float32 allow."""
    tol = 1e-4 if want.dtype is torch.float32 else 2 * torch.finfo(want.dtype).eps
    torch.testing.assert_close(got, want, rtol=tol, atol=tol)


@pytest.mark.parametrize("rows", [1, 5, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("target", ["cpu:native", "cpu:x86-64-v3"])
@pytest.mark.sweep(over=("target", "dtype"))
def test_weights_of_bytes_are_stored_and_read_as_bytes(
    tmp_path: Path, rows: int, dtype: torch.dtype, target: str
) -> None:
    torch.manual_seed(0)
    module, x = Scaled(300, 200).eval().to(dtype), torch.randn(rows, 300).to(dtype)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=(target,))
    assert info.widened == ()
    assert info.weights_nbytes < 300 * 224 + 8192
    close(hardtack.load(info.path).session()(x), module(x))


class Grouped(nn.Module):
    """Weights of 4 bits, of which groups of 32 along K share scales and zero points; the scales are floats."""

    def __init__(self, depth: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.randint(-8, 8, (columns, depth)).to(torch.int8))
        self.scales = nn.Parameter(torch.rand(columns, depth // 32) * 0.01, requires_grad=False)
        self.shifts = nn.Parameter(torch.randn(columns, depth // 32) * 0.01, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = (t.repeat_interleave(32, 1) for t in (self.scales, self.shifts))
        return F.gelu(F.linear(x, self.weight.to(x.dtype) * next(wide) + next(wide)))


@pytest.mark.parametrize("rows", [1, 3, 5, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("target", ["cpu:native", "cpu:x86-64-v3"])
@pytest.mark.sweep(over=("target", "dtype"))
def test_weights_of_4_bits_take_half_a_byte(tmp_path: Path, rows: int, dtype: torch.dtype, target: str) -> None:
    torch.manual_seed(0)
    module, x = Grouped(320, 200).eval().to(dtype), torch.randn(rows, 320).to(dtype)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=(target,))
    assert info.widened == ()
    assert info.weights_nbytes < 320 * 224 // 2 + 2 * 10 * 224 * dtype.itemsize + 8192
    close(hardtack.load(info.path).session()(x), module(x))


def test_scales_are_replaced_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, other, x = Grouped(64, 48).eval(), Grouped(64, 48).eval(), torch.randn(8, 64)
    path = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS).path
    scales = {"scales": other.scales}
    hardtack.replace_weights(path, scales, path=tmp_path / "scales.pkg")
    module.scales = other.scales
    found = hardtack.load(tmp_path / "scales.pkg").session()(x)
    torch.testing.assert_close(found, module(x), rtol=1e-4, atol=1e-4)


class Cut(nn.Module):
    """Parts of weights, cut in several steps."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Buffer(torch.randint(-128, 128, (50, 70)).to(torch.int8))
        self.plain = nn.Buffer(torch.randn(50, 70))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.small[2:].t()[6:].t().float()) + x @ self.plain[2:].t()[6:]


class Blocked(nn.Module):
    """A weight of float8 whose blocks of 16 rows and 32 columns have a scale each."""

    def __init__(self, depth: int = 64, columns: int = 48) -> None:
        super().__init__()
        self.weight = nn.Buffer((torch.randn(columns, depth) * 40).to(torch.float8_e4m3fn))
        self.scales = nn.Buffer(torch.rand(columns // 16, depth // 32) * 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blocks = self.weight.float().unflatten(0, (-1, 16)).unflatten(2, (-1, 32))
        return F.linear(x, (blocks * self.scales[:, None, :, None]).flatten(2).flatten(0, 1))


@pytest.mark.sweep(over="rows")
@pytest.mark.parametrize("rows", [1, 8, 40])
def test_blocks_of_rows_and_columns_have_scales(rows: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, x = Blocked(256, 96).eval(), torch.randn(rows, 256)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS)
    assert info.widened == ()
    assert info.weights_nbytes < 256 * 96 + 8 * 96 * 4 + 2048
    torch.testing.assert_close(hardtack.load(info.path).session()(x), module(x), rtol=1e-4, atol=1e-4)


MADE: dict[str, Callable[[], nn.Module]] = {
    "blocks of float8": Blocked,
    "bytes": lambda: Scaled(64, 48),
    "4 bits in groups": lambda: Grouped(64, 48),
    "4 bits in groups, scales in 16": lambda: Grouped(64, 48).bfloat16(),
    "parts of parts": Cut,
}


@pytest.mark.sweep(share=2)
@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_weights_of_few_bits_are_replaced(tmp_path: Path, made: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    module, other = made().eval(), made().eval()
    x = torch.randn(8, 64).to(next((p.dtype for p in module.parameters()), torch.float32))
    path = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS).path
    fresh = hardtack.export(other, (x,), path=tmp_path / "other.pkg", targets=TARGETS).path
    hardtack.replace_weights(path, dict(other.state_dict()), path=tmp_path / "new.pkg")
    assert (tmp_path / "new.pkg").read_bytes() == fresh.read_bytes()


def test_codes_that_do_not_fit_are_not_taken(tmp_path: Path) -> None:
    module = Grouped(64, 48).eval()
    path = hardtack.export(module, (torch.randn(8, 64),), path=tmp_path / "m.pkg", targets=TARGETS).path
    module.weight[3, 5] = 100
    module.weight[7, 1] = -9
    words = "weight has numbers from -9 to 100, which do not fit in 4 bits, -8 to 7, in which the bundle holds it"
    with pytest.raises(ReplaceError) as caught:
        hardtack.replace_weights(path, {"weight": module.weight}, path=tmp_path / "new.pkg")
    assert str(caught.value) == words


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("config", ["int4 weights in groups", "int8 by int4", "int8", "int8 weights"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_models_of_torchao_are_stored_as_they_are(tmp_path: Path, config: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = of_torchao(nn.Sequential(nn.Linear(256, 128), nn.GELU(), nn.Linear(128, 64)).eval().to(dtype), config)
    x = torch.randn(6, 256).to(dtype)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=TARGETS)
    codes = (256 * 128 + 128 * 64) // (2 if "int4" in config else 1)
    assert info.widened == ()
    assert info.weights_nbytes < codes + (256 * 128 + 128 * 64) // 32 * 4 + 8192
    with torch.no_grad():
        tol = 1e-3 if dtype is torch.float32 else 2e-2
        torch.testing.assert_close(hardtack.load(info.path).session()(x), module(x), rtol=tol, atol=tol)


class Convolved(nn.Module):
    """A convolution with a weight of int8."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Buffer(torch.randint(-128, 128, (32, 64, 1)).to(torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, self.weight.float() * 0.01)


def test_what_has_no_kernel_for_bytes_has_them_as_floats(tmp_path: Path) -> None:
    """Which weights are held so is said, and they cannot be replaced, since no recipe dequantises."""
    torch.manual_seed(0)
    module, x = Convolved().eval(), torch.randn(8, 64, 5)
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=("cpu:native",))
    assert info.widened == (Widened("weight", "i8", 64 * 32, "f32", 64 * 32 * 4),)
    torch.testing.assert_close(hardtack.load(info.path).session()(x), module(x), rtol=1e-4, atol=1e-4)
    with pytest.raises(ReplaceError, match="weight"):
        hardtack.replace_weights(info.path, {"weight": module.weight}, path=tmp_path / "n.pkg")


class Unsigned(nn.Module):
    """A weight of uint8, by numbers or by codes."""

    def __init__(self, of_codes: bool) -> None:
        super().__init__()
        self.weight, self.of_codes = nn.Buffer(torch.randint(0, 256, (32, 64)).to(torch.uint8)), of_codes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = x.round().clamp(-128, 127).to(torch.int8).float() if self.of_codes else x
        return F.linear(given, (self.weight.float() - 128) * 0.01)


@pytest.mark.parametrize("of_codes", [False, True])
def test_weights_of_uint8_are_a_byte_each_and_replaced_where_they_are_stored_so(of_codes: bool, tmp_path: Path) -> None:
    """Products of integers read what no recipe computes, 128 less."""
    torch.manual_seed(0)
    module, x = Unsigned(of_codes).eval(), torch.randn(8, 64) * 50
    info = hardtack.export(module, (x,), path=tmp_path / "m.pkg", targets=("cpu:native",))
    assert info.widened == ()
    torch.testing.assert_close(hardtack.load(info.path).session()(x), module(x), rtol=1e-4, atol=1e-3)
    with open_bundle(info.path) as bundle:
        assert sum(c.dtype.nbytes * math.prod(c.shape) for c in bundle.manifest.constants) < 2 * 32 * 64
    module.weight.copy_(255 - module.weight)
    if of_codes:
        with pytest.raises(ReplaceError, match="weight"):
            hardtack.replace_weights(info.path, {"weight": module.weight}, path=tmp_path / "n.pkg")
        return
    hardtack.replace_weights(info.path, {"weight": module.weight}, path=tmp_path / "n.pkg")
    torch.testing.assert_close(hardtack.load(tmp_path / "n.pkg").session()(x), module(x), rtol=1e-4, atol=1e-3)


def test_entry_points_have_weights_of_bytes_of_one_name(tmp_path: Path) -> None:
    """What a target converts is named after an op, which both have."""
    torch.manual_seed(0)
    modules, x = {"first": Scaled(64, 32).eval(), "second": Scaled(64, 32).eval()}, torch.randn(8, 64)
    given = dict.fromkeys(modules, (x,))
    targets = ("cpu:native", "cuda:sm_90")
    info = hardtack.export(modules, given, path=tmp_path / "m.pkg", targets=targets)
    model = hardtack.load(info.path, device="cpu")
    for name, module in modules.items():
        torch.testing.assert_close(model.session(name)(x), module(x), rtol=1e-4, atol=1e-4)


def test_a_gpu_holds_codes_of_torchao(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 32)).eval()
    plain = hardtack.export(module, (torch.randn(8, 64),), path=tmp_path / "plain.pkg", targets=TARGETS)
    assert plain.widened == ()
    module = of_torchao(module, "int4 weights in groups")
    given = (torch.randn(8, 64),)
    info = hardtack.export(module, given, path=tmp_path / "m.pkg", targets=("cuda:sm_90",))
    assert info.widened == ()
    assert info.weights_nbytes < 64 * 32 // 2 + 64 * 32 // 32 * 8 + 4096


def test_the_command_shows_the_largest(tmp_path: Path) -> None:
    model = tmp_path / "quantised_model.py"
    model.write_text(MODEL)
    arguments = ["export", f"{model}:small", "-o", str(tmp_path / "m.pkg"), "--target", "cpu:x86-64-v3"]
    said = CliRunner().invoke(main, arguments, prog_name="hardtack").output
    assert "6 quantised weights are stored in floating point" in said
    assert said.count("i8 4.1 kB") == 5
    assert "all 6" in said
    assert "24.6 kB" in said
    told = json.loads(CliRunner().invoke(main, [*arguments, "--json"], prog_name="hardtack").output)
    assert [(w["dtype"], w["nbytes"], w["stored_nbytes"]) for w in told["widened"]] == [("i8", 4096, 16384)] * 6


class Three(nn.Module):
    """Layers of one activation, whose products are one on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Grouped(64, n) for n in (40, 16, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x) for layer in self.layers)


def test_codes_of_joined_products_are_replaced(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    module, other, x = Three().eval().bfloat16(), Three().eval().bfloat16(), torch.randn(1, 64).bfloat16()
    options = hardtack.Options(external_weights=True)
    for name, made in (("m", module), ("other", other)):
        hardtack.export(made, (x,), path=tmp_path / f"{name}.pkg", targets=("cuda:sm_90",), options=options)
    hardtack.replace_weights(tmp_path / "m.pkg", other.state_dict(), path=tmp_path / "new.pkg")
    assert (tmp_path / "new.safetensors").read_bytes() == (tmp_path / "other.safetensors").read_bytes()
