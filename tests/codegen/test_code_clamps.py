"""Steps in front of conversions to integers: left out where they change none, and not where they change one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import nn
from torch.export import Dim

from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.ir.group import Decision
from hardtack.codegen.passes.cpu.code_clamps import KIND
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.exporter import to_graphs
from tests.codegen.compare import to_numpy
from tests.codegen.runner import Runner

U8, I8 = torch.uint8, torch.int8
Step = Callable[[torch.Tensor], torch.Tensor]
ENDS = (0.0, -0.0, 6.0, 5.99, 2.54, 1e-40, -1e-40, 3e38, -3e38, float("inf"), -float("inf"))
NUMBERS = torch.cat([torch.linspace(-40, 40, 4001), torch.tensor(ENDS)])


def relu6(x: torch.Tensor, scale: float = 0.05, zero: int = 0, most: int = 127) -> torch.Tensor:
    """As PT2E writes a ReLU6 and the quantisation behind it."""
    return ((x.clamp(0, 6) * (1 / scale)).round() + zero).clamp(0, most).to(U8)


FEWER: dict[str, tuple[Step, str]] = {
    "limits that a ReLU6 gives": (lambda x: relu6(x, 6 / 127.06), "3 of 7"),
    "a limit behind it is nearer": (lambda x: relu6(x, 0.04), "3 of 7"),
    "it is further": (lambda x: relu6(x, 0.05), "3 of 7"),
    "a zero point": (lambda x: relu6(x, 0.05, 5), "2 of 7"),
    "relu": (lambda x: ((x.relu() * 3.0).round() + 0.0).clamp(0, 255).to(U8), "2 of 6"),
    "a clamp at the zero point": (lambda x: ((x.clamp(-3, 3) * 10).round() + 30).clamp(0, 60).to(I8), "2 of 7"),
    "a sum of nothing": (lambda x: (x.clamp(-9, 9).round() - 0.0).to(torch.int32), "1 of 4"),
    "to more bits": (lambda x: (x.clamp(-9, 9) * 2).clamp(-30, 30).to(torch.int64), "2 of 5"),
}


class Each(nn.Module):
    """What every function makes of x."""

    def __init__(self, functions: Sequence[Step]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [f(x) for f in self.functions]


def runner_of(module: nn.Module, *args: torch.Tensor) -> Runner:
    exported = to_graphs(module.eval(), args)
    (entry,) = exported.entries.values()
    return Runner(entry.graph, compile_entry(entry.graph, {}, CppBackend()), exported.store)


def said(made: CompiledEntry) -> list[Decision]:
    return [d for d in made.decisions if d.kind == KIND]


def check(functions: Sequence[Step], x: torch.Tensor) -> Runner:
    """Every integer is eager's."""
    module = Each(functions)
    runner = runner_of(module, x)
    for k, (found, y) in enumerate(zip(runner(to_numpy(x)), module(x), strict=True)):
        assert torch.equal(torch.from_numpy(found), y), k
    return runner


@pytest.mark.parametrize("form", FEWER)
def test_steps_that_change_no_integer_are_left_out(form: str) -> None:
    function, count = FEWER[form]
    runner = check([function], NUMBERS)
    assert [d.reason for d in said(runner.compiled)] == [f"{count} steps in front of it change no integer"]


KEPT: dict[str, Step] = {
    "both limits cut": lambda x: ((x * 30).round() + 64).clamp(0, 127).to(U8),
    "a product that may pass a limit by a digit": lambda x: (x.clamp(1, 2.54) * 50).clamp(max=127).to(U8),
    "a factor below 0": lambda x: ((x.clamp(0, 6) * -3.0).round() + 18).to(U8),
    "a number less it": lambda x: (9 - x.clamp(0, 6)).to(U8),
    "a sum beyond whole numbers": lambda x: (x.clamp(max=0.25) + 33554432.0).clamp(max=33554432.0).to(torch.int64),
    "not to integers": lambda x: (x.clamp(0, 6) * 2).clamp(0, 12),
}


@pytest.mark.parametrize("form", KEPT)
def test_others_stay(form: str) -> None:
    runner = check([KEPT[form]], NUMBERS)
    assert said(runner.compiled) == []


class Read(nn.Module):
    """A limited number is read by more than its conversion."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        limited = x.clamp(0, 6)
        return limited, ((limited * 20).round() + 0.0).clamp(0, 127).to(U8)


def test_numbers_that_something_else_reads_stay() -> None:
    runner = runner_of(Read(), NUMBERS)
    for found, y in zip(runner(to_numpy(NUMBERS)), Read()(NUMBERS), strict=True):
        assert torch.equal(torch.from_numpy(found), y)
    assert [d.reason for d in said(runner.compiled)] == ["3 of 5 steps in front of it change no integer"]


def test_a_size_that_becomes_an_integer_has_no_steps() -> None:
    """The operand of its conversion is a size, and no value."""
    exported = to_graphs(
        lambda x: x.sum(0) // x.shape[0], (torch.arange(12).reshape(3, 4).int(),), None, ({0: Dim.AUTO},)
    )
    (entry,) = exported.entries.values()
    compile_entry(entry.graph, {}, CppBackend())


def test_nan_is_the_integer_that_it_was() -> None:
    """0, whatever clamps are left."""
    x = torch.full((16,), float("nan"))
    for found in runner_of(Each([f for f, _ in FEWER.values()][:6]), x)(to_numpy(x)):
        assert not found.any()


def _drawn(r: random.Random) -> Step:
    """A few steps with random limits, factors and zero points, close to one another."""
    steps: list[Step] = []
    for _ in range(r.randint(2, 8)):
        a = r.choice((0.0, 0.0, 1.0, 3.0, 5.5, 6.0, 20.0, -4.0))
        kind = r.choice(("least", "most", "most", "least", "times", "round", "plus"))
        if kind == "times":
            factor = r.choice((0.5, 2.0, 3.3, 1 / 3, 21.17, -1.5))
            steps.append(lambda x, factor=factor: x * factor)
        elif kind == "plus":
            steps.append(lambda x, a=a: x + a)
        elif kind == "round":
            steps.append(torch.round)
        else:
            steps.append(lambda x, a=a, kind=kind: x.clamp(**{"min" if kind == "least" else "max": a}))
    steps.append(lambda x: x.clamp(-2e9, 2e9).to(torch.int32))

    def made(x: torch.Tensor) -> torch.Tensor:
        for step in steps:
            x = step(x)
        return x

    return made


def test_random_steps_give_the_same_integers() -> None:
    r = random.Random(5)
    runner = check([_drawn(r) for _ in range(150)], NUMBERS)
    assert len(said(runner.compiled)) > 50
