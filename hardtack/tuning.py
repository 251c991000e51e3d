"""hardtack tune: times the candidates of each key on a device and keeps the fastest in a table. No torch is needed.

How candidates are timed is a Timer, so that everything else can be run without a device.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import hardtack
from hardtack.codegen.backend import Backend, Rendered
from hardtack.codegen.backends.triton.compile import TritonError
from hardtack.codegen.build import Source, build_content
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.graph import Graph, Op, State, TensorType, make_attrs
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.machine import Gpu
from hardtack.codegen.notes import InternalError
from hardtack.codegen.package.content import Tree
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.writer import write_bundle
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.targets import GPU_TARGETS, backends_for
from hardtack.codegen.tune.candidates import Plan, candidates
from hardtack.codegen.tune.choice import KIND, family_of, plan_fields, plan_text, shape_of
from hardtack.codegen.tune.table import TableEntry, Tables, TuningTable
from hardtack.codegen.tune.trial import Trial, make_trial
from hardtack.generation import generation
from hardtack.timing import Sample, Timer

TOLERANCE: Mapping[DType, float] = {
    DType.F64: 1e-12,
    DType.F32: 1e-5,
    DType.F16: 4e-3,
    DType.BF16: 3e-2,
    DType.I8: 0.0,
    DType.F8E4M3: 1e-3,
    DType.F8E5M2: 1e-3,
}
"""||result - the cost model's result|| / ||the cost model's result|| above which a candidate is wrong."""


@dataclass(frozen=True)
class Timed:
    """A candidate of a key; seconds of a launch, or what was wrong with it."""

    plan: Plan
    seconds: float
    problem: str


@dataclass(frozen=True)
class Tuned:
    """What became of a key. timed: every candidate, the cost model's choice first; chosen: the fastest good one, None
    for a key that cannot be timed, for the `problem`."""

    key: str
    timed: tuple[Timed, ...] = ()
    chosen: Timed | None = None
    problem: str = ""


@dataclass(frozen=True)
class Prepared:
    """The bundles of a key's candidates in a folder, 0.pkg and so on, and the problems of those that are missing."""

    key: str
    trial: Trial
    plans: tuple[Plan, ...]
    problems: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class Tuner:
    """Makes the bundles of candidates and has them timed. target: such as "cuda:sm_90"; jobs: compilers at once."""

    target: str
    timer: Timer
    jobs: int = 1

    @property
    def machine(self) -> Gpu:
        return GPU_TARGETS[self.target]

    def backend(self, table: TuningTable | None = None) -> Backend:
        """What compiles for the target, with a table that comes before the one that is shipped."""
        (found,) = backends_for([self.target], Tables(table))
        return found

    def tune(self, key: str) -> Tuned:
        """Times the candidates of one key. What goes wrong with a candidate is told of it and excludes it."""
        with tempfile.TemporaryDirectory(prefix="hardtack_tune_") as folder:
            return self.timed(self.prepare(key, Path(folder), self.jobs))

    def prepare(self, key: str, folder: Path, jobs: int) -> Prepared | Tuned:
        """Compiles the candidates of a key; a Tuned that says why there are none. Any number of threads may do it."""
        shape = shape_of(key)
        plans = candidates(shape, self.machine)
        trial = make_trial(shape)
        built_key = self._key_of(trial)
        if built_key is None or family_of(shape_of(built_key)) != family_of(shape):
            return Tuned(key, problem="the op on its own has another kernel")
        tables = [TuningTable(self.machine.name, "", {built_key: TableEntry(plan_fields(p), 0)}) for p in plans]
        self._compile(trial, tables, jobs)
        problems = [self._build(trial, t, folder / f"{k}.pkg") for k, t in enumerate(tables)]
        return Prepared(key, trial, plans, tuple(problems), folder)

    def timed(self, made: Prepared | Tuned) -> Tuned:
        """Times what was prepared."""
        if isinstance(made, Tuned):
            return made
        good = [k for k, problem in enumerate(made.problems) if not problem]
        taken = self.timer(made.trial, [made.folder / f"{k}.pkg" for k in good])
        samples = dict(zip(good, taken, strict=True))
        every = [samples.get(k, Sample(problem=made.problems[k])) for k in range(len(made.plans))]
        return judged(made.key, made.plans, every, TOLERANCE[made.trial.shape.dtype])

    def _compile(self, trial: Trial, tables: Sequence[TuningTable], jobs: int) -> None:
        """The kernels of all candidates into the cache, by workers that are started once. What does not compile is told
        where its bundle is built."""
        kernels: dict[str, Rendered] = {}
        for table in tables:
            with generation():
                kernels |= compile_entry(trial.graph, trial.hints, self.backend(table)).kernels
        with contextlib.suppress(TritonError), generation():
            self.backend().compile(kernels, self.machine, cache=KernelCache(), jobs=jobs)

    def _key_of(self, trial: Trial) -> str | None:
        """The key that the trial's graph has in the pipeline: sizes are known there that may vary in a model."""
        with generation():
            decisions = compile_entry(trial.graph, trial.hints, self.backend()).decisions
        keys = {d.subject for d in decisions if d.kind == KIND}
        return keys.pop() if len(keys) == 1 else None

    def _build(self, trial: Trial, table: TuningTable, path: Path) -> str:
        """Writes a bundle with the table's plan; gives the problem of a kernel that does not compile."""
        source = Source(trial.graph, in_tree(len(trial.graph.inputs)), {"kind": "leaf", "index": 0}, trial.hints)
        try:
            with generation():
                built = build_content({"trial": source}, trial.store, [self.backend(table)], jobs=1)
        except TritonError as error:
            return str(error).splitlines()[-1]
        refused = [d for d in built.decisions if d.kind == KIND and not d.accepted]
        if refused:
            return f"the plan is not taken: {refused[0].reason}"
        write_bundle(path, built.content)
        return ""


