"""hardtack tune: times the candidates of each key on a device and keeps the fastest in a table. No torch is needed.

How candidates are timed is a Timer, so that everything else can be run without a device.
"""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import hardtack
from hardtack import _native
from hardtack.codegen.backends.triton.compile import ARCHITECTURES, TritonError
from hardtack.codegen.build import Source, build_content
from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.graph import Graph, Op, State, TensorType, make_attrs
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.content import Tree
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.writer import write_bundle
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.targets import parse_targets
from hardtack.codegen.tune.candidates import Plan, candidates
from hardtack.codegen.tune.choice import KIND, plan_fields, plan_text, shape_of
from hardtack.codegen.tune.table import TableEntry, TuningTable
from hardtack.codegen.tune.trial import ROWS, Trial, make_trial, random_array
from hardtack.errors import HardtackError, RunError

ROUNDS = 7
"""Times that the candidates of a key are timed in turn; a figure is the median."""
ROUND_SECONDS = 0.01
"""How long the replays of a candidate last in a round, about."""
TOLERANCE: Mapping[DType, float] = {DType.F64: 1e-12, DType.F32: 1e-5, DType.F16: 4e-3, DType.BF16: 3e-2}
"""||result - the cost model's result|| / ||the cost model's result|| above which a candidate is wrong."""
_BF16 = 16


@dataclass(frozen=True)
class Sample:
    """One candidate: `seconds` of a launch (of all kernels that the op needs), and the op's result, flat, in f64; or
    the `problem` that it had."""

    seconds: float = 0.0
    result: np.ndarray[Any, Any] | None = None
    problem: str = ""


Timer = Callable[[Trial, Sequence[Path]], Sequence[Sample]]
"""timer(trial, bundles): a sample for each bundle, which all have the trial's graph as their only entry point."""


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
class Tuner:
    """Makes the bundles of candidates and has them timed. target: such as "cuda:sm_90"; jobs: compilers at once."""

    target: str
    timer: Timer
    jobs: int = 1

    @property
    def arch(self) -> str:
        return self.target.removeprefix("cuda:")

    def tune(self, key: str) -> Tuned:
        """Times the candidates of one key. What goes wrong with a candidate is told of it and excludes it."""
        shape = shape_of(key)
        plans = candidates(shape, self.arch)
        trial = make_trial(shape)
        built_key = self._key_of(trial)
        if built_key is None:
            return Tuned(key, problem="the op has no template kernel on its own")
        with tempfile.TemporaryDirectory(prefix="hardtack_tune_") as folder:

            def build(k: int) -> str:
                forced = TuningTable(self.arch, "", {built_key: TableEntry(plan_fields(plans[k]), 0)})
                return self._build(trial, forced, Path(folder) / f"{k}.pkg")

            with ThreadPoolExecutor(self.jobs) as pool:
                problems = list(pool.map(build, range(len(plans))))
            good = [k for k, problem in enumerate(problems) if not problem]
            samples = dict(zip(good, self.timer(trial, [Path(folder) / f"{k}.pkg" for k in good]), strict=True))
        every = [samples.get(k, Sample(problem=problems[k])) for k in range(len(plans))]
        return _judged(key, plans, every, TOLERANCE[shape.dtype])

    def _key_of(self, trial: Trial) -> str | None:
        """The key that the trial's graph has in the pipeline: sizes are known there that may vary in a model."""
        (backend,) = parse_targets([self.target]).backends().values()
        decisions = compile_entry(trial.graph, trial.hints, backend).decisions
        keys = {d.subject for d in decisions if d.kind == KIND}
        return keys.pop() if len(keys) == 1 else None

    def _build(self, trial: Trial, table: TuningTable, path: Path) -> str:
        """Writes a bundle with the table's plan; gives the problem of a kernel that does not compile."""
        source = Source(trial.graph, _in_tree(len(trial.graph.inputs)), {"kind": "leaf", "index": 0}, trial.hints)
        try:
            built = build_content({"trial": source}, trial.store, [self.target], jobs=1, tuning=table)
        except TritonError as error:
            return str(error).splitlines()[-1]
        refused = [d for d in built.decisions if d.kind == KIND and not d.accepted]
        assert not refused, refused[0]
        write_bundle(path, built.content)
        return ""


def _in_tree(num_inputs: int) -> Tree:
    leaves = [{"kind": "leaf", "index": k} for k in range(num_inputs)]
    no_kwargs: Tree = {"kind": "dict", "keys": [], "items": []}
    return {"kind": "tuple", "items": [{"kind": "tuple", "items": leaves}, no_kwargs]}


def _judged(key: str, plans: Sequence[Plan], samples: Sequence[Sample], tolerance: float) -> Tuned:
    """The fastest of the candidates whose results are those of the first; of equally fast ones the earliest."""
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
    return Tuned(key, tuple(timed), min((t for t in timed if not t.problem), key=lambda t: t.seconds))


