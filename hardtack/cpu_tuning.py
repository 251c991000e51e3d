"""hardtack tune on a CPU: all candidates of a key as entry points of one bundle, in one library, timed in turn."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import hardtack
from hardtack.codegen.backend import Backend
from hardtack.codegen.build import Source, build_content
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu, TargetError
from hardtack.codegen.package.writer import write_bundle
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.targets import backends_for, parse_targets
from hardtack.codegen.tune.candidates import Plan, candidates
from hardtack.codegen.tune.choice import KIND, Tuning, key_of, plan_fields, shape_of
from hardtack.codegen.tune.table import TableEntry, TuningTable
from hardtack.codegen.tune.trial import Trial, make_trial, random_array
from hardtack.generation import generation
from hardtack.runtime import Session
from hardtack.timing import COMPARED_NUMEL, Sample
from hardtack.tuning import TOLERANCE, Tuned, in_tree, judged

ROUNDS = 9
ROUND_SECONDS = 0.012
"""How long the runs of a candidate last in a round, about."""
MARGIN = 0.02
"""By how much a candidate must be faster than the cost model's choice: less is noise."""

Timer = Callable[[Trial, Path, Sequence[str], Sequence[int]], Sequence[Sample]]
"""timer(trial, bundle, entry points, numbers of threads): a sample for each entry point."""


def tuned_cpu(target: str) -> Cpu:
    """The CPU that a target names, which this machine can run. Raises TargetError where it is no single one, or another
    than this machine's."""
    try:
        machines = parse_targets([target])
    except TargetError as error:
        raise TargetError(f"cannot tune: {error}") from None
    if len(machines) != 1:
        named = ", ".join(m.target for m in machines)
        raise TargetError(f"cannot tune for target {target!r}: it stands for {named}; name one, or cpu:native")
    (cpu,) = machines
    assert isinstance(cpu, Cpu)
    here = native_cpu()
    if cpu.arch != here.arch:
        raise TargetError(f"cannot tune for target {target!r}: this machine is {here.arch}")
    lacking = [name for name in cpu.features if name not in here.features]
    if lacking:
        raise TargetError(f"cannot tune for target {target!r}: this machine's CPU lacks {', '.join(lacking)}")
    return cpu


@dataclass(frozen=True)
class CpuTuner:
    """Times keys on this machine. threads: how many run a kernel; with each of them every candidate is timed, and the
    geometric mean counts. jobs: compilers at once; nothing is compiled while candidates are timed."""

    target: str
    threads: tuple[int, ...]
    timer: Timer
    compilers: int = 1
    jobs: int = 1

    @property
    def backend(self) -> Backend:
        """What compiles for the target."""
        (found,) = backends_for([self.target])
        return found

    def prepare(self, key: str, folder: Path, jobs: int) -> str:
        """Nothing: compiling would disturb the timing of the key before."""
        return key

    def timed(self, key: str) -> Tuned:
        """Compiles and times the candidates of a key."""
        shape = shape_of(key)
        trial, machine = make_trial(shape), self.backend.machines[0]
        with generation():
            decisions = compile_entry(trial.graph, trial.hints, self.backend).decisions
        if {d.subject for d in decisions if d.kind == KIND} != {key}:
            return Tuned(key, problem="the op on its own has another kernel")
        plans = candidates(shape, machine)
        with tempfile.TemporaryDirectory(prefix="hardtack_tune_") as folder:
            path = Path(folder) / "trial.pkg"
            names = self._build(trial, plans, path)
            samples = self.timer(trial, path, names, self.threads)
        return judged(key, plans, samples, TOLERANCE[shape.dtype], MARGIN)

    def _build(self, trial: Trial, plans: Sequence[Plan], path: Path) -> list[str]:
        """Writes a bundle with an entry point for each plan; gives their names. Weights are stored once."""
        key, leaf = key_of(trial.shape), {"kind": "leaf", "index": 0}
        sources = {}
        for k, plan in enumerate(plans):
            table = TuningTable("", "", {key: TableEntry(plan_fields(plan), 0)})
            tuning = Tuning((("user", table),))
            graph = replace(trial.graph, name=f"c{k}")
            sources[graph.name] = Source(graph, in_tree(len(graph.inputs)), leaf, trial.hints, tuning)
        with generation():
            built = build_content(sources, trial.store, [self.backend], jobs=self.compilers)
        write_bundle(path, built.content)
        return list(sources)


def time_entries(trial: Trial, bundle: Path, names: Sequence[str], threads: Sequence[int]) -> list[Sample]:
    """A Timer on this machine: the entry points in turn, on the same operands; the median of the rounds for each number
    of threads, and their geometric mean."""
    results: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []
    seconds: list[list[float]] = [[] for _ in names]
    for count in threads:
        model = hardtack.load(bundle, threads=count)
        session = model.session(names[0])
        for name, (shape, dtype) in trial.arrays.items():
            session.write_state(name, random_array(shape, dtype, ord(name[0])))
        if not results:
            halves = model.entries[names[0]].outputs[0].dtype == "bf16"
            results = [_numbers(session.run(name), halves) for name in names]
        for k, median in enumerate(_medians(session, names)):
            seconds[k].append(median / trial.repeats)
    means = [math.prod(found) ** (1 / len(found)) for found in seconds]
    return [Sample(mean, result) for mean, result in zip(means, results, strict=True)]


def _numbers(out: object, halves: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """A result, flat, in f64; of a large one a sample."""
    flat = np.asarray(out).reshape(-1)
    flat = flat[:: -(-flat.size // COMPARED_NUMEL) | 1]  # an odd step, so that it meets all columns
    if halves:
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    return flat.astype(np.float64)


def _medians(session: Session, names: Sequence[str]) -> list[float]:
    """Seconds of a run of each entry point: each round begins with another one."""
    once = min(_run(session, names[0], 1) for _ in range(3))
    runs = max(1, round(ROUND_SECONDS / max(1e-7, once)))
    taken: list[list[float]] = [[] for _ in names]
    for turn in range(ROUNDS):
        for k in range(len(names)):
            at = (turn + k) % len(names)
            taken[at].append(_run(session, names[at], runs))
    return [statistics.median(t) for t in taken]


def _run(session: Session, name: str, runs: int) -> float:
    begin = time.perf_counter()
    for _ in range(runs):
        session.run(name)
    return (time.perf_counter() - begin) / runs