def in_tree(num_inputs: int) -> Tree:
    """The pytree of a call with so many tensors."""
    leaves = [{"kind": "leaf", "index": k} for k in range(num_inputs)]
    no_kwargs: Tree = {"kind": "dict", "keys": [], "items": []}
    return {"kind": "tuple", "items": [{"kind": "tuple", "items": leaves}, no_kwargs]}


def judged(key: str, plans: Sequence[Plan], samples: Sequence[Sample], tolerance: float, margin: float = 0.0) -> Tuned:
    """The fastest of the candidates whose results are those of the first; of equally fast ones the earliest. margin:
    by which share of its time the first must be beaten."""
    want = samples[0].result
    timed = [Timed(plans[0], samples[0].seconds, samples[0].problem)]
    if want is None:
        return Tuned(key, tuple(timed), problem=f"the cost model's choice cannot be timed: {samples[0].problem}")
    for plan, sample in zip(plans[1:], samples[1:], strict=True):
        problem = sample.problem
        if not problem:
            assert sample.result is not None
            off = _error(sample.result, want)
            if not off <= tolerance:
                problem = f"its result is {off:.1e} off the cost model's choice, allowed are {tolerance:.0e}"
        timed.append(Timed(plan, sample.seconds, problem))
    fastest = min((t for t in timed if not t.problem), key=lambda t: t.seconds)
    beaten = fastest.seconds < (1 - margin) * timed[0].seconds
    return Tuned(key, tuple(timed), fastest if beaten or margin == 0 else timed[0])


