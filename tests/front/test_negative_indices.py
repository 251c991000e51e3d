"""Indices below 0: they count from the end where eager mode says so, and are refused where it refuses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import hardtack

X = torch.arange(12.0).reshape(4, 3)
SOURCE = torch.tensor([[20.0, 21, 22], [30, 31, 32]])
Function = Callable[[Tensor, Tensor], Tensor]


def _rows(i: Tensor) -> Tensor:
    return i[:, None].expand(2, 3)


COUNTS: dict[str, Function] = {
    "index": lambda x, i: x[i],
    "index_put": lambda x, i: x.index_put((i,), SOURCE),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, SOURCE[0, :2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_fill, a tensor": lambda x, i: x.index_fill(0, i, torch.tensor(2.0)),
}
REFUSED: dict[str, Function] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x, torch.tensor([0])),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, SOURCE),
    "index_copy": lambda x, i: x.index_copy(0, i, SOURCE),
    "index_reduce": lambda x, i: x.index_reduce(0, i, SOURCE, "prod"),
    "gather": lambda x, i: x.gather(0, _rows(i)),
    "scatter": lambda x, i: x.scatter(0, _rows(i), SOURCE),
    "scatter, a number": lambda x, i: x.scatter(0, _rows(i), 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, _rows(i), SOURCE),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, _rows(i), SOURCE, "amax"),
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i),
}


def _session(function: Function, folder: Path) -> hardtack.Session:
    path = folder / "m.pkg"
    hardtack.export(function, (X, torch.tensor([0, 2])), path=path)
    return hardtack.load(path).session()


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_they_count_from_the_end(name: str, tmp_path: Path) -> None:
    index = torch.tensor([0, -1])
    assert torch.equal(_session(COUNTS[name], tmp_path)(X, index), COUNTS[name](X, index))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_they_are_out_of_range(name: str, tmp_path: Path) -> None:
    index = torch.tensor([1, -1])
    with pytest.raises((IndexError, RuntimeError)):
        REFUSED[name](X, index)
    session = _session(REFUSED[name], tmp_path)
    good = torch.tensor([1, 2])
    torch.testing.assert_close(session(X, good), REFUSED[name](X, good))
    with pytest.raises(hardtack.errors.RunError, match="an index is out of range"):
        session(X, index)
