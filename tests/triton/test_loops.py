"""Loop kernels on sizes of every kind: rows held whole, walked in chunks, split; transposing tiles; failures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from tests.codegen.compare import Compiled, assert_same, compile_module, eager
from tests.codegen.runner import KernelFailed
from tests.triton.simulate import Simulator


def on_gpu(module: nn.Module, args: Sequence[torch.Tensor], dynamic: Any = None) -> Compiled:
    """The module as GPU kernels, run by the interpreter."""
    return compile_module(module.eval(), args, dynamic, None, TritonBackend(H200), Simulator)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Rows(nn.Module):
    """Everything that a kernel of rows can hold: shared results, values that stay inside, values that leave."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = x + y
        normed = F.layer_norm(z, z.shape[-1:])
        return z, normed.relu(), (x * 3).softmax(-1), x.logsumexp(-1), z.argmax(-1), (z > 0).all(-1), x.amin(-1) * 2


class Columns(nn.Module):
    """Reductions across rows, and accesses that are contiguous along the other axis."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.sum(0), x.amax(0) - y.mean(0), x.t().contiguous() + y.t(), (x + y[:1]).t().exp(), x.argmin(0), x.sum()


FREE = ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO})


@cache
def dynamic(kind: type[nn.Module]) -> Compiled:
    return on_gpu(kind(), [normal(3, 5), normal(3, 5, seed=1)], FREE)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(rows=st.integers(0, 40), columns=st.integers(1, 70), kind=st.sampled_from([Rows, Columns]))
def test_any_size_of_a_dynamic_kernel(rows: int, columns: int, kind: type[nn.Module]) -> None:
    rows = max(rows, 1) if kind is Columns else rows
    args = [normal(rows, columns), normal(rows, columns, seed=1)]
    assert_same(dynamic(kind)(*args), eager(kind(), args))


def test_rows_longer_than_a_chunk() -> None:
    args = [normal(2, 5000), normal(2, 5000, seed=1)]
    assert_same(dynamic(Rows)(*args), eager(Rows(), args), 5)


@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (1, 33), (70, 40), (3, 1024), (2, 16400)])
@pytest.mark.parametrize("kind", [Rows, Columns])
def test_static_sizes(shape: tuple[int, int], kind: type[nn.Module]) -> None:
    args = [normal(*shape), normal(*shape, seed=1)]
    assert_same(on_gpu(kind(), args)(*args), eager(kind(), args), 5)


def test_a_norm_between_pointwise_ops_is_one_kernel_and_one_pass() -> None:
    class Block(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.gelu(F.layer_norm(x + y, x.shape[-1:])) * 2

    compiled = on_gpu(Block(), [normal(64, 768), normal(64, 768, seed=1)])
    (source,) = compiled.entry.sources.values()
    assert source.count("tl.load(") == 2
    assert source.count("tl.store(") == 1
    assert "for " not in source


def test_a_long_reduction_is_split() -> None:
    class Total(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.sum(), x.argmax(), x.half().amax(), x.double().mean(0)

    x = normal(4, 100_003)
    compiled = on_gpu(Total(), [x])
    assert len(compiled.entry.plan.body) == 7, "two kernels each for sum, argmax and amax, one for the mean"
    assert_same(compiled(x), eager(Total(), [x]), 50)


def test_memory_between_the_nests_of_a_kernel_is_behind_a_barrier() -> None:
    class Turned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.softmax(-1)
            return (y.flip(-1) * y).sum(-1)

    x = normal(30, 50)
    compiled = on_gpu(Turned(), [x])
    assert any("tl.debug_barrier()" in s for s in compiled.entry.sources.values())
    assert_same(compiled(x), eager(Turned(), [x]))


class Picks(nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2


def test_an_index_out_of_range_is_reported_with_its_launch() -> None:
    x, i = normal(5, 4), torch.tensor([0, -5, 4])
    compiled = on_gpu(Picks(), [x, i])
    assert_same(compiled(x, i), eager(Picks(), [x, i]))
    with pytest.raises(KernelFailed, match=r"returned 1 at launch 1$"):
        compiled(x, torch.tensor([0, 5, 0]))


def test_an_integer_division_by_zero_is_reported() -> None:
    class Divides(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + 1, torch.div(x, y, rounding_mode="floor")

    x, y = torch.arange(7), torch.tensor([1, 2, 3, -1, -2, 5, 6])
    compiled = on_gpu(Divides(), [x, y])
    assert_same(compiled(x, y), eager(Divides(), [x, y]))
    with pytest.raises(KernelFailed, match="returned 2 at launch"):
        compiled(x, torch.zeros(7, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32, torch.int8], ids=str)
def test_updates_of_one_element_by_many_points(dtype: torch.dtype) -> None:
    class Scatters(nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
            y = x.scatter_add(0, i, v)
            z = [x.scatter_reduce(0, i, v, r) for r in ("prod", "amax", "amin")]
            return [y, *z, x.index_put((i[:, 0],), v, accumulate=True)]

    g = torch.Generator().manual_seed(1)
    x, v = (torch.randint(-3, 4, (5, 3), generator=g).to(dtype) for _ in range(2))
    i = torch.randint(0, 5, (5, 3), generator=g)
    compiled = on_gpu(Scatters(), [x, i, v])
    assert_same(compiled(x, i, v), eager(Scatters(), [x, i, v]))


def test_writes_at_the_same_places_find_out_once_which_is_the_last() -> None:
    class Caches(nn.Module):
        def forward(self, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
            keys, values = torch.zeros(2, 6, 3).index_copy(1, at, k), torch.ones(2, 6, 3).index_copy(1, at, v)
            i = at[:, None].expand(4, 3)
            return [keys, values, x.scatter(0, i, k[0]), x.scatter(0, i, v[0] + 1), x.scatter(1, i % 3, v[1])]

    args = [normal(2, 4, 3), normal(2, 4, 3, seed=1), torch.tensor([4, 0, 5, 2]), normal(6, 3, seed=2)]
    compiled = on_gpu(Caches(), args)
    want = eager(Caches(), [*args])
    assert_same(compiled(*args)[:4], want[:4])  # eager gives no order to the last one's equal places
    twice = torch.tensor([4, 0, 4, 0])
    keys = torch.zeros(2, 6, 3)
    keys[:, 4], keys[:, 0] = args[0][:, 2], args[0][:, 3]
    assert_same(compiled(args[0], args[1], twice, args[3])[:1], [keys])
    assert sum(".owner" in b.name for b in compiled.entry.plan.values) == 3


def test_states_keep_what_a_run_wrote() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x)
            return self.seen * 2

    compiled = on_gpu(Counts(), [torch.ones(4)])
    for turn in (1, 2, 3):
        assert_same(compiled(torch.ones(4)), [torch.full((4,), 2.0 * turn)])


def test_branches_and_loops_launch_kernels_of_their_own() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda v: v.relu() + 1, lambda v: v * v, (x,))

    x = normal(4, 6)
    compiled = on_gpu(Branches(), [x])
    for given_x in (x.abs(), -x.abs()):
        assert_same(compiled(given_x), eager(Branches(), [given_x]))
