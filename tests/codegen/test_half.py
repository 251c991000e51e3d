"""f16 and bf16: every value of theirs is rounded, wherever it is kept."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from hardtack.codegen.ir.graph import Lit
from hardtack.codegen.ir.types import DType
from tests.codegen.compare import compile_module, leaves
from tests.codegen.half_programs import HALVES, PROGRAMS, Programs, exactly, same_bits, whole


@pytest.mark.parametrize("dtype", HALVES)
def test_values_inside_a_kernel_are_rounded(dtype: torch.dtype) -> None:
    module, args = Programs().eval(), whole(dtype)
    same_bits(compile_module(module, args)(*args), exactly(module, args))


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_alone(name: str, dtype: torch.dtype) -> None:
    """A kernel of its own fuses otherwise than one among many."""

    class Alone(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
            return leaves(PROGRAMS[name](x, w))

    module, args = Alone().eval(), whole(dtype)
    same_bits(compile_module(module, args)(*args), exactly(module, args))


@pytest.mark.parametrize("dtype", HALVES)
def test_values_that_exist_are_stored_as_they_are(dtype: torch.dtype) -> None:
    """Every pattern: subnormals, zeros with their sign and infinities, too. 65536 + 17 leaves a part of a vector."""

    class Chosen(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
            return [x.clamp(-0.5, 6), torch.where(x > y, x, y), x.relu(), -x, x.abs(), torch.maximum(x, y) + y]

    patterns = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(dtype)
    x = torch.cat([patterns, patterns[:17]])
    args = (x, x.roll(12345))
    for got, want in zip(leaves(compile_module(Chosen().eval(), args)(*args)), Chosen()(*args), strict=True):
        number = ~want.isnan()
        assert torch.equal(got.isnan(), ~number)
        assert torch.equal(got[number].view(torch.int16), want[number].view(torch.int16))


@pytest.mark.parametrize("dtype", HALVES)
def test_a_choice_among_sums_is_rounded_once(dtype: torch.dtype) -> None:
    """A product's sums, of which a store rounds the largest or least: whole numbers and quarters, so that they are
    exact, and many of them ties or next to the limits; infinities and numbers that are none in two rows."""

    class Chosen(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
            def sums() -> torch.Tensor:
                return F.linear(x, w) + 0.25

            kept = (sums() + y).relu()
            return [
                *(sums().relu(), F.relu6(sums()), sums().clamp(-100.4, 257), torch.minimum(sums(), y)),
                *(kept, kept * 2, (sums().clamp_min(3.3) - y).clamp_max(300.7)),
            ]

    torch.manual_seed(0)
    x, w = torch.randint(-9, 10, (37, 24)).to(dtype), torch.randint(-9, 10, (40, 24)).to(dtype)
    x[3], x[5] = math.inf, math.nan
    args = (x, w, torch.randint(-500, 500, (37, 40)).to(dtype))
    for got, want in zip(leaves(compile_module(Chosen().eval(), args)(*args)), Chosen()(*args), strict=True):
        number = ~want.isnan()
        assert torch.equal(got.isnan(), ~number)
        assert torch.equal(got[number].view(torch.int16), want[number].view(torch.int16))


@pytest.mark.parametrize(
    ("given", "f16", "bf16"),
    [
        (0.1, 0.0999755859375, 0.10009765625),
        (65519.0, 65504.0, 65536.0),
        (65520.0, math.inf, 65536.0),
        (-1e39, -math.inf, -math.inf),
        (3.1e-8, 2.0**-24, 3.096647560596466e-08),
        (1.00390625, 1.00390625, 1.0),
        (1.01171875, 1.01171875, 1.015625),
    ],
)
def test_literals_are_values_of_their_type(given: float, f16: float, bf16: float) -> None:
    assert Lit(given, DType.F16).value == f16 == torch.tensor(given, dtype=torch.float16).item()
    assert Lit(given, DType.BF16).value == bf16 == torch.tensor(given, dtype=torch.bfloat16).item()


def test_a_literal_that_is_no_number() -> None:
    assert math.isnan(Lit(math.nan, DType.BF16).value)
    assert math.isnan(Lit(math.nan, DType.F16).value)
