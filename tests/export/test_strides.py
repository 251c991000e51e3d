"""Parts of tensors in ops that torch works out by strides: they hold for every size, even and odd."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.export import Dim

from hardtack.exporter import RangeError, to_graphs
from tests.export.checks import assert_same, check, entry, ours

PARTS: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x[..., ::2].reshape(x.shape[0], -1),
    "reshape to a vector": lambda x: x[..., ::2, :].reshape(-1),
    "flatten": lambda x: x[..., ::2, ::2].flatten(1),
    "patches": lambda x: x[:, :, ::2, ::2].flatten(2).transpose(1, 2),
    "broadcast": lambda x: x[:, None, ..., ::2].expand(-1, 2, -1, -1, -1).reshape(x.shape[0], 2, -1),
    "turned": lambda x: x[..., ::2].transpose(1, 3).reshape(x.shape[0], -1),
    "beginning": lambda x: x[..., : x.shape[-1] // 2].reshape(x.shape[0], -1),
    "einsum": lambda x: torch.einsum("bcij,bdij->bcd", x[..., ::2], x[..., ::2]),
    "einsum of rows": lambda x: torch.einsum("bcij,bcik->bjk", x[..., ::2], x[..., 1::2]),
    "einsum with a weight": lambda x: torch.einsum("bcij,cd->bdij", x[..., ::2], torch.ones(3, 5)),
    "einsum of one": lambda x: torch.einsum("bcij->bjci", x[..., ::2]),
    "batched product": lambda x: torch.einsum("bcij,bckj->bcik", x[..., ::2, ::2], x[..., 1:, ::2]),
    "convolution": lambda x: F.conv2d(x[..., ::2], torch.ones(2, 3, 1, 1)),
    "rolled": lambda x: x[..., ::2].roll(1),
    "bilinear": lambda x: F.bilinear(x[:, ::2, :, :3], x[:, ::2, :, :3], torch.ones(2, 3, 3)),
    "normalised": lambda x: F.group_norm(x[:, :, ::2, ::2], 3),
}


@pytest.mark.sweep(over="strict")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str, strict: bool) -> None:
    dims = ({2: Dim("h", min=4, max=32), 3: Dim("w", min=4, max=32)},)
    others = [(torch.randn(2, 3, *size),) for size in ((4, 4), (5, 7), (9, 6), (4, 5), (31, 32))]
    check(PARTS[name], (torch.randn(2, 3, 8, 10),), dims, others, strict=strict)


def test_parts_of_a_ready_program() -> None:
    """What torch has noted of the strides while it exported the program stays."""
    program = torch.export.export(_Rows(), (torch.randn(2, 3, 8),), dynamic_shapes=({2: Dim.DYNAMIC},))
    exported = to_graphs(program)
    assert "eq" in [g.relation for g in entry(exported).graph.guards]
    for n in (2, 6, 8):
        x = torch.randn(2, 3, n)
        assert_same(ours(exported, (x,)), [_Rows()(x)])


class _Rows(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[..., ::2].reshape(2, -1) * 2


WRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x[..., ::2].reshape(2, -1),
    "a view of it": lambda x: x[..., ::2].flatten(1)[:, :3].unsqueeze(0),
}


@pytest.mark.sweep(over="strict")
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_part_that_is_written_to(name: str, strict: bool) -> None:
    """It is a view for even sizes and a copy for odd ones, so that the program holds for the example's kind only."""

    def forward(x: Tensor) -> Tensor:
        y = x * 2
        WRITTEN[name](y).add_(1)
        return y

    x = torch.randn(2, 3, 8)
    check(forward, (x,), ({2: Dim.DYNAMIC},), [(torch.randn(2, 3, n),) for n in (4, 10)], strict=strict)
    with pytest.raises(RangeError, match=r"the program needs n == 2\*\(\(n \+ 1\)//2\)"):
        to_graphs(forward, (x,), None, ({2: Dim("n", min=4, max=32)},), strict)


class _Recurrent(torch.nn.Module):
    """Writes to a recurrence's result behind contiguous() of it, which is a copy where that result is transposed."""

    def __init__(self, kind: str, batch_first: bool, both: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = getattr(torch.nn, kind)(4, 3, 2, batch_first=batch_first, bidirectional=both)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.rnn(x)[0].clone()
        z = y.contiguous()
        y[:1].mul_(0.5)
        flat = y.reshape(-1)
        flat.add_(1)
        return y, z, flat


@pytest.mark.sweep(over="both")
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_what_a_recurrence_gives_is_laid_out_as_in_eager(kind: str, batch_first: bool, both: bool) -> None:
    """With batch_first its result is [steps, batch, features] in memory."""
    module = _Recurrent(kind, batch_first, both).eval()
    check(module, (torch.randn(2, 5, 4),))
    check(module, (torch.randn(5, 2, 4).transpose(0, 1),))
    check(module, (torch.randn(1, 5, 4),))
    others = [(torch.randn(2, n, 4),) for n in (2, 3, 7)]
    check(module, (torch.randn(2, 5, 4),), ({1: Dim("n", min=2, max=64)},), others)


def test_recurrences_are_captured_without_a_warning() -> None:
    """torch warns of lists that its own modules keep of their parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        to_graphs(_Recurrent("LSTM", True, False).eval(), (torch.randn(2, 5, 4),))


LAYOUTS = tuple(itertools.permutations(range(3)))


@pytest.mark.parametrize("order", LAYOUTS, ids=str)
def test_products_and_pools_of_permuted_tensors_are_row_major(order: tuple[int, int, int]) -> None:
    shape = [(2, 3, 4)[d] for d in order]

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = x.permute([order.index(d) for d in range(3)])
        results = (z @ y, y.mT @ z.mT, z @ y[:, 0], F.max_pool1d(z, 2))
        for made in results:
            made.reshape(-1)[:3].mul_(2)
        return results

    check(forward, (torch.randn(shape), torch.randn(4, 5)))
