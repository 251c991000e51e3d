"""Sizes that a run computes: bundles against eager, for counts of none, one and all, on one thread and two."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch._higher_order_ops.while_loop import while_loop
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
    "masked_select by a larger mask": lambda x: (x[0] + 1).masked_select(x > 0),
    "a write of what was picked": lambda x: x.index_put((x > 0,), x[x > 0] * 2),
    "a write that adds to rows": lambda x: x.index_put((x[:, 0] > 0,), _picked(x) * 3, accumulate=True),
    "a write of one row": lambda x: (x.index_put((x[:, 0] > 0,), x[0]), x.index_put((x > 0,), x[0, :1])),
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


def exported(
    function: Callable[..., Any], args: tuple[Any, ...], tmp_path: Path, dynamic_shapes: Any = None
) -> hardtack.Model:
    path = tmp_path / "m.pkg"
    hardtack.export(function, args, path=path, dynamic_shapes=dynamic_shapes, targets=("cpu:native",))
    return hardtack.load(path)


def _up_to_four(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    size = n.item()
    torch._check(size <= 4)
    return torch.arange(size) + x.sum()


def test_a_size_beyond_what_the_model_says(tmp_path: Path) -> None:
    session = exported(_up_to_four, (X, torch.tensor(3)), tmp_path).session()
    x = X.numpy()
    for size in (5, -1, 2**40):
        with pytest.raises(hardtack.RunError) as caught:
            session(x, np.array(size))
        said = str(caught.value)
        place = r"\(.*test_value_sizes.py:\d+, aten\._local_scalar_dense\)"
        size_said = rf"the size u0 is {size}, expected 0 to 4"
        assert re.fullmatch(rf'entry "forward", instruction \d+ {place}: {size_said}', said), said
        assert session(x, np.array(4)).shape == (4,)


def _pairs(x: torch.Tensor) -> torch.Tensor:
    rows = x[x[:, 0] > 0]
    torch._check(rows.shape[0] % 2 == 0)
    return rows.reshape(-1, 8)


def test_a_condition_on_a_size(tmp_path: Path) -> None:
    session = exported(_pairs, (X,), tmp_path).session()
    even = ROWS.numpy().copy()
    even[:, 0] = [1, -1, 1, -1, -1, -1]
    assert session(even).shape == (1, 8)
    even[1, 0] = 1
    with pytest.raises(
        hardtack.RunError, match=r'entry "forward" requires .*; with u0 = 3 the left side is 1, expected'
    ):
        session(even)
    even[5, 0] = 1
    assert session(even).shape == (2, 8)


def test_sizes_that_are_to_be_equal(tmp_path: Path) -> None:
    session = exported(lambda x: x[x > 0] + x[x < 0], (X,), tmp_path).session()
    with pytest.raises(hardtack.RunError, match=r"with u0 = \d+, u1 = \d+ the left side"):
        session(ALL.numpy())
    half = np.array([[1, -1, 2, -2]] * 6, np.float32)
    assert np.array_equal(session(half), half[half > 0] + half[half < 0])


def test_what_a_session_may_hold(tmp_path: Path) -> None:
    """The arena grows by what has been computed; a run without memory for it leaves the session as it was."""

    def forward(n: torch.Tensor) -> torch.Tensor:
        return (torch.arange(n.item()).double().cumsum(0) * 2).sort()[0].flip(0)

    model = exported(forward, (torch.tensor(3),), tmp_path)
    session = model.session(max_nbytes=1 << 20)
    with pytest.raises(hardtack.RunError, match=r"needs \d+ bytes; the session holds \d+ of its max_nbytes 1048576"):
        session(np.array(10**7))
    assert session(np.array(3)).tolist() == [6.0, 2.0, 0.0]
    assert session.memory["arena_nbytes"] < 1 << 20


def test_more_sizes_than_a_session_keeps(tmp_path: Path) -> None:
    """Bindings of sizes make room for others; results that Python has stay as they are."""
    session = exported(lambda x: (x[x > 0], x * 2, torch.nonzero(x[x > 0.5] < 1)), (X,), tmp_path).session()
    calls = [torch.randn(6, 4, generator=G) for _ in range(60)]
    found = [session(x.numpy()) for x in calls]
    for x, (positive, twice, places) in zip(calls, found, strict=True):
        assert np.array_equal(positive, x[x > 0].numpy())
        assert np.array_equal(twice, (x * 2).numpy())
        assert np.array_equal(places, torch.nonzero(x[x > 0.5] < 1).numpy())
    assert session.memory["num_cached_shapes"] <= 17


def test_tensors_of_torch(tmp_path: Path) -> None:
    session = exported(lambda x: (x[x > 0], x + 1), (X,), tmp_path).session()
    for x in (X, NONE, ALL):
        positive, more = session(x)
        assert isinstance(positive, torch.Tensor)
        assert torch.equal(positive, x[x > 0])
        assert torch.equal(more, x + 1)


class Kept(nn.Module):
    """A state that is written before a size is read, and one behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("runs", torch.zeros(()))
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.runs.add_(1)
        found = x[x > 0]
        self.total.add_(found.sum())
        return found * self.runs, self.total.clone()


def test_states(tmp_path: Path) -> None:
    session, same = exported(Kept().eval(), (X,), tmp_path).session(), Kept()
    for x in (X, ALL, NONE, ONE, X):
        for got, want in zip(session(x), same(x), strict=True):
            torch.testing.assert_close(got, want)


