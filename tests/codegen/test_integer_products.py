"""Products of what codes stand for, on CPUs: exact where they are products of int8, and why others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.plan import Launch
from hardtack.codegen.lower.cpu_integer_cost import ConvCost
from hardtack.codegen.machine.data import AARCH64, X86_64_V3
from hardtack.codegen.passes.shared import integer_products
from hardtack.codegen.passes.shared.integer_products import KIND
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.exporter import to_graphs
from tests.codegen.compare import to_numpy
from tests.codegen.emulated import EmulatedRunner
from tests.codegen.runner import Runner
from tests.support.aarch64 import needs_aarch64
from tests.support.torchao_models import QUANTISERS, of_pt2e

I8, U8 = torch.int8, torch.uint8


@pytest.fixture
def whatever_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small convolutions, too, are of int8."""
    monkeypatch.setattr(integer_products, "conv_cost", lambda *given: ConvCost(1, 2))


def codes(*shape: int, dtype: torch.dtype = I8, seed: int = 0) -> torch.Tensor:
    least, most = (-128, 128) if dtype is I8 else (0, 256)
    return torch.randint(least, most, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


class Spelled(nn.Module):
    """Products of codes in all the forms that people write, each with its exact result in int64 and float64."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Buffer(codes(33, 70))
        self.one = nn.Buffer(torch.tensor(0.02))
        self.rows = nn.Buffer(torch.rand(33, generator=torch.Generator().manual_seed(1)) + 0.01)
        self.zeros = nn.Buffer(torch.arange(-16, 17, dtype=torch.int32))
        self.bias = nn.Buffer(torch.linspace(-40, 40, 33))
        self.v = nn.Buffer(codes(33, 70, dtype=U8, seed=11))
        self.points = nn.Buffer(torch.arange(100, 133, dtype=U8))
        self.centred = nn.Buffer(codes(34, 20, 3, 3, dtype=U8, seed=12))
        self.grouped = nn.Buffer(codes(40, 10, 3, 2, dtype=U8, seed=13))
        self.places = nn.Buffer(torch.arange(100, 140, dtype=torch.int32)[:, None, None, None])
        self.every = nn.Buffer(codes(20, 1, 3, 3, dtype=U8, seed=14))
        self.taps = nn.Buffer(codes(34, 3, 3, 3))
        self.many = nn.Buffer(codes(40, 10, 3, 2, seed=3))
        self.point = nn.Buffer(codes(8, 20, 1, 1, seed=4))
        self.each = nn.Buffer(codes(20, 1, 3, 3, seed=6))
        self.small = nn.Buffer(codes(34, 20, 3, 3, seed=15) // 16)
        self.less = nn.Buffer(codes(34, 20, 3, 3, dtype=U8, seed=16) // 16)
        self.line = nn.Buffer(codes(9, 20, 5, seed=5))
        self.wide = nn.Buffer(torch.rand(34, 1, 1, 1, generator=torch.Generator().manual_seed(2)) + 0.01)

    def forward(
        self, x: torch.Tensor, u: torch.Tensor, y: torch.Tensor, image: torch.Tensor, deep: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """x [5, 70], y [70, 9] of int8, u [2, 5, 70] of uint8; images [2, 3, 9, 8] of uint8, [2, 20, 9, 8] of int8."""
        a, b = (x.float() - 7) * 0.1, (u.float() - 131.0) * 0.05
        w = self.w.float() * self.rows[:, None]
        shifted = (self.w.int() - self.zeros[:, None]).float() * self.rows[:, None]
        by_row = (x.float() - x[:, :1].long().clamp(-5, 9).float()) * (x[:, 1:2].float() * 0.25)
        colours, channels = (image.float() - 120) * 0.5, (deep.to(torch.int64) + 3).float() * 0.25
        taps = self.taps.float() * self.wide
        return {
            "linear": F.linear(a, w, self.bias),
            "of uint8 in three dimensions": F.linear(b, w, self.bias).relu(),
            "by one scale": a @ (self.w.float() * self.one).t(),
            "weights with zero points": F.linear(b, shifted),
            "of two activations": a @ ((y.float() - -4) * 0.3),
            "in a batch": torch.matmul(b, ((y.float() + 5) * 0.3).expand(2, 70, 9)),
            "added to": torch.addmm(self.bias, a, shifted.t()),
            "scales of rows": by_row @ w.t(),
            "behind views": (b.transpose(0, 1).reshape(10, 7, 10).flip(2)).reshape(10, 70) @ w.t(),
            "into int8": F.linear(by_row, shifted, self.bias).div(8).round().clamp(-128, 127).to(I8),
            "short taps": F.conv2d(colours, taps, self.wide.flatten(), padding=1, stride=2),
            "uneven padding": F.conv2d(F.pad(colours, (0, 1, 2, 0)), taps),
            "groups": F.conv2d(channels, self.many.float() * 0.5, None, padding=(2, 1), dilation=(2, 1), groups=2),
            "by channel": F.conv2d(channels, self.each.float() * self.wide[:20], self.bias[:20], padding=1, groups=20),
            "by channel in steps": F.conv2d(channels, self.each.float() * 0.5, padding=(1, 2), stride=2, groups=20),
            "by channel, spread": F.conv2d(channels, self.each.float() * 0.5, padding=2, dilation=2, groups=20),
            "a zero point beyond the codes": F.conv2d((deep.float() - 200) * 0.25, self.point.float() * 0.5),
            "points": F.conv2d(channels, self.point.float() * 0.5),
            "a line": F.conv1d(channels[:, :, 0], self.line.float() * 0.5, padding=2),
            "weights of uint8": F.linear(a, (self.v.float() - 128) * self.rows[:, None], self.bias),
            "of uint8, with a zero point each": F.linear(b, (self.v.int() - self.points[:, None].int()).float() * 0.1),
            "of uint8, without": by_row @ (self.v.float() * self.one).t(),
            "filters of uint8": F.conv2d(channels, (self.centred.float() - 128) * 0.5, padding=1),
            "with a zero point": F.conv2d(channels, (self.centred.float() - 77) * 0.5, self.wide.flatten(), padding=1),
            "of int8, in steps": F.conv2d(
                (deep.float() - 2) * 0.5,
                (self.taps[:20].view(20, 9, 3, 1)[:, :5].float() - -3) * 0.5,
                stride=2,
                padding=(2, 0),
                groups=4,
            ),
            "of 4 bits": F.conv2d(channels, self.small.float() * self.wide, padding=1),
            "of 4 bits, uint8": F.conv2d(channels, (self.less.float() - 7) * 0.5, self.wide.flatten(), padding=1),
            "with zero points": F.conv2d(
                channels,
                (self.grouped.int() - self.places).float() * 0.5,
                None,
                padding=(2, 1),
                dilation=(2, 1),
                groups=2,
            ),
            "a line with a zero point": F.conv1d(channels[:, :, 0], (self.line.float() - 9) * 0.5, padding=2, stride=3),
            "filters of uint8 by channel": F.conv2d(channels, (self.every.float() - 128) * 0.5, padding=1, groups=20),
        }


INPUTS = (
    codes(5, 70),
    codes(2, 5, 70, dtype=U8),
    codes(70, 9, seed=7),
    codes(2, 3, 9, 8, dtype=U8),
    codes(2, 20, 9, 8),
)


class Exact(torch.utils._python_dispatch.TorchDispatchMode):
    """Floats are of 64 bits."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def exact(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
    """What the module gives in float64, of its own scales."""
    wide = Spelled().double() if isinstance(module, Spelled) else module.double()
    with Exact():
        return wide(*inputs)


def runner_of(
    module: Any, inputs: tuple[torch.Tensor, ...], backend: CppBackend | None = None, runner: type[Runner] = Runner
) -> Runner:
    exported = to_graphs(module, inputs)
    (entry,) = exported.entries.values()
    return runner(entry.graph, compile_entry(entry.graph, {}, backend or CppBackend()), exported.store)


def products(made: CompiledEntry) -> list[Decision]:
    return [d for d in made.decisions if d.kind == KIND]


def _check_exact(runner: Runner) -> None:
    module = Spelled().eval()
    got, want = runner(*map(to_numpy, INPUTS)), exact(module, INPUTS)
    assert [d.accepted for d in products(runner.compiled)] == [True] * len(want)
    for (name, y), x in zip(want.items(), map(torch.from_numpy, got), strict=True):
        assert x.shape == y.shape, name
        if x.dtype is I8:
            assert torch.equal(x, y), name
            continue
        # a sum is exact: its conversion, two or three factors and a bias are rounded
        assert ((x.double() - y).abs() <= 4e-7 * (y.abs() + 40)).all(), name


@pytest.mark.usefixtures("whatever_it_costs")
def test_every_form_is_a_product_of_int8_and_exact() -> None:
    _check_exact(runner_of(Spelled().eval(), INPUTS))


@needs_aarch64
@pytest.mark.usefixtures("whatever_it_costs")
def test_the_same_on_an_emulated_cpu() -> None:
    _check_exact(runner_of(Spelled().eval(), INPUTS, CppBackend(machines=(AARCH64,)), EmulatedRunner))


class Kept(nn.Module):
    """A product of float32, by a function of its operands' codes."""

    def __init__(self, product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], w: torch.Tensor) -> None:
        super().__init__()
        self.w, self.product = nn.Buffer(w), product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x, self.w)