def _error(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> float:
    """||got - want|| / ||want||; infinite where they are not finite in the same places."""
    if not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return float("inf")
    finite = np.isfinite(want)
    norm = float(np.linalg.norm(want[finite]))
    off = float(np.linalg.norm(got[finite] - want[finite]))
    return off / norm if norm > 0 else off


def tune(
    keys: Sequence[str],
    tuner: Tuner,
    table: TuningTable,
    *,
    again: bool = False,
    budget_s: float | None = None,
    keep: Callable[[TuningTable], None] = lambda table: None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> tuple[TuningTable, list[Tuned], list[str]]:
    """The table with an entry for every key that could be timed; what was timed; the keys left when time ran out.

    again: time keys that the table has, too. budget_s: seconds after which no further key is begun. keep: gets the
    table after each key.
    """
    todo = [k for k in keys if again or k not in table.entries]
    begin, done = time.monotonic(), list[Tuned]()
    for k, key in enumerate(todo):
        progress("tune", k, len(todo))
        if budget_s is not None and time.monotonic() - begin >= budget_s:
            return table, done, todo[k:]
        tuned = tuner.tune(key)
        done.append(tuned)
        if tuned.chosen is not None:
            entry = TableEntry(plan_fields(tuned.chosen.plan), round(tuned.chosen.seconds * 1e9))
            table = replace(table, entries={**table.entries, key: entry})
            keep(table)
    progress("tune", len(todo), len(todo))
    return table, done, []


def device_target(device: str, wanted: str | None, cuda_driver: str | None = None) -> str:
    """The target that a device runs, `wanted` if given. Raises LoadError where there is no device, or another one."""
    targets = [wanted] if wanted is not None else [f"cuda:{arch}" for arch in ARCHITECTURES]
    one = TensorType(DType.F32, (const(1),))
    double = Op("add", ("x", "x"), make_attrs(), ("y",))
    graph = Graph("probe", (), ("y",), ("y",), (), (State("x", None, None),), (double,), (), (), {"x": one, "y": one})
    source = Source(graph, _in_tree(0), {"kind": "leaf", "index": 0})
    with tempfile.TemporaryDirectory(prefix="hardtack_tune_") as folder:
        path = Path(folder) / "probe.pkg"
        write_bundle(path, build_content({"probe": source}, ConstantStore(), targets).content)
        try:
            return hardtack.load(path, device, cuda_driver=cuda_driver).target
        except LoadError as error:
            raise LoadError(str(error).removeprefix(f"{path}: "), f"device {device}") from None


@dataclass(frozen=True)
class DeviceTimer:
    """A Timer on a CUDA device: the trial's kernels as a CUDA graph, replayed back to back."""

    device: str
    cuda_driver: str | None = None

    def __call__(self, trial: Trial, bundles: Sequence[Path]) -> list[Sample]:
        kinds = {name[0]: random_array(shape, dtype, ord(name[0])) for name, (shape, dtype) in trial.arrays.items()}
        arrays = {name: kinds[name[0]] for name in trial.arrays}  # every repetition has the same, in its own memory
        lanes: dict[int, _Lane] = {}
        samples: dict[int, Sample] = {}
        for k, path in enumerate(bundles):
            try:
                model = hardtack.load(path, self.device, cuda_driver=self.cuda_driver)
                samples[k] = Sample(result=_result(model, trial, arrays))
                lanes[k] = _Lane(model, trial, arrays)
            except (LoadError, RunError, HardtackError) as error:
                samples[k] = Sample(problem=str(error).splitlines()[0])
            except _native.NativeError as error:  # of the runs whose result has a place of its own
                samples[k] = Sample(problem=error.args[1].splitlines()[0])
        rounds: dict[int, list[float]] = {k: [] for k in lanes}
        for _ in range(ROUNDS):
            for k, lane in lanes.items():
                rounds[k].append(lane.seconds())
        for k, times in rounds.items():
            samples[k] = replace(samples[k], seconds=statistics.median(times))
        return [samples[k] for k in range(len(bundles))]


def _leaves(trial: Trial) -> list[Any]:
    return [np.array(trial.hints[ROWS], np.int64)] if trial.hints else []


def _result(model: hardtack.Model, trial: Trial, arrays: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The first result, on the host, flat, in f64."""
    session = model.session(outputs="host", graphs=False)
    for name in trial.first:
        session.write_state(name, arrays[name])
    (spec,) = model.entries["trial"].outputs
    out = np.asarray(session(*_leaves(trial))).reshape(-1)
    if spec.dtype == "bf16":
        out = (out.astype(np.uint32) << _BF16).view(np.float32)
    return out.astype(np.float64)


class _Lane:
    """A candidate ready to be replayed, its result in the same memory each time, so that its graph is found again."""

    def __init__(self, model: hardtack.Model, trial: Trial, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._session = model.session(outputs="device", asynchronous=True)
        for name, array in arrays.items():
            self._session.write_state(name, array)
        self._leaves = _leaves(trial)
        self._repeats = trial.repeats
        (self._output,) = self._session._native.run(0, self._leaves, False, None)
        self._place = _Place(_address(self._output))
        for _ in range(3):  # the second run in the same place records the graph
            self._run()
        self._session.synchronize()
        self._replays = max(1, min(1000, round(ROUND_SECONDS / max(1e-6, self._timed(5)))))

    def _run(self) -> None:
        self._session._native.run(0, self._leaves, False, lambda shape, strides, dtype: self._place)

    def _timed(self, replays: int) -> float:
        """Seconds of one replay."""
        begin = time.perf_counter()
        for _ in range(replays):
            self._run()
        self._session.synchronize()
        return (time.perf_counter() - begin) / replays

    def seconds(self) -> float:
        """Seconds of one of the launches in the graph."""
        return self._timed(self._replays) / self._repeats


class _Place:
    """Memory for a result, as Session wants it from an allocator."""

    def __init__(self, address: int) -> None:
        self._address = address

    def data_ptr(self) -> int:
        """Its device address."""
        return self._address


def _address(tensor: Any) -> int:
    """Where a tensor of the device lies: a DLPack capsule begins with the address."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = tensor.__dlpack__()
    return ctypes.c_void_p.from_address(get(capsule, b"dltensor")).value or 0


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