def test_steps_in_order(tmp_path: Path) -> None:
    """An observer sees the read among the instructions, and what comes behind it with its true sizes."""
    session = exported(lambda x: x[x[:, 0] > 0] @ W, (X,), tmp_path).session()
    seen: list[tuple[str, list[tuple[int, ...]]]] = []
    session.observe(lambda step: seen.append((step["op"], [v.shape for v in step["values"].values()])))
    session(X.numpy())
    session.observe(None)
    at = [op for op, _ in seen].index("read")
    rows = int((X[:, 0] > 0).sum())
    assert seen[at][1] == [()]
    assert any((rows, 3) in shapes for _, shapes in seen[at:])


def test_what_the_bundle_says(tmp_path: Path) -> None:
    model = exported(lambda x: (x[x > 0], x), (X,), tmp_path, ({0: Dim("n", max=9)},))
    entry = model.entries["forward"]
    assert entry.syms == {"n": (0, 9), "u0": (0, None)}
    assert [str(d) for d in entry.outputs[0].shape] == ["u0"]
    assert "1 size that launches before compute" in entry.no_graph


def test_the_command(tmp_path: Path) -> None:
    """hardtack-rt, which gives the session's own outputs, and the functions of C that it calls."""
    exported(lambda x: (x[x > 0], x.nonzero(), x.sum()), (ONE,), tmp_path)
    np.save(tmp_path / "x.npy", ONE.numpy())
    command = [
        Path(sys.executable).parent / "hardtack-rt",
        "run",
        tmp_path / "m.pkg",
        "--input",
        f"x={tmp_path / 'x.npy'}",
    ]
    done = subprocess.run([*command, "--output", tmp_path / "out"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = {p.stem: np.load(p) for p in (tmp_path / "out").iterdir()}
    assert made["output_0"].tolist() == [5.0]
    assert made["output_1"].shape == (24, 2)


def _boxes(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    corner = torch.rand(count, 2, generator=G) * 10
    return torch.cat([corner, corner + torch.rand(count, 2, generator=G) * 4 + 0.5], 1), torch.rand(count, generator=G)


def _nms(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> torch.Tensor:
    """The boxes that no better one overlaps too much, best first: in a loop over them, on a matrix of overlaps."""
    order = scores.argsort(descending=True, stable=True)
    b = boxes[order]
    low, high = torch.maximum(b[:, None, :2], b[:, :2]), torch.minimum(b[:, None, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    area = (b[:, 2:] - b[:, :2]).prod(-1)
    over = both / (area[:, None] + area - both) > limit

    def goes_on(k: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return k < kept.shape[0]

    def body(k: torch.Tensor, kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        behind = torch.arange(kept.shape[0]) > k
        row = over.index_select(0, k.reshape(1))[0]
        alive = kept.index_select(0, k.reshape(1))[0]
        return k + 1, kept & ~(row & behind & alive)

    kept = torch.ones_like(order, dtype=torch.bool)
    _, kept = while_loop(goes_on, body, (torch.zeros((), dtype=torch.int64), kept))
    return order[kept]


class Detector(nn.Module):
    """Boxes above a score, those that overlap taken out, and the features of what is left through a head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.head = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, boxes: torch.Tensor, scores: torch.Tensor, features: torch.Tensor) -> Any:
        good = torch.nonzero(scores > 0.3)[:, 0]
        found = good[_nms(boxes[good], scores[good], 0.3)]
        return boxes[found], scores[found], self.head(features[found]).softmax(-1)


def _nms_in_python(boxes: torch.Tensor, scores: torch.Tensor, limit: float) -> list[int]:
    """What torchvision's nms gives."""
    kept: list[int] = []
    for k in scores.argsort(descending=True, stable=True).tolist():
        a = boxes[k]
        area = (a[2] - a[0]) * (a[3] - a[1])
        for j in kept:
            b = boxes[j]
            both = max(0.0, float(min(a[2], b[2]) - max(a[0], b[0]))) * max(
                0.0, float(min(a[3], b[3]) - max(a[1], b[1]))
            )
            if both / float(area + (b[2] - b[0]) * (b[3] - b[1]) - both) > limit:
                break
        else:
            kept.append(k)
    return kept


def test_a_detector(tmp_path: Path) -> None:
    module = Detector().eval()
    boxes, scores = _boxes(30)
    features = torch.randn(30, 6, generator=G)
    path = tmp_path / "m.pkg"
    dims = ({0: Dim("n", max=200)},) * 3
    hardtack.export(module, (boxes, scores, features), path=path, dynamic_shapes=dims, targets=("cpu:native",))
    calls = [(boxes, scores), (boxes, scores * 0), (boxes, scores * 0.5), _boxes(1), _boxes(0), _boxes(80)]
    for threads in (1, 2):
        session = hardtack.load(path, threads=threads).session()
        for b, s in calls:
            f = torch.randn(len(b), 6, generator=G)
            found, good, classes = session(b, s, f)
            above = torch.nonzero(s > 0.3)[:, 0]
            want = above[torch.tensor(_nms_in_python(b[above], s[above], 0.3), dtype=torch.int64)]
            assert torch.equal(found, b[want])
            assert torch.equal(good, s[want])
            torch.testing.assert_close(classes, module.head(f[want]).softmax(-1))