GROUPS = torch.linspace(0.1, 1, 16).view(8, 2)


KEPT: dict[str, tuple[Kept, tuple[int, ...], str]] = {
    "groups": (
        Kept(lambda x, w: F.linear((x.float() - 3) * 0.1, w.float() * GROUPS.repeat_interleave(32, 1)), codes(8, 64)),
        (5, 64),
        "its weight has scales of groups",
    ),
    "zero points that are no whole numbers": (
        Kept(lambda x, w: F.linear(x.float() * 0.1, (w.float() - 2.5) * 0.1), codes(8, 64)),
        (5, 64),
        "its weight has zero points that are no whole numbers, or can be replaced",
    ),
    "a zero point that may be any": (
        Kept(lambda x, w: F.linear((x.float() - x.sum().float()) * 0.1, w.float() * 0.1), codes(8, 64)),
        (5, 64),
        "its activation has a zero point that may be any number",
    ),
    "scales along K": (
        Kept(lambda x, w: F.linear(x.float() * torch.linspace(0.1, 1, 64), w.float() * 0.1), codes(8, 64)),
        (5, 64),
        "a scale or a zero point differs along what is added up",
    ),
    "turned scales": (
        Kept(lambda x, w: (x.float() * torch.linspace(0.1, 1, 5)[:, None]).t() @ (w.float() * 0.1), codes(5, 8)),
        (5, 64),
        "a scale or a zero point differs along what is added up",
    ),
    "a residual": (
        Kept(lambda x, w: F.linear(x.float() * 0.1 + x.float().flip(0) * 0.2, w.float() * 0.1), codes(8, 64)),
        (5, 64),
        "numbers are added to its activation's codes",
    ),
    "half a byte": (
        Kept(lambda x, w: F.linear(x.float() * 0.1, w.float() * 0.1), codes(8, 64) // 16),
        (5, 64),
        "its weight has codes of 4 bits, which are stored in half a byte",
    ),
    "a depth beyond int32": (
        Kept(lambda x, w: F.linear(x.float() * 0.1, w.float() * 0.1), codes(1, 131072)),
        (1, 131072),
        "sums of 131072 products may leave int32",
    ),
    "by channel": (
        Kept(lambda x, w: F.conv2d(x.float() * 0.1, w.float() * 0.1, groups=2), codes(2, 1, 33, 32)),
        (1, 2, 33, 33),
        "a depthwise convolution of 1056 taps is one of float32",
    ),
    "turned": (
        Kept(lambda x, w: F.conv_transpose2d(x.float() * 0.1, w.float() * 0.1), codes(8, 4, 3, 3)),
        (1, 8, 6, 6),
        "a transposed convolution is one of float32",
    ),
    "filters with zero points": (
        Kept(lambda x, w: F.conv2d((x.float() - 3) * 0.1, (w.float() - 5) * 0.1, groups=64), codes(64, 1, 3, 3)),
        (1, 64, 14, 14),
        "its filters have zero points, one for each channel: sums of windows are as many products",
    ),
    "padding beyond the codes": (
        Kept(lambda x, w: F.conv2d((x.float() - 200) * 0.1, w.float() * 0.1, padding=1), codes(8, 4, 3, 3)),
        (1, 4, 6, 6),
        "its padding has no code: its zero point may be 200",
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_others_stay_products_of_float32_and_say_why(case: str) -> None:
    module, shape, reason = KEPT[case]
    x = codes(*shape, seed=9)
    runner = runner_of(module.eval(), (x,))
    assert [(d.accepted, d.reason) for d in products(runner.compiled)] == [(False, reason)]
    got, want = torch.from_numpy(runner(to_numpy(x))[0]), module(x)
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5 * float(want.abs().max()))


ROUNDED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "behind a scale": lambda x, w: F.linear((x.float() * 0.1).int().float(), w.float() * 0.1),
    "behind a zero point and a scale": lambda x, w: F.linear(
        ((x.float() - 3) * 0.1).to(torch.int64).float() * 0.5, w.float() * 0.1
    ),
    "of uint8": lambda x, w: F.linear((x.to(U8).float() * 0.3).to(torch.int32).float() - 2, w.float() * 0.1),
}


@pytest.mark.parametrize("form", ROUNDED)
def test_numbers_that_are_rounded_on_the_way_stand_for_no_codes(form: str) -> None:
    x, w = codes(5, 64), codes(8, 64, seed=1)
    module = Kept(ROUNDED[form], w).eval()
    got, want = torch.from_numpy(runner_of(module, (x,))(to_numpy(x))[0]), module(x)
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5 * float(want.abs().max()))


