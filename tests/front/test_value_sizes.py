"""Sizes that a run computes: bundles against eager, for counts of none, one and all, on one thread and two."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import Dim

import hardtack
from tests.export.checks import assert_same, check, eager

G = torch.Generator().manual_seed(5)
X = torch.randn(6, 4, generator=G)
ROWS = torch.arange(24.0).reshape(6, 4) - 11
NONE, ALL = -X.abs() - 1, X.abs() + 1
ONE = NONE.clone()
ONE[3, 2] = 5.0
W = torch.randn(4, 3, generator=G)
PARTS = [(X,), (ROWS,), (NONE,), (ALL,), (ONE,)]


def run(path: Path, calls: Sequence[tuple[Any, ...]], threads: int) -> list[list[torch.Tensor]]:
    """What one session of the bundle gives for each call, one after the other."""
    session = hardtack.load(path, threads=threads).session()
    found = [session(*pytree.tree_map_only(torch.Tensor, torch.Tensor.numpy, call)) for call in calls]
    return [[torch.from_numpy(np.array(x)) for x in pytree.tree_leaves(f)] for f in found]


def verify(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    others: Sequence[tuple[Any, ...]],
    tmp_path: Path,
    dynamic_shapes: Any = None,
    options: hardtack.Options | None = None,
) -> None:
    """The graph and the bundle against eager, the calls forwards and backwards."""
    check(function, args, dynamic_shapes, others)
    path = tmp_path / "m.pkg"
    hardtack.export(function, args, path=path, dynamic_shapes=dynamic_shapes, targets=("cpu:native",), options=options)
    calls = [args, *others, *reversed(others), args]
    for threads in (1, 2):
        for got, call in zip(run(path, calls, threads), calls, strict=True):
            assert_same(got, eager(function, call))


def _picked(x: torch.Tensor) -> torch.Tensor:
    return x[x[:, 0] > 0]


BY_MASK: dict[str, Callable[..., Any]] = {
    "nonzero": lambda x: torch.nonzero(x > 0),
    "nonzero of a value": lambda x: x.relu().nonzero(),
    "nonzero of a vector": lambda x: x[0].clamp(min=0).nonzero(),
    "coordinates": lambda x: torch.nonzero(x > 0, as_tuple=True),
    "a mask": lambda x: x[x > 0],
    "a mask of rows": _picked,
    "a mask of columns": lambda x: x[:, x[0] > 0] * 2,
    "a mask and a column": lambda x: x[x[:, 0] > 0, 1],
    "masked_select": lambda x: x.masked_select(x > 0) + 1,
    "masked_select of columns": lambda x: x.masked_select(x[0] > 0),
    "argwhere": lambda x: torch.argwhere(x > 0.5),
    "elementwise": lambda x: (_picked(x) * 2 + 1).sigmoid(),
    "sums": lambda x: (_picked(x).sum(), _picked(x).sum(0), _picked(x).sum(1)),
    "mean and softmax": lambda x: (_picked(x).softmax(-1), _picked(x).softmax(0), _picked(x).mean(1)),
    "cumsum": lambda x: _picked(x).cumsum(0),
    "sorted": lambda x: _picked(x).sort(0),
    "a product": lambda x: _picked(x) @ W,
    "a product behind rows": lambda x: _picked(x).T @ _picked(x),
    "linear and norm": lambda x: nn.functional.gelu(nn.functional.layer_norm(_picked(x) @ W, (3,))),
    "a view": lambda x: _picked(x).reshape(-1),
    "a view of pairs": lambda x: _picked(x).reshape(-1, 2, 2).transpose(1, 2).flatten(1),
    "how many": lambda x: x * _picked(x).shape[0],
    "how many over": lambda x: x.sum() / (_picked(x).shape[0] + 1),
    "the same size made": lambda x: torch.ones(_picked(x).shape[0], 2) + torch.arange(_picked(x).shape[0])[:, None],
    "padded": lambda x: nn.functional.pad(_picked(x), (1, 0)),
    "one more": lambda x: torch.cat([_picked(x), x[:1]]),
    "two sizes": lambda x: torch.cat([x[x > 0], x[x < -0.5]]),
    "two sizes apart": lambda x: (x[x > 0], x[x < -0.5] * 2, x + 1),
    "one inside another": lambda x: torch.nonzero(x[x > 0] > 0.5),
    "rows of rows": lambda x: (lambda y: y[y[:, 1] > 0.1])(_picked(x)) @ W,
    "three deep": lambda x: (lambda y: (lambda z: z[z < 2])(y[y > 0.3]))(x[x > 0]),
    "each with each": lambda x: x[x > 0.5][:, None] - x[x < -0.5],
    "attention": lambda x: nn.functional.scaled_dot_product_attention(
        _picked(x)[None], _picked(x)[None], _picked(x)[None]
    ),
    "writes at indices": lambda x: x.index_put((torch.nonzero(x[:, 0] > 0)[:, 0],), torch.zeros(4)),
    "read before and behind": lambda x: (x * 2).sum() + _picked(x * 2).sum() + (x * 2).exp().sum(),
}


@pytest.mark.parametrize("name", BY_MASK)
def test_masks(name: str, tmp_path: Path) -> None:
    verify(BY_MASK[name], PARTS[0], PARTS[1:], tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "nonzero",
        "a mask",
        "a mask of rows",
        "a product",
        "two sizes",
        "one inside another",
        "softmax",
        "sums",
        "a view",
    ],
)
def test_masks_of_any_number_of_rows(name: str, tmp_path: Path) -> None:
    function = BY_MASK.get(name, BY_MASK["mean and softmax"])
    others = [*PARTS[1:], (X[:0],), (X[:1],), (ALL[:5],), (torch.randn(700, 4, generator=G),)]
    verify(function, (X,), others, tmp_path, ({0: Dim("n", max=1000)},))


K = torch.tensor([3, 1, 3, 2, 9, 1, 1])
INTS = [(K,), (torch.tensor([5, 5, 5, 5, 5, 5, 5]),), (torch.tensor([7, 6, 5, 4, 3, 2, 1]),), (K * 0,)]
BY_VALUE: dict[str, Callable[..., Any]] = {
    "unique": lambda k: torch.unique(k),
    "unique of floats": lambda k: (k / 3).unique(),
    "unique of bools": lambda k: (k > 2).unique(),
    "unique with all": lambda k: torch.unique(k, return_inverse=True, return_counts=True),
    "unique with inverse": lambda k: torch.unique(k, return_inverse=True),
    "unique with counts": lambda k: k.reshape(7, 1).unique(return_counts=True),
    "consecutive": lambda k: torch.unique_consecutive(k, return_inverse=True, return_counts=True),
    "repeats": lambda k: torch.repeat_interleave(k),
    "rows repeated": lambda k: torch.repeat_interleave(X[[0, 1, 2, 3, 4, 5, 0]], k, dim=0),
    "repeats known": lambda k: torch.repeat_interleave(X, k[:6].clamp(1, 1), dim=0, output_size=6),
    "bincount": lambda k: torch.bincount(k),
    "bincount at least": lambda k: k.bincount(minlength=6) * 2,
    "bincount of weights": lambda k: k.bincount(k / 2) + 1,
    "arange": lambda k: torch.arange(k[1].item()) * 2,
    "arange of a sum": lambda k: torch.arange(k[0].item() + k[1].item() + 1).float().mean(),
    "zeros": lambda k: torch.zeros(k.max().item(), 3) + 1,
    "cut": lambda k: X[: k[0].item()],
    "cut from": lambda k: X[k[0].item() :] * 2,
    "cut from the end": lambda k: X[-k[1].item() :],
    "cut in steps": lambda k: X[0 : k[0].item() : 2],
    "cut between": lambda k: X[k[1].item() : k[1].item() + 2],
    "a number of a size": lambda k: X * torch.zeros(k[0].item()).shape[0] + k[0].item(),
    "a number kept": lambda k: X * k[0].item() + torch.full((3, 1, 1), k[1].item()),
}


@pytest.mark.parametrize("name", BY_VALUE)
def test_numbers(name: str, tmp_path: Path) -> None:
    verify(BY_VALUE[name], INTS[0], INTS[1:], tmp_path)


def test_nothing_that_is_unique(tmp_path: Path) -> None:
    def forward(k: torch.Tensor) -> Any:
        return (*torch.unique(k, return_inverse=True, return_counts=True), k.bincount(minlength=2))

    others = [(K[:0],), (K[:1],), (torch.randint(0, 50, (300,), generator=G),)]
    verify(forward, (K,), others, tmp_path, ({0: Dim.DYNAMIC},))
