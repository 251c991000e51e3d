"""Whole bundles for a GPU without one: the runtime's copies, places and recordings, with kernels that compute."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from null_driver import NullDriver
from torch import nn
from torch.export import Dim

import hardtack
from tests.codegen.compare import assert_same, eager, leaves
from tests.support.cached_decoders import CODES, Decoder, Stacked, step, stored_as
from tests.triton.driven import Driven
from tests.triton.test_loops import normal

RUNS = 4
"""Plain, recorded, replayed, and replayed on other values."""


@pytest.fixture
def driven(driver: NullDriver) -> Driven:
    return Driven(driver)


def check(session: Any, module: nn.Module, inputs: Sequence[Sequence[torch.Tensor]]) -> None:
    """Each set of inputs RUNS times, the last time in reverse, from the same memory."""
    for args in inputs:
        held = [a.clone() for a in args]
        for k in range(RUNS):
            if k == RUNS - 1:
                for h, a in zip(held, args, strict=True):
                    h.copy_(a.flip(0))
            assert_same(leaves(session(*held)), eager(module, held), 5)


class Mixed(nn.Module):
    """Constants, an empty one among them, a product, rows, an index, values that pass through the arena."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 5)
        self.norm = nn.LayerNorm(8)
        self.register_buffer("nothing", torch.zeros(0, 16))
        self.register_buffer("order", torch.tensor([4, 0, 3, 1, 2]))
        self.register_buffer("scale", torch.linspace(1, 2, 5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.second(F.gelu(self.norm(self.first(x))))
        z = (y * self.scale)[:, self.order].softmax(-1)
        return z, y.cumsum(0), torch.cat([self.nothing * 2, self.nothing]).sum(0), z.flip(0).argmax(-1)


def test_a_model_with_constants(driven: Driven, tmp_path: Path) -> None:
    module, x = Mixed().eval(), normal(7, 6)
    model = driven.export(module, (x,), tmp_path / "m.pkg")
    for graphs in (True, False):
        check(model.session(graphs=graphs), module, [[x]])


def test_sizes_that_grow_and_shrink(driven: Driven, tmp_path: Path) -> None:
    module = Mixed().eval()
    model = driven.export(module, (normal(7, 6),), tmp_path / "m.pkg", ({0: Dim("rows", min=1, max=4096)},))
    session = model.session()
    check(session, module, [[normal(n, 6, seed=n)] for n in (7, 33, 2, 33)])


class Affine(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.register_buffer(f"by{int(by)}", torch.full((5,), by))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (by,) = self.buffers()
        return (x * by).cumsum(-1) + by


def test_entries_share_a_session(driven: Driven, tmp_path: Path) -> None:
    modules = {f"e{k}": Affine(k).eval() for k in (2, 3)}
    args = {"e2": (normal(4, 5),), "e3": (normal(40, 5),)}
    model = driven.export(modules, args, tmp_path / "m.pkg")
    sessions = {name: model.session(name) for name in modules}
    for _ in range(RUNS):
        for name, module in modules.items():
            assert_same(leaves(sessions[name](*args[name])), eager(module, args[name]))


class Counter(nn.Module):
    """A state, written from an input and read by the next call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.arange(6.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.seen.flip(0) * 2
        self.seen.add_(x)
        return before + self.seen


def test_states_stay_between_calls(driven: Driven, tmp_path: Path) -> None:
    x = normal(6)
    session = driven.export(Counter().eval(), (x,), tmp_path / "m.pkg").session()
    same = Counter()
    for _ in range(RUNS):
        assert_same(leaves(session(x)), [same(x)])


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda v: v.relu() + 1, lambda v: v * v, (x,))


def test_branches_by_values(driven: Driven, tmp_path: Path) -> None:
    x = normal(4, 6)
    session = driven.export(Branches().eval(), (x,), tmp_path / "m.pkg").session()
    for given in (x.abs(), -x.abs()):
        assert_same(leaves(session(given)), eager(Branches(), [given]))


def test_results_stay_on_the_device(driven: Driven, tmp_path: Path) -> None:
    module, x = Affine(2).eval(), normal(4, 5)
    model = driven.export(module, (x,), tmp_path / "m.pkg")
    there = model.session(outputs="device")
    passed = there(x.numpy())
    assert passed.__dlpack_device__() == (2, 0)
    back = model.session(outputs="host")(passed)
    assert_same([torch.from_numpy(np.asarray(back))], eager(module, eager(module, [x])))


class Picks(nn.Module):
    def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i] * 2


def test_a_kernel_reports_an_index(driven: Driven, tmp_path: Path) -> None:
    x = normal(4, 5)
    session = driven.export(Picks().eval(), (x, torch.tensor([1])), tmp_path / "m.pkg").session()
    with pytest.raises(hardtack.RunError, match="an index is out of range"):
        session(x, torch.tensor([4]))
    assert_same(leaves(session(x, torch.tensor([-4]))), [x[:1] * 2])


def test_what_was_never_written_is_told(driver: NullDriver, tmp_path: Path) -> None:
    """The first kernel leaves its result out: the second one's load is refused, and so is the copy to the host."""
    driven = Driven(driver)
    x = normal(4, 5)
    session = driven.export(Affine(2).eval(), (x,), tmp_path / "m.pkg").session()
    (first, *_) = driven.kernels
    driven._loaded[first] = type("Nothing", (), {"__getitem__": lambda self, grid: lambda *args, **kwargs: None})()
    session(x)
    told = [*map(str, driver.failures), *driver.problems()]
    driver.failures.clear()
    assert any("never written" in t or "not all were written" in t for t in told), told


@pytest.mark.parametrize(
    ("model", "dtype", "word"), [(Decoder, torch.bfloat16, "int8"), (Stacked, torch.float32, "fp8")]
)
def test_caches_of_codes(driven: Driven, tmp_path: Path, model: Any, dtype: torch.dtype, word: str) -> None:
    """In two sessions in turn, one run as it is and one recorded, beside a module that rounds what it writes."""
    module = model(dtype).eval()
    tokens = Dim("t", max=24)
    dynamic = ({1: tokens}, {1: tokens}, {1: tokens}, {0: tokens})
    chosen = hardtack.Options(cache=word)
    loaded = driven.export(module, step(3, 0, dtype), tmp_path / "m.pkg", dynamic, chosen)
    pairs = [(loaded.session(graphs=g), copy.deepcopy(module), seed) for g, seed in ((False, 0), (True, 100))]
    for t, at in ((3, 0), (1, 3), (1, 4)):
        for session, eager_one, seed in pairs:
            eager_one.stored = stored_as(word)
            x = step(t, at, dtype, seed)
            assert_same(leaves(session(*x)), leaves(eager_one(*x)), 5)
    session, eager_one, _ = pairs[0]
    for name, buffer in eager_one.named_buffers():
        codes, scales = (torch.from_numpy(session.read_state(n)) for n in (name, f"{name}.scales"))
        assert torch.equal((codes.view(CODES[word][0]).float() * scales).to(dtype), buffer)


def _found(x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Sizes that the run computes, one inside another, a product of them, and a size beside them that is known."""
    rows = x[x[:, 0] > 0]
    values, where, counts = torch.unique(k, return_inverse=True, return_counts=True)
    return (
        rows @ torch.ones(4, 3) + rows[:, :1],
        torch.nonzero(rows > 0.5),
        x.sum(0),
        values * counts,
        where,
        torch.repeat_interleave(k.clamp(max=3)),
        x[: k[0].item()],
    )


def test_sizes_that_a_run_computes(driven: Driven, tmp_path: Path) -> None:
    """The arena grows at reads, and what lies in it stays; counts of none, of all, and again."""
    x, k = normal(6, 4), torch.tensor([3, 1, 3, 2, 9])
    model = driven.export(_found, (x, k), tmp_path / "m.pkg")
    session = model.session()
    assert "reads" in model.entries["forward"].no_graph
    more = [(x.abs(), k), (-x.abs(), k * 0), (x.flip(0), k.flip(0)), (x, k)]
    for args in ((x, k), *more):
        assert_same(leaves(session(*args)), list(_found(*args)), 5)
