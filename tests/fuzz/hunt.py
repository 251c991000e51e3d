"""Many programs: drawn and checked in children, some to a file; what dies is run again alone."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch

import hardtack.api  # noqa: F401  # before children are forked, so that none imports it again
from tests.fuzz.capture import captured
from tests.fuzz.cases import case
from tests.fuzz.children import Ended, Pool, Send
from tests.fuzz.outcome import Outcome
from tests.fuzz.program import Program
from tests.fuzz.ways import Way

Draw = Callable[[int], Program]


@dataclass(frozen=True)
class Started:
    """Sent by a child when it takes up a program, so that a death has a name."""

    seed: int


def way_named(name: str) -> Way:
    """The way of running called `name`; what it needs is imported now."""
    if name == "graph":
        from tests.fuzz.graph_way import check_graphs

        return check_graphs
    if name == "interpreter":
        from tests.fuzz.interpreter_way import check_interpreted

        return check_interpreted
    if name == "cuda":
        from tests.fuzz.bundle_cuda import check_on_cuda

        return check_on_cuda
    from tests.fuzz.bundle_cpu import check_on_cpu

    return check_on_cpu


@cache
def import_all() -> None:
    """Exports a small model, once: torch imports 800 modules then, which each child of this process has from now on.
    Where a fault put in on purpose lets no model through, it is for the programs to find. With a torch for CUDA an
    export asks for devices, and no child could use them then."""
    if torch.version.cuda is not None:
        return
    with suppress(Exception):
        captured(case("x0[5,n] : x0 * 2"))


def checking(way: Way, draw: Draw) -> Callable[[Sequence[int], Send], None]:
    """The work of a child: draws the programs of some seeds and checks them together."""

    def work(seeds: Sequence[int], send: Send) -> None:
        warnings.filterwarnings("ignore")
        programs = []
        for seed in seeds:
            send(Started(seed))
            programs.append(draw(seed))
        way(programs, send)

    return work


class Hunt:
    """Runs seeds through a way. `on_outcome` is called once for each seed."""

    def __init__(
        self, way: Way, draw: Draw, *, jobs: int, seconds: float, on_outcome: Callable[[Outcome], None]
    ) -> None:
        import_all()
        self._pool = Pool(checking(way, draw), jobs, seconds)
        self._on_outcome = on_outcome
        self._done: set[int] = set()
        self._broken: dict[int, _Broken] = {}

    def run(self, seeds: Iterable[int], together: int, minutes: float | None = None) -> None:
        """`together`: programs in a file. minutes: after which no other is begun."""
        listed = list(seeds)
        self._pool.add(tuple(listed[k : k + together]) for k in range(0, len(listed), together))
        self._pool.run(self._ended, None if minutes is None else time.monotonic() + 60 * minutes, self._sent)

    def stop(self) -> None:
        """Begins no other program; those of a file that died are still told apart."""
        self._pool.stop()

    def _sent(self, found: Any) -> None:
        if isinstance(found, Outcome) and found.seed not in self._done:
            self._finish(found)

    def _ended(self, ended: Ended) -> None:
        seeds: tuple[int, ...] = ended.task
        left = [s for s in seeds if s not in self._done]
        if not left:
            return
        if len(seeds) > 1:
            broken = _Broken(seeds, ended.how, set(left))
            self._broken.update(dict.fromkeys(left, broken))
            self._pool.add(((s,) for s in left), first=True)
            return
        kind = "hang" if ended.how == "hang" else "crash"
        self._finish(Outcome(left[0], kind, ended.how or "ended without a word", way="its process"))

    def _finish(self, found: Outcome) -> None:
        """Where a file killed its process and each of its programs is right alone, the last of them stands for it."""
        self._done.add(found.seed)
        broken = self._broken.pop(found.seed, None)
        if broken is not None:
            broken.left.discard(found.seed)
            broken.explained |= found.failed
            if not broken.left and not broken.explained:
                kind = "hang" if broken.how == "hang" else "crash"
                text = f"{broken.how} in a file with the others, right alone"
                found = replace(found, kind=kind, text=text, bundle=broken.seeds)
        self._on_outcome(found)


@dataclass
class _Broken:
    """A group whose child died; its programs are run alone. left: those still to come."""

    seeds: tuple[int, ...]
    how: str
    left: set[int]
    explained: bool = False


def outcomes(way: Way, programs: Sequence[Program], *, seconds: float) -> list[Outcome]:
    """One child for all the programs; a program without an Outcome of its own has crashed or hung."""
    found: list[Outcome] = []

    def work(task: Any, send: Send) -> None:
        warnings.filterwarnings("ignore")
        way(programs, send)

    def on_end(ended: Ended) -> None:
        got = {o.seed: o for o in ended.sent if isinstance(o, Outcome)}
        kind = "hang" if ended.how == "hang" else "crash"
        found.extend(got.get(p.seed) or Outcome(p.seed, kind, ended.how, way="its process") for p in programs)

    import_all()
    pool = Pool(work, 1, seconds)
    pool.add([None])
    pool.run(on_end)
    return found
