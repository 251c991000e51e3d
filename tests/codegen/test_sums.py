"""Sums of many numbers are as exact as sums of a few, and what is equal has no spread."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim

from hardtack.codegen.backends.cpp.compiler import find_compiler
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.machine.data import AARCH64, X86_64_V3, X86_64_V4
from hardtack.codegen.machine.machine import Cpu
from tests.codegen.compare import Compiled, compile_module, leaves


class Function(torch.nn.Module):
    """A function as a module."""

    def __init__(self, f: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return leaves(self.f(x))


WALKS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "all": ((1_500_000,), (0,)),
    "rows": ((2, 500_000), (1,)),
    "columns": ((100_000, 20), (0,)),
    "both ends": ((2_000, 3, 100), (0, 2)),
    "short rows": ((30_000, 2, 8), (0, 2)),
    "windows": ((4, 30_000, 3, 3), (1, 2, 3)),
}
"""name -> a shape and the dims that are summed."""


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WALKS)
def test_long_sums(name: str, dynamic: bool) -> None:
    """Of equal numbers, whose rounding errors all point the same way, and of random ones."""
    shape, dims = WALKS[name]
    spec = (dict.fromkeys(range(len(shape)), Dim.DYNAMIC),) if dynamic else None
    compiled = compile_module(Function(lambda x: x.sum(dims)).eval(), (torch.zeros(shape),), spec)
    for x in (torch.full(shape, 0.1), torch.rand(shape, generator=torch.Generator().manual_seed(0))):
        (got,) = compiled(x)
        exact = x.double().sum(dims)
        assert ((got.double() - exact).abs() / exact.abs()).max().item() < 6e-7


class Short(torch.nn.Module):
    """Sums of rows of 3 to 17 bytes, and of comparisons, of inputs of their own, so that no two share a kernel."""

    inputs = tuple(torch.arange(3 * n, dtype=torch.uint8).view(3, n) for n in range(3, 18)) * 2

    def forward(self, *numbers: torch.Tensor) -> list[torch.Tensor]:
        half = len(numbers) // 2
        bytes_summed = [x.sum(1, dtype=torch.int32) for x in numbers[:half]]
        return bytes_summed + [(x.float() < 20).sum(1, dtype=torch.int32) for x in numbers[half:]]


@functools.cache
def short_sums() -> Compiled:
    return compile_module(Short().eval(), Short.inputs)


def test_short_sums() -> None:
    found, want = short_sums()(*Short.inputs), Short()(*Short.inputs)
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))
    assert len(short_sums().entry.sources) == len(want), "some are computed by one kernel, or one by several"


@pytest.mark.parametrize("target", [X86_64_V3, X86_64_V4, AARCH64], ids=lambda t: t.name)
def test_compilers_come_to_an_end(target: Cpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """clang 21 took forever over 8 bytes, and over 5 to 8 comparisons, that AVX-512 adds up in int32."""
    monkeypatch.setattr("hardtack.codegen.backends.cpp.toolchain._COMPILE_SECONDS", 120)
    library = compile_library(
        [Unit(name, text) for name, text in short_sums().entry.sources.items()],
        target,
        find_compiler(),
        cache=KernelCache(tmp_path),
        jobs=2,
    )
    assert library.startswith(b"\x7fELF")


def test_the_sum_of_one_line_to_the_last_digit() -> None:
    x = torch.rand(400_000, generator=torch.Generator().manual_seed(1)) - 0.25
    (got,) = compile_module(Function(torch.sum).eval(), (x,))(x)
    exact = math.fsum(x.tolist())
    assert abs(got.item() - exact) < 2e-7 * exact


def test_a_variance_far_from_zero() -> None:
    """Half of the error of the mean, squared, would be 1e-4 of it."""
    x = torch.randn(1_000_000, generator=torch.Generator().manual_seed(2)) + 1e4
    got = compile_module(Function(lambda x: (x.var(), x.std(), x.mean())).eval(), (x,))(x)
    exact = x.double()
    want = (exact.var(), exact.std(), exact.mean())
    for g, w, bound in zip(got, want, (1e-5, 1e-5, 1e-7), strict=True):
        assert abs(g.item() - w.item()) < bound * w.item()


SPREADS: dict[str, Callable[[torch.Tensor], object]] = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-2:]),
    "group_norm": lambda x: F.group_norm(x, 1),
    "instance_norm": lambda x: F.instance_norm(x),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "var": lambda x: (x.var((1, 2)), x.std((1, 2)), x.var(-1), x.std(0, correction=0)),
}


def equal_values(shape: Sequence[int]) -> torch.Tensor:
    """Numbers of no round form, as an expanded tensor has them."""
    return torch.full(tuple(shape), math.pi / 3)


@pytest.mark.parametrize("name", SPREADS)
def test_equal_values_have_no_spread(name: str) -> None:
    dims = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC},)
    compiled = compile_module(Function(SPREADS[name]).eval(), (equal_values((4, 6, 10)),), dims)
    for shape in ((2, 6, 7), (3, 6, 49), (5, 6, 331), (2, 6, 5000)):
        for scale in (1.0, 1e-20, 3e15):
            for result in compiled(equal_values(shape) * scale):
                assert not result.any(), (shape, scale)


def test_means_are_of_the_values() -> None:
    """The mean that comes along with a variance."""
    compiled = compile_module(
        Function(lambda x: torch.var_mean(x, 1)).eval(), (equal_values((3, 10)),), ({1: Dim.DYNAMIC},)
    )
    for n in (3, 7, 49, 1000, 12345):
        variance, mean = compiled(equal_values((3, n)))
        assert not variance.any()
        assert torch.equal(mean, equal_values((3,)))


def test_a_mean_near_zero_keeps_its_digits() -> None:
    """As torch's, which comes with a variance that is counted in f64."""
    x = torch.randn(3, 136, generator=torch.Generator().manual_seed(5))
    x -= x.double().mean(1, keepdim=True).float()
    compiled = compile_module(Function(lambda x: torch.var_mean(x, 1)).eval(), (x,))
    torch.testing.assert_close(compiled(x)[1], x.double().mean(1).float(), rtol=1e-6, atol=0)


def test_nothing_is_hidden() -> None:
    """What is not a number, and a spread in the last place."""
    compiled = compile_module(Function(lambda x: x.var(1)).eval(), (torch.ones(3, 64),))
    x = torch.ones(3, 64)
    x[0, 5], x[1, 7], x[2, 9] = math.nan, math.inf, 1 + 2.0**-23
    (got,) = compiled(x)
    assert got[:2].isnan().all()
    assert got[2].item() == pytest.approx(x[2].double().var().item(), rel=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_mean_beside_a_variance_of_one_number_is_that_number(dynamic: bool) -> None:
    """Also of an infinite one, whose distance from itself is no number."""
    module = Function(lambda x: torch.var_mean(x, 1, correction=0)).eval()
    x = torch.tensor([[math.inf], [-math.inf], [2.5], [math.nan]])
    example = x.expand(4, 3).contiguous() if dynamic else x
    compiled = compile_module(module, (example,), ({1: Dim.DYNAMIC},) if dynamic else None)
    assert torch.equal(compiled(x)[1].nan_to_num(7.0, 8.0, 9.0), x[:, 0].nan_to_num(7.0, 8.0, 9.0))
