"""A budget for the arena: orders of groups by brute force; exports that keep a budget, or say why not."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import hardtack
from hardtack import Options
from hardtack.codegen.ir.expr import const
from hardtack.codegen.plan.budget import OverBudget, alive_at_peak
from hardtack.codegen.plan.memory import Item, plan_memory, verify_memory
from hardtack.codegen.schedule.lean_order import Job, order_of, peak

NATIVE = ("cpu:native",)


def job(reads: str, writes: str, barrier: bool = False) -> Job:
    return Job(frozenset(reads + writes), frozenset(writes), barrier)


def valid_orders(jobs: list[Job]) -> list[tuple[int, ...]]:
    """Every order in which of two jobs that touch a buffer, which one of them writes, the first stays the first."""
    pairs = [
        (i, j)
        for i, j in itertools.combinations(range(len(jobs)), 2)
        if jobs[i].barrier or jobs[j].barrier or jobs[i].writes & jobs[j].touches or jobs[j].writes & jobs[i].touches
    ]
    return [p for p in itertools.permutations(range(len(jobs))) if all(p.index(i) < p.index(j) for i, j in pairs)]


def drawn_jobs(seed: int) -> tuple[list[Job], dict[str, int]]:
    """Up to 7 jobs that write a buffer each and read some from before; some write another again, or are barriers."""
    rng = random.Random(seed)
    jobs: list[Job] = []
    names = "abcdefg"[: rng.randint(2, 7)]
    for k, name in enumerate(names):
        reads = "".join(rng.sample(names[:k], rng.randint(0, min(k, 2))))
        again = rng.choice(names[:k]) if k and rng.random() < 0.15 else ""
        jobs.append(job(reads, name + again, rng.random() < 0.1))
    return jobs, {n: rng.choice((1, 4, 16, 64)) for n in names if rng.random() < 0.9}


@pytest.mark.parametrize("seed", range(60))
def test_an_order_is_valid_and_not_far_from_the_best(seed: int) -> None:
    jobs, nbytes = drawn_jobs(seed)
    found = tuple(order_of(jobs, nbytes))
    orders = valid_orders(jobs)
    assert found in orders
    peaks = [peak(jobs, o, nbytes) for o in orders]
    assert min(peaks) <= peak(jobs, found, nbytes) <= peak(jobs, range(len(jobs)), nbytes)
    assert peak(jobs, found, nbytes) <= 1.5 * min(peaks)


def test_a_peak_is_what_is_alive_at_once() -> None:
    jobs = [job("", "a"), job("a", "b"), job("", "c"), job("bc", "d")]
    nbytes = {"a": 8, "b": 1, "c": 8, "d": 1}
    assert peak(jobs, (0, 1, 2, 3), nbytes) == 10
    assert peak(jobs, (0, 2, 1, 3), nbytes) == 17


@pytest.mark.parametrize("seed", range(40))
def test_a_lean_layout_is_sound_and_never_larger(seed: int) -> None:
    rng = random.Random(seed)
    items = []
    for k in range(rng.randint(1, 12)):
        first = rng.randint(0, 10)
        items.append(Item(f"v{k}", const(rng.randint(1, 40) * 64), first, first + rng.randint(0, 6)))

    def size(e: object) -> int:
        return int(str(e))

    plain, lean = plan_memory(items, size), plan_memory(items, size, lean=True)
    verify_memory(items, lean)
    assert size(lean.nbytes[0]) <= size(plain.nbytes[0])
    steps = {i.first for i in items}
    most = max(sum(size(i.nbytes) for i in items if i.first <= s <= i.last) for s in steps)
    assert sum(size(i.nbytes) for i in alive_at_peak(items, {})) == most


class Wide(nn.Module):
    """All wide values are made before the first is used up: products keep them apart from each other."""

    def __init__(self, count: int = 6, width: int = 64) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(width, 16 * width) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(16 * width, width) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        wide = [up(x) for up in self.up]
        return torch.stack([down(w.relu()) for down, w in zip(self.down, wide, strict=True)]).sum(0)


ROWS = Dim("rows", max=64)


def arena_nbytes(path: Path) -> int:
    _, most = hardtack.load(path).entries["forward"].arena_nbytes
    assert most is not None
    return most


def test_another_order_keeps_a_budget(tmp_path: Path) -> None:
    model, x, path = Wide().eval(), torch.randn(3, 64), tmp_path / "m.pkg"
    shapes = ({0: ROWS},)
    hardtack.export(model, (x,), path=path, dynamic_shapes=shapes, targets=NATIVE)
    free = arena_nbytes(path)
    wide = 64 * 16 * 64 * 4
    assert free > 5 * wide
    options = Options(memory_budget=3 * wide)
    hardtack.export(model, (x,), path=path, dynamic_shapes=shapes, targets=NATIVE, options=options)
    assert arena_nbytes(path) <= 3 * wide
    for rows in (1, 3, 64):
        x = torch.randn(rows, 64)
        torch.testing.assert_close(hardtack.load(path)(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_budget_that_is_kept_anyway_changes_nothing(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Softmax(-1)).eval(), torch.randn(3, 8)
    for name, budget in (("a.pkg", None), ("b.pkg", 1 << 20)):
        hardtack.export(model, (x,), path=tmp_path / name, targets=NATIVE, options=Options(memory_budget=budget))
    assert (tmp_path / "a.pkg").read_bytes() == (tmp_path / "b.pkg").read_bytes()


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    with pytest.raises(OverBudget) as caught:
        hardtack.export(
            Wide(2).eval(), (torch.randn(3, 64),), path=path, dynamic_shapes=({0: ROWS},), targets=NATIVE,
            options=Options(memory_budget=1000),
        )  # fmt: skip
    first, *lines = str(caught.value).splitlines()
    assert first.startswith('entry "forward" for cpu: the arena takes up to ')
    assert first.endswith(" bytes, and memory_budget is 1,000; most are alive at once of")
    assert "f32[64, 1024], 262,144 bytes, of " in lines[0]
    assert "test_memory_budget.py" in lines[0]
    assert not path.exists()


def test_sizes_without_a_bound_are_named(tmp_path: Path) -> None:
    with pytest.raises(OverBudget) as caught:
        hardtack.export(
            Wide(2).eval(), (torch.randn(3, 64),), path=tmp_path / "m.pkg", targets=NATIVE,
            dynamic_shapes=({0: Dim.DYNAMIC},), options=Options(memory_budget=1000),
        )  # fmt: skip
    assert str(caught.value) == (
        'entry "forward" for cpu: the arena has no bound, so memory_budget 1,000 cannot be kept: there is none for s0; '
        "declare one, as Dim(.., max=..)"
    )


def test_a_budget_is_a_number_of_bytes() -> None:
    with pytest.raises(ValueError, match=r"Options.memory_budget is -1; it is a number of bytes, or None"):
        Options(memory_budget=-1)