def _error(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> float:
    """||got - want|| / ||want||; infinite where they are not finite in the same places."""
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return float("inf")
    finite = np.isfinite(want)
    norm = float(np.linalg.norm(want[finite]))
    off = float(np.linalg.norm(got[finite] - want[finite]))
    return off / norm if norm > 0 else off


class AnyTuner(Protocol):
    """Times keys. jobs: how many keys are prepared at once, ahead of their turn."""

    @property
    def jobs(self) -> int: ...

    def prepare(self, key: str, folder: Path, jobs: int) -> Any: ...

    def timed(self, made: Any) -> Tuned: ...


def tune(
    keys: Sequence[str],
    tuner: AnyTuner,
    table: TuningTable,
    *,
    again: bool = False,
    budget_s: float | None = None,
    keep: Callable[[TuningTable, Tuned], None] = lambda table, tuned: None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[TuningTable, list[Tuned], list[str]]:
    """The table with an entry for every key that could be timed; what was timed; the keys left when time ran out.

    Keys are timed in the order given, while the tuner's threads compile those that come next. again: time keys that
    the table has, too. budget_s: seconds after which no further key is begun. keep: gets the table after each key, and
    what became of that key.
    """
    todo = [k for k in keys if again or k not in table.entries]
    begin, done = time.monotonic(), list[Tuned]()
    with tempfile.TemporaryDirectory(prefix="hardtack_tune_") as home, ThreadPoolExecutor(tuner.jobs) as pool:

        def prepare(k: int) -> Any:
            folder = Path(home) / str(k)
            folder.mkdir()
            return tuner.prepare(todo[k], folder, 1 if len(todo) >= tuner.jobs else tuner.jobs // len(todo))

        ahead = deque[Future[Any]]()
        for k, key in enumerate(todo):
            progress("tune", k, len(todo))
            if budget_s is not None and time.monotonic() - begin >= budget_s:
                pool.shutdown(cancel_futures=True)
                return table, done, todo[k:]
            while len(ahead) < 2 * tuner.jobs and k + len(ahead) < len(todo):
                ahead.append(pool.submit(prepare, k + len(ahead)))
            tuned = _outcome(tuner, key, ahead.popleft())
            shutil.rmtree(Path(home) / str(k))
            done.append(tuned)
            if tuned.chosen is not None:
                entry = TableEntry(plan_fields(tuned.chosen.plan), round(tuned.chosen.seconds * 1e9))
                table = replace(table, entries={**table.entries, key: entry})
            keep(table, tuned)
    progress("tune", len(todo), len(todo))
    return table, done, []


def _outcome(tuner: AnyTuner, key: str, made: Future[Any]) -> Tuned:
    """What became of a key; whatever goes wrong with it is no reason to leave the others."""
    try:
        return tuner.timed(made.result())
    except InternalError as error:
        told = "; ".join(line.strip() for line in error.what.splitlines())
        return Tuned(key, problem=f"{told}; this is a bug of Hardtack, please report it")
    except Exception as error:
        return Tuned(key, problem=f"{type(error).__name__}: {error}")


def device_target(device: str, wanted: str | None, cuda_driver: str | None = None) -> str:
    """The target that a device runs, `wanted` if given. Raises LoadError where there is no device, or another one."""
    kind = device.partition(":")[0]
    targets = [wanted] if wanted is not None else [t for t in GPU_TARGETS if t.startswith(f"{kind}:")]
    one = TensorType(DType.F32, (const(1),))
    double = Op("add", ("x", "x"), make_attrs(), ("y",))
    graph = Graph("probe", (), ("y",), ("y",), (), (State("x", None, None),), (double,), (), (), {"x": one, "y": one})
    source = Source(graph, in_tree(0), {"kind": "leaf", "index": 0})
    with tempfile.TemporaryDirectory(prefix="hardtack_tune_") as folder:
        path = Path(folder) / "probe.pkg"
        with generation():
            write_bundle(path, build_content({"probe": source}, ConstantStore(), backends_for(targets)).content)
        try:
            return hardtack.load(path, device, cuda_driver=cuda_driver).target
        except LoadError as error:
            raise LoadError(str(error).removeprefix(f"{path}: "), f"device {device}") from None


def as_document(tuned: Tuned) -> dict[str, object]:
    """A key's outcome for JSON; times in microseconds of one launch, `before` of the cost model's choice."""
    chosen = tuned.chosen
    return {
        "key": tuned.key,
        "chosen": plan_text(chosen.plan) if chosen is not None else None,
        "before_us": tuned.timed[0].seconds * 1e6 if chosen is not None else None,
        "after_us": chosen.seconds * 1e6 if chosen is not None else None,
        "problem": tuned.problem,
        "candidates": [
            {"plan": plan_text(t.plan), "us": None if t.problem else t.seconds * 1e6, "problem": t.problem}
            for t in tuned.timed
        ],
    }
