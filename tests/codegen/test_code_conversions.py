"""Conversions to codes by one op: each code is eager's, and other conversions stay what they are."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.graph import Lit, Op, TensorType, make_attrs
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.ir.types import DType
from hardtack.codegen.passes.cpu.code_conversions import KIND
from hardtack.codegen.pipeline import CompiledEntry
from hardtack.exporter.reference import run_op
from tests.codegen.compare import to_numpy
from tests.codegen.runner import Runner
from tests.codegen.test_code_clamps import Step, runner_of

U8, I8 = torch.uint8, torch.int8
_ENDS = (1e-40, 3e38, 2.0**31, 2.0**31 - 128, 65535.5, 32767.5, 16777217.0, float("inf"))
_HALVES = torch.arange(-700, 700) / 2
NUMBERS = torch.cat([_HALVES, _HALVES * (1 + 2**-23), _HALVES * (1 - 2**-23), *(torch.tensor([x, -x]) for x in _ENDS)])
"""Halves, which are rounded to even, the floats next to them, and what is no int32, no word, or no exact sum."""
NAN = torch.full((16,), float("nan"))

CODES: dict[str, Step] = {
    "seven bits": lambda x: (x.round() + 64).clamp(0, 127).to(U8),
    "eight bits": lambda x: ((x * 0.7).round() + 128.0).clamp(0, 255).to(U8),
    "without a zero point": lambda x: (x.relu() * 3).round().clamp(max=127).to(U8),
    "a zero point below 0": lambda x: (x.round() - 100).clamp(0, 255).to(U8),
    "limits in front of the sum": lambda x: (x.round().clamp(-30, 97) + 30).to(U8),
    "limits that numbers keep": lambda x: (x.clamp(0, 6) * 20).round().to(U8),
    "two sums": lambda x: ((x.round() + 9).clamp(-1, 300) - 5).clamp(0, 200).to(U8),
    "all the same": lambda x: x.round().clamp(max=-3).clamp(min=0).to(U8),
    "as float": lambda x: (((x * 0.3).round() + 64).clamp(0, 127).to(U8).float() - 64) * 0.1,
    "as float, without a zero point": lambda x: (x.relu().round() - 0.0).clamp(max=255).to(U8).float() * 0.1,
    "a far zero point": lambda x: (x.round() + 16384).clamp(0, 255).to(U8),
    "the furthest below": lambda x: (x.round() - 16384).clamp(0, 255).to(U8),
}
OTHERS: dict[str, Step] = {
    "to int8": lambda x: (x.round() + 3).clamp(0, 127).to(I8),
    "not rounded": lambda x: (x + 64).clamp(0, 127).to(U8),
    "a limit above 0": lambda x: (x.round() + 3).clamp(1, 127).to(U8),
    "without limits": lambda x: x.clamp(-3e4, 3e4).round().to(U8),
    "behind a product": lambda x: (x.round() * 2).clamp(0, 200).to(U8),
    "a zero point that is not whole": lambda x: (x.round() + 0.25).clamp(0, 200).to(U8),
    "a zero point that is rounded": lambda x: ((x.round() + 33554432.0) - 33554400.0).clamp(0, 127).to(U8),
}


class EachRow(nn.Module):
    """What every function makes of a row of its own."""

    def __init__(self, functions: Sequence[Step]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [f(row) for f, row in zip(self.functions, x.unbind(), strict=True)]


def check(functions: Sequence[Step], x: torch.Tensor) -> Runner:
    """Every code is eager's."""
    module, rows = EachRow(functions), x.repeat(len(functions), 1)
    runner = runner_of(module, rows)
    for k, (found, y) in enumerate(zip(runner(to_numpy(rows)), module(rows), strict=True)):
        assert torch.equal(torch.from_numpy(found), y), k
    return runner


def said(made: CompiledEntry) -> list[Decision]:
    return [d for d in made.decisions if d.kind == KIND]


@pytest.mark.parametrize("x", [NUMBERS, NAN], ids=["numbers", "nan"])
@pytest.mark.parametrize("forms", [CODES, OTHERS], ids=["codes", "others"])
def test_every_code_is_eagers(forms: dict[str, Step], x: torch.Tensor) -> None:
    runner = check(list(forms.values()), x)
    assert len(said(runner.compiled)) == (len(forms) if forms is CODES else 0)


@pytest.mark.parametrize("dtype", [DType.U8, DType.F32])
def test_the_reference_has_the_same_codes(dtype: DType) -> None:
    op = Op("code", ("x", Lit(-5.0, DType.F32), Lit(90.0, DType.F32)), make_attrs(dtype=dtype), ("y",))
    x = torch.cat([NUMBERS, NAN])
    (found,) = run_op(op, (x, *op.inputs[1:]), (TensorType(dtype, (const(x.numel()),)),), {})
    assert torch.equal(found, (x.round() - 5).clamp(0, 90).to(U8).to(found.dtype))


def test_codes_that_only_become_float_are_no_bytes() -> None:
    def coded(x: torch.Tensor) -> torch.Tensor:
        return (x * 3).round().clamp(0, 127).to(U8)

    def twice(x: torch.Tensor) -> torch.Tensor:
        code = coded(x)
        return code.float() + code.flip(0)

    found = said(check([lambda x: coded(x).float() * 0.1, twice], NUMBERS).compiled)
    assert [d.partner for d in found] == ["f32", "u8"]
    assert {d.reason for d in found} == {"rounded and held as it is converted"}


def _drawn(r: random.Random) -> Step:
    """Sums and limits in any order behind a rounding, perhaps another one, and codes."""
    steps: list[tuple[str, float]] = [("times", r.choice((0.3, 1.0, 2.5))), ("round", 0)]
    for _ in range(r.randint(0, 4)):
        kind = r.choice(("plus", "least", "most", "round") if r.random() < 0.1 else ("plus", "least", "most"))
        steps.append((kind, r.choice((0.0, 0.0, 7.0, -20.0, 64.0, 127.0, 255.0, 300.0, 0.5))))
    steps += [("least", r.choice((0.0, 0.0, 0.0, -9.0, 2.0))), ("most", r.choice((127.0, 255.0, 90.0, 300.0)))]

    def made(x: torch.Tensor) -> torch.Tensor:
        for kind, a in steps:
            if kind in ("least", "most"):
                x = x.clamp(**{"min" if kind == "least" else "max": a})
            else:
                x = x * a if kind == "times" else x + a if kind == "plus" else x.round()
        return x.to(U8)

    return made


def test_random_steps() -> None:
    """In any order; numbers that bytes cannot hold are the low bits of an int32, as in eager."""
    r = random.Random(0)
    runner = check([_drawn(r) for _ in range(60)], NUMBERS[NUMBERS.abs() < 1e9])
    assert 20 < len(said(runner.compiled)) < 60
