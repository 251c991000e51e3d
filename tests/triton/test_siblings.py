"""Small kernels that share a launch: which do, in which order, and that each program does its own part."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.group_verify import verify_group
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.ir.plan import Launch
from hardtack.codegen.lower import lower_graph
from hardtack.codegen.lower.layout import choose_orders
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import context_of, fused_groups
from tests.codegen.compare import Compiled, assert_same, compile_module, eager
from tests.codegen.runner import KernelFailed
from tests.triton.simulate import Simulator


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, f: Callable[..., object]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Tensor) -> object:
        return self.f(*args)


def on_gpu(f: Callable[..., object] | nn.Module, args: Sequence[Tensor], dynamic: Any = None) -> Compiled:
    module = f if isinstance(f, nn.Module) else Of(f)
    return compile_module(module.eval(), args, dynamic, None, TritonBackend(H200), Simulator)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def decided(c: Compiled) -> list[tuple[bool, str]]:
    return [(d.accepted, d.reason) for d in c.entry.decisions if d.kind == "sibling"]


def test_independent_kernels_of_other_sizes_share_a_launch() -> None:
    def f(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return x.exp() * 2, y.softmax(-1), z.t().contiguous() + 1, (y * 3).sum()

    args = [numbers(1000), numbers(5, 70), numbers(33, 20)]
    c = on_gpu(f, args)
    assert_same(c(*args), eager(Of(f), args))
    assert len(c.entry.plan.body) == 1
    assert all(ok for ok, _ in decided(c))


def test_sizes_known_at_run_time() -> None:
    def f(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        return x.exp() * 2, y.cumsum(0) * 0 + y.sin(), z.softmax(-1)

    args = [numbers(10), numbers(8), numbers(3, 4)]
    free = ({0: Dim("a", max=5000)}, {0: Dim("b", max=5000)}, {0: Dim("c", max=500)})
    c = on_gpu(f, args, free)
    assert any(ok for ok, _ in decided(c))
    for sizes in ((10, 8, 3), (1, 4999, 77), (3000, 2, 1)):
        given = [numbers(sizes[0]), numbers(sizes[1]), numbers(sizes[2], 4)]
        assert_same(c(*given), eager(Of(f), given))


def test_what_needs_another_kernel_stays_behind_it() -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        first = x.softmax(-1)
        return first, first.sum(0), x.t().sin().cumsum(0)

    args = [numbers(40, 30)]
    c = on_gpu(f, args)
    assert_same(c(*args), eager(Of(f), args))
    refused = [reason for ok, reason in decided(c) if not ok]
    assert any(reason.startswith("it needs to run behind ") for reason in refused)


def test_large_kernels_stay_alone() -> None:
    args = [numbers(600, 300), numbers(500)]
    c = on_gpu(lambda x, y: (x.exp(), y.sin()), args)
    assert len(c.entry.plan.body) == 2
    assert decided(c) == []


def test_a_launch_has_at_most_eight_parts() -> None:
    args = [numbers(n, seed=n) for n in range(3, 22, 2)]
    c = on_gpu(lambda *xs: tuple(x.exp() * 2 for x in xs), args)
    assert_same(c(*args), [x.exp() * 2 for x in args])
    assert len(c.entry.plan.body) == 2


class Cache(nn.Module):
    """Keys and values written at a position, as decoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 4, 16, 8))
        self.register_buffer("values", torch.zeros(1, 4, 16, 8))

    def forward(self, k: Tensor, v: Tensor, q: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, position, k * 2)
        self.values.index_copy_(2, position, v)
        scores = q.exp() @ self.keys.transpose(-1, -2)
        return scores, scores.softmax(-1) @ self.values


def test_updates_of_two_caches_share_a_launch_and_check_their_index() -> None:
    args = [numbers(1, 4, 1, 8, seed=s) for s in range(3)] + [torch.tensor([5])]
    c = on_gpu(Cache(), args)
    first = c.entry.plan.body[0]
    assert isinstance(first, Launch)
    assert {"k", "v", "q", "position"} <= set(first.buffers)
    assert_same(c(*args), eager(Cache(), args), 4)
    with pytest.raises(KernelFailed):
        c(*args[:3], torch.tensor([16]))


def test_siblings_that_share_a_written_buffer_are_a_bug() -> None:
    args = [numbers(1000), numbers(70)]
    c = on_gpu(lambda x, y: (x.exp(), y.sin()), args)
    backend = TritonBackend(H200)
    low = lower_graph(c.graph, choose_orders(c.graph), backend.rules, H200, {}, backend.tuning)
    (joined,) = fused_groups(low, backend, context_of(backend, {}), [], {})
    verify_group(joined, low.buffers)
    twice = Group("twice", (), (), siblings=(joined.siblings[0], joined.siblings[0]))
    with pytest.raises(LoopError, match=r"the siblings .* share .*, which is written"):
        verify_group(twice, low.buffers)
