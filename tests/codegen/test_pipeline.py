"""The pipeline verifies what each pass leaves: also what it has only moved, or kept beside buffers of other shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import nn

from hardtack.codegen.backends.triton.triton_backend import PASSES, TritonBackend
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Compute, LoopError, LoopNest
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.machine.data import H200
from hardtack.codegen.passes.gpu.kernel_nests import nests_of, with_nests
from hardtack.codegen.passes.passes import Buffers, GroupPass, KernelPass, NestPass, Passes
from hardtack.codegen.pipeline import compile_entry
from hardtack.exporter import to_graphs


class Chain(nn.Module):
    """Three products, each of the one before, with a GELU between two: kernels that need each other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (nn.Linear(64, 64, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(nn.functional.gelu(self.second(self.first(x))))


@dataclass(frozen=True)
class WithPasses(TritonBackend):
    """A GPU with a pass more behind its own."""

    more: Passes = field(default_factory=Passes)

    def passes(self) -> Passes:
        m = self.more
        return Passes(PASSES.graph, PASSES.nests + m.nests, PASSES.groups + m.groups, PASSES.kernels + m.kernels)


def compiled(**more: Any) -> None:
    """Chain, compiled with one more pass."""
    (entry,) = to_graphs(Chain().eval().to(torch.bfloat16), (torch.ones(128, 64).bfloat16(),)).entries.values()
    compile_entry(entry.graph, {}, WithPasses(H200, more=Passes(**more)))


def nest_pass(change: Callable[[tuple[Nest, ...], Buffers], tuple[tuple[Nest, ...], Buffers]]) -> tuple[NestPass, ...]:
    return (NestPass("more", lambda nests, buffers, scope, context: (*change(nests, buffers), ())),)


def group_pass(change: Callable[[tuple[Group, ...]], tuple[Group, ...]]) -> tuple[GroupPass, ...]:
    return (GroupPass("more", lambda groups, buffers, scope, context: (change(groups), ())),)


def kernel_pass(change: Callable[[Any], Any]) -> tuple[KernelPass, ...]:
    """A pass whose own verifier sees nothing."""
    run = lambda kernel, buffers, following, context: change(kernel)  # noqa: E731
    return (KernelPass("more", run, lambda before, after, buffers: None),)


def test_passes_that_leave_everything() -> None:
    compiled(nests=nest_pass(lambda nests, buffers: (nests, dict(buffers))))
    compiled(groups=group_pass(lambda groups: tuple(groups)))
    compiled(kernels=kernel_pass(lambda kernel: replace(kernel)))


def _stored(nests: tuple[Nest, ...]) -> str:
    (nest,) = (n for n in nests if isinstance(n, LoopNest))
    return nest.stores()[0].buffer


def _with_fewer_rows(nests: tuple[Nest, ...], buffers: Buffers) -> tuple[tuple[Nest, ...], Buffers]:
    """The result of the GELU has a row less than its nest stores."""
    at = _stored(nests)
    rows, *rest = buffers[at].shape
    return nests, {**buffers, at: replace(buffers[at], shape=(rows - 1, *rest))}


def _without_a_buffer(nests: tuple[Nest, ...], buffers: Buffers) -> tuple[tuple[Nest, ...], Buffers]:
    at = _stored(nests)
    return nests, {b: x for b, x in buffers.items() if b != at}


def test_nests_whose_buffers_are_others_are_verified_again() -> None:
    with pytest.raises(LoopError, match=r"nest gelu.* may leave \[0, 127\) in: store"):
        compiled(nests=nest_pass(_with_fewer_rows))
    with pytest.raises(LoopError, match="unknown buffer gelu"):
        compiled(nests=nest_pass(_without_a_buffer))


def test_nests_and_groups_in_another_order_are_verified_again() -> None:
    with pytest.raises(LoopError, match=r"reads .*, of which 0 elements of .* are written"):
        compiled(nests=nest_pass(lambda nests, buffers: (nests[::-1], buffers)))
    with pytest.raises(LoopError, match=r"runs before .*, and both touch"):
        compiled(groups=group_pass(lambda groups: groups[::-1]))


def _other_op(op: str) -> Callable[[Any], Any]:
    def change(kernel: Any) -> Any:
        def edited(s: Any) -> Any:
            return replace(s, op=op) if isinstance(s, Compute) and s.op == "coarse_gelu" else s

        return with_nests(kernel, [replace(n, body=tuple(map(edited, n.body))) for n in nests_of(kernel)])

    return change


def _without_the_first(kernel: Any) -> Any:
    return with_nests(kernel, [replace(n, body=n.body[1:]) for n in nests_of(kernel)])


def _with_two_indices(kernel: Any) -> Any:
    def edited(s: Any) -> Any:
        return replace(s, index=(*s.index, const(0))) if hasattr(s, "index") else s

    return with_nests(kernel, [replace(n, body=tuple(map(edited, n.body))) for n in nests_of(kernel)])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_other_op("fast_gelu"), "unknown op fast_gelu in"),
        (_other_op("not"), r"not is not defined on \(f32\) in"),
        (_other_op("isnan"), "dtype f32 where isnan gives bool in"),
        (_without_the_first, "is used before it is defined in"),
        (_with_two_indices, "accessed by 2 indices"),
        (lambda k: replace(k, writes=k.writes | {"nothing"}), "nothing is written outside, and not in memory"),
        (lambda k: replace(k, buffers=k.buffers[1:]), "the parameters are not the buffers in memory"),
    ],
)
def test_kernels_of_a_pass_are_verified(change: Any, why: str) -> None:
    """By the backend, whatever the pass's own verifier says."""
    with pytest.raises(LoopError, match=why):
        compiled(kernels=kernel_pass(change))


class Row(nn.Module):
    """A product whose programs compute the row, a gate, for themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 96, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = x.chunk(2, -1)
        return self.linear(nn.functional.silu(gate) * up)


def _other_prologue(kernel: Any) -> Any:
    (nest,) = kernel.prologue
    body = tuple(replace(s, op="tanh") if isinstance(s, Compute) and s.op == "sigmoid" else s for s in nest.body)
    return replace(kernel, prologue=(replace(nest, body=body),))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_other_prologue, r"tanh\(.*\) stands for: .*sigmoid\("),
        (lambda kernel: replace(kernel, prologue=()), "it computes nothing in place of mul"),
    ],
)
def test_the_row_of_a_product_is_its_group_s(change: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = TritonBackend.schedule
    monkeypatch.setattr(TritonBackend, "schedule", lambda *args: change(schedule(*args)))
    (entry,) = to_graphs(Row().eval().to(torch.bfloat16), (torch.ones(1, 128).bfloat16(),)).entries.values()
    with pytest.raises(LoopError, match=why):
        compile_entry(entry.graph, {}, TritonBackend(H200))
