"""Memory of results: kept for the next run once nobody has it, and never while somebody does."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import hardtack

WIDTH = 1024


class TwoResults(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x + 1, torch.cat([x, x], 1) * 2, x[0, :4] - 1


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("results") / "m.pkg"
    shapes = ({0: Dim("n", min=1)},)
    hardtack.export(
        TwoResults().eval(), (torch.randn(64, WIDTH),), path=target, dynamic_shapes=shapes, targets=("cpu:native",)
    )
    return target


def run_nbytes(rows: int) -> int:
    """What a run of so many rows gives in results that are worth keeping."""
    return 3 * rows * WIDTH * 4


def address(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


def test_dropped_results_are_memory_for_the_next_run(path: Path) -> None:
    session = hardtack.load(path).session()
    x = np.random.default_rng(0).standard_normal((64, WIDTH), np.float32)
    assert session.memory["kept_nbytes"] == 0
    first = session(x)
    places = [address(a) for a in first[:2]]
    del first
    assert session.memory["kept_nbytes"] == run_nbytes(64)
    again = session(x)
    assert [address(a) for a in again[:2]] == places
    assert session.memory["kept_nbytes"] == 0
    np.testing.assert_array_equal(again[0], x + 1)


def test_results_in_use_are_left_alone(path: Path) -> None:
    """A view of a result uses it, too."""
    session = hardtack.load(path).session()
    x = np.random.default_rng(1).standard_normal((64, WIDTH), np.float32)
    views = []
    for i in range(5):
        a, b, _ = session(x + i)
        views.append((a[3:5, ::7], b.T[1:]))
        del a, b
    for i, (a, b) in enumerate(views):
        want = x + np.float32(i)
        np.testing.assert_array_equal(a, (want + 1)[3:5, ::7])
        np.testing.assert_array_equal(b, np.concatenate([want, want], 1).T[1:] * 2)
    assert len({address(a) for a, _ in views}) == len(views)


def test_no_more_is_kept_than_one_run_gives(path: Path) -> None:
    session = hardtack.load(path).session()
    x = np.zeros((64, WIDTH), np.float32)
    many = [session(x) for _ in range(4)]
    del many
    assert session.memory["kept_nbytes"] == run_nbytes(64)


def test_other_sizes_and_trim_free_what_is_kept(path: Path) -> None:
    session = hardtack.load(path).session()
    for rows in (64, 200, 3, 128):
        a, b, c = session(np.full((rows, WIDTH), 2, np.float32))
        assert (a == 3).all()
        assert (b == 4).all()
        assert (c == 1).all()
        del a, b, c
    assert session.memory["kept_nbytes"] == run_nbytes(128)
    session.trim()
    assert session.memory["kept_nbytes"] == 0
    session(np.zeros((128, WIDTH), np.float32))


def test_results_of_a_session_that_is_gone(path: Path) -> None:
    session = hardtack.load(path).session()
    a, b, _ = session(np.ones((64, WIDTH), np.float32))
    del session
    gc.collect()
    assert (a == 2).all()
    del a
    assert (b == 2).all()


def test_a_call_that_is_refused_takes_nothing(path: Path) -> None:
    session = hardtack.load(path).session()
    session(np.ones((64, WIDTH), np.float32))
    kept = session.memory["kept_nbytes"]
    with pytest.raises(hardtack.InputError):
        session(np.ones((64, WIDTH + 1), np.float32))
    assert session.memory["kept_nbytes"] == kept