class ZeroGiven(nn.Module):
    """A zero point of each row, which the caller gives as a float."""

    def forward(self, x: torch.Tensor, w: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        zeros = p.clamp(0, 255).round().to(torch.int32)
        return F.linear((x.float() - zeros.float()) * 0.5, w.float() * 0.1)


def test_a_zero_point_that_is_nan_spoils_its_row_alone() -> None:
    """It is none of the numbers that int32 has room for, and counts as the least or the largest."""
    x, w = codes(5, 64, dtype=U8), codes(8, 64, seed=1)
    p = torch.tensor([[3.0], [float("nan")], [300.0], [255.0], [-4.0]])
    runner = runner_of(ZeroGiven().eval(), (x, w, p))
    assert [d.accepted for d in products(runner.compiled)] == [True]
    got, want = torch.from_numpy(runner(*map(to_numpy, (x, w, p)))[0]), ZeroGiven()(x, w, p)
    good = [0, 2, 3, 4]
    torch.testing.assert_close(got[good], want[good], rtol=2e-5, atol=2e-5 * float(want[good].abs().max()))
    assert (got[1].abs() <= 64 * 255 * 128 * 0.05).all()


class SevenBits(nn.Module):
    """Codes of uint8 and int8 that a model holds to 0 to 127, in one product each; and some that go beyond, or may."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Buffer(torch.where(codes(33, 70) < 0, -128, 127).to(I8))
        self.taps = nn.Buffer(torch.where(codes(34, 8, 3, 3) < 0, -128, 127).to(I8))

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """x [5, 70], image [2, 8, 9, 8], of float32: whole numbers."""

        def linear(low: float, high: float, dtype: torch.dtype = U8) -> torch.Tensor:
            return F.linear(x.clamp(low, high).to(dtype).float() - 3, self.w.float())

        def conv(low: float, high: float, zero: int) -> torch.Tensor:
            given = image.round().clamp(low, high).to(U8).float() - zero
            return F.conv2d(given, self.taps.float(), padding=1)

        joined = torch.cat((image.clamp(0, 127).to(U8), image.clamp(1, 126).to(U8)), 1)[:, 4:12]
        return {
            "held": linear(0, 127),
            "of int8": linear(0, 127, I8),
            "within": linear(5, 90),
            "beyond": linear(0, 128),
            "below": linear(-1, 127, I8),
            "padded with a code": conv(0, 127, 127),
            "padded with 0": conv(0, 127, 0),
            "beyond, padded": conv(0, 255, 3),
            "joined and cut": F.conv2d(joined.float() - 2, self.taps.float()),
        }


@pytest.mark.usefixtures("whatever_it_costs")
def test_codes_of_seven_bits_are_told_from_what_makes_them() -> None:
    """Instructions that saturate are exact for them, and for no others; extremes show it."""
    x = torch.where(codes(5, 70) < 0, -300, 300).float()
    inputs = x, torch.where(codes(2, 8, 9, 8, seed=2) < 0, -300, 300).float()
    runner = runner_of(SevenBits().eval(), inputs)
    want = SevenBits()(*inputs)
    assert [d.accepted for d in products(runner.compiled)] == [True] * len(want)
    for (name, y), found in zip(want.items(), runner(*map(to_numpy, inputs)), strict=True):
        assert torch.equal(torch.from_numpy(found), y), name
    sources = runner.compiled.sources
    launched = [step.kernel for step in runner.compiled.plan.body if isinstance(step, Launch)]
    assert sum("ht::code7" in sources[kernel] for kernel in launched) == 6


def test_a_nan_among_codes_of_seven_bits_is_one_of_them() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Buffer(codes(33, 70))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x.clamp(5, 127).to(U8).float(), self.w.float())

    x = torch.full((5, 70), 127.0)
    x[2, 3] = float("nan")
    runner = runner_of(Held().eval(), (x,))
    assert any("ht::code7" in text for text in runner.compiled.sources.values())
    assert torch.equal(torch.from_numpy(runner(to_numpy(x))[0]), Held()(x))


class Pooled(nn.Module):
    """Maxima of numbers that codes stand for: behind the windows, and where that would be wrong."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        """x [2, 20, 9, 8] of int8, y [2, 3, 9, 8] of uint8."""
        a, b = (x.float() + 5) * 0.3, (y.to(torch.int32).float() - 120.0) * 0.1
        wide = b.clamp(-1, 2)
        return {
            "of int8": F.max_pool2d(a, 3, 2, 1),
            "of uint8": F.max_pool2d(b, 2, ceil_mode=True),
            "in one dimension": F.max_pool1d(a[:, :, 0], 3),
            "by a factor below 0": F.max_pool2d((x.float() + 5) * -0.3, 3, 2, 1),
            "of something else": F.max_pool2d(wide, 3, 2, 1),
            "windows with holes": F.max_pool2d(a, 3, 1, 1, dilation=2),
            "means": F.avg_pool2d(a, 3, 2, 1),
            "of products that are infinite, or no numbers": F.max_pool2d(x.float() * float("inf"), 3, 2, 1),
            "of sums that are infinite, or no numbers": F.max_pool2d(x.float() * 3e38 + float("inf"), 2),
        }


def test_maxima_are_those_of_codes() -> None:
    runner = runner_of(Pooled().eval(), INPUTS[4:] + INPUTS[3:4])
    want = Pooled()(*INPUTS[4:], *INPUTS[3:4])
    for (name, y), found in zip(want.items(), runner(*map(to_numpy, INPUTS[4:] + INPUTS[3:4])), strict=True):
        if name == "means":
            torch.testing.assert_close(torch.from_numpy(found), y)
        else:
            torch.testing.assert_close(torch.from_numpy(found), y, rtol=0, atol=0, equal_nan=True, msg=name)
    assert len([d for d in runner.compiled.decisions if d.kind == "pools"]) == 3


class Points(nn.Module):
    """Zero points of a run that were rounded on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Buffer(codes(33, 70))

    def forward(self, x: torch.Tensor, zero: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        long = zero.clamp(0, 259).to(torch.bfloat16).float()
        short = zero.clamp(0, 127).to(torch.float8_e4m3fn).float()
        return F.linear(x.float() - long, self.w.float()), F.linear(x.float() - short, self.w.float())


def test_zero_points_that_were_rounded() -> None:
    x, zero = codes(5, 70), torch.tensor(259, dtype=torch.int32)
    runner = runner_of(Points().eval(), (x, zero))
    for found, y in zip(runner(*map(to_numpy, (x, zero))), Points()(x, zero), strict=True):
        assert torch.equal(torch.from_numpy(found), y)


class Small(nn.Module):
    """A convolution, one by channel, a residual, a concatenation, pooling and two products."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.deep = nn.Conv2d(3, 16, 3, padding=1, stride=2), nn.Conv2d(16, 16, 3, padding=1)
        self.each, self.point = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(32, 24, 1)
        self.first, self.last = nn.Linear(24, 40), nn.Linear(40, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x).relu()
        x = x + self.deep(x).relu()
        x = torch.cat((x, self.each(x).relu()), 1)
        x = F.max_pool2d(self.point(x).relu(), 2).mean((2, 3))
        return self.last(self.first(x).relu())


def test_convolutions_are_of_int8_where_that_takes_less() -> None:
    """Of 3 x 3 Winograd's filtering has fewer products, and of three channels few are multiplied at once."""

    def decided(channels: int, kernel: int) -> Decision:
        def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return F.conv2d(x.float() * 0.1, w.float() * 0.1)

        module, x = Kept(convolve, codes(64, channels, kernel, kernel)), codes(1, channels, 28, 28)
        (entry,) = to_graphs(module.eval(), (x,)).entries.values()
        (found,) = products(compile_entry(entry.graph, {}, CppBackend(machines=(X86_64_V3,))))
        return found

    accepted = {size: decided(*size).accepted for size in ((64, 3), (3, 3), (64, 1), (64, 5), (3, 1))}
    assert accepted == {(64, 3): False, (3, 3): False, (64, 1): True, (64, 5): True, (3, 1): False}
    assert decided(64, 1).reason == "1.44e+05 cycles by int8, 2.01e+05 by float32"


def test_depthwise_convolutions_are_of_int8_where_images_are_large() -> None:
    """Codes have to be made floats, and are a quarter of what is read."""

    def decided(channels: int, size: int, stride: int) -> Decision:
        def convolve(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            return F.conv2d(x.float() * 0.1, w.float() * 0.1, padding=1, stride=stride, groups=channels)

        module, x = Kept(convolve, codes(channels, 1, 3, 3)), codes(1, channels, size, size)
        (entry,) = to_graphs(module.eval(), (x,)).entries.values()
        (found,) = products(compile_entry(entry.graph, {}, CppBackend(machines=(X86_64_V3,))))
        return found

    assert not decided(64, 28, 2).accepted
    assert not decided(144, 56, 1).accepted
    assert decided(144, 56, 1).reason == "5.93e+05 cycles by int8, 4.8e+05 by float32"
    assert decided(96, 112, 2).accepted


@pytest.mark.usefixtures("whatever_it_costs")
@pytest.mark.parametrize("quantiser", QUANTISERS)
def test_models_of_pt2e(quantiser: str) -> None:
    x = torch.randn(3, 3, 18, 18, generator=torch.Generator().manual_seed(4))
    module = of_pt2e(Small().eval(), x, quantiser)
    runner = runner_of(module, (x,))
    found = products(runner.compiled)
    assert [d.accepted for d in found].count(True) == (6 if "x86" in quantiser or "static" in quantiser else 2)
    got, want = torch.from_numpy(runner(to_numpy(x))[0]), module(x)
    # a result on the border of two codes may round to the other one
    assert float((got - want).abs().max()) <= 2e-2 * float(want.abs().max())
    assert float((got - want).abs().median()) <= 1e-5 * float(want.abs().max())
