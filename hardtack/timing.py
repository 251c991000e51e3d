"""Timing of candidates on a CUDA device, for hardtack tune. No torch is needed."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import hardtack
from hardtack import _native
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.tune.choice import key_of, shape_of
from hardtack.codegen.tune.trial import ROWS, Trial, make_trial, random_array
from hardtack.errors import HardtackError, InputError, RunError

HEATS = 2
ROUNDS = 5
"""Times that the candidates of a key are timed in turn: first all, then those that are within NEAR of the fastest."""
NEAR = 1.3
ROUND_SECONDS = 0.006
"""How long the replays of a candidate last in a round, about."""
COMPARED_NUMEL = 1 << 20
"""Elements of a result that are compared, of larger ones a sample."""
MOST_BROKEN = 3
"""Candidates of a key that may be given up before all that are left are."""
LIMIT_SECONDS = 30.0
"""After which a candidate that has not ended is given up, and its process with it."""
_BF16 = 16


@dataclass(frozen=True)
class Sample:
    """One candidate: `seconds` of a launch (of all kernels that the op needs), and the op's result, flat, in f64; or
    the `problem` that it had. broken: the problem may have taken the device's context with it."""

    seconds: float = 0.0
    result: np.ndarray[Any, Any] | None = None
    problem: str = ""
    broken: bool = False


Timer = Callable[[Trial, Sequence[Path]], Sequence[Sample]]
"""timer(trial, bundles): a sample for each bundle, which all have the trial's graph as their only entry point."""


@dataclass(frozen=True)
class DeviceTimer:
    """A Timer on a CUDA device: the trial's kernels as a CUDA graph, replayed back to back."""

    device: str
    cuda_driver: str | None = None

    def __call__(self, trial: Trial, bundles: Sequence[Path]) -> list[Sample]:
        return self.measure(trial, bundles, lambda k: None)

    def measure(self, trial: Trial, bundles: Sequence[Path], begins: Callable[[int], None]) -> list[Sample]:
        """A sample for each bundle. begins: told the number of a bundle before its kernels first run."""
        kinds = {name[0]: random_array(shape, dtype, ord(name[0])) for name, (shape, dtype) in trial.arrays.items()}
        arrays = {name: kinds[name[0]] for name in trial.arrays}  # every repetition has the same, in its own memory
        lanes: dict[int, _Lane] = {}
        samples: dict[int, Sample] = {}
        for k, path in enumerate(bundles):
            try:
                model = hardtack.load(path, self.device, cuda_driver=self.cuda_driver)
            except LoadError as error:
                samples[k] = Sample(problem=str(error).splitlines()[0])
                continue
            begins(k)
            try:
                samples[k] = Sample(result=_result(model, trial, arrays))
                lanes[k] = _Lane(model, trial, arrays)
            except (RunError, HardtackError, InputError) as error:
                samples[k] = Sample(problem=str(error).splitlines()[0], broken=True)
            except _native.NativeError as error:  # of the runs whose result has a place of its own
                samples[k] = Sample(problem=error.args[1].splitlines()[0], broken=True)
        for k, seconds in _timed_in_turn(lanes).items():
            samples[k] = replace(samples[k], seconds=seconds)
        return [samples[k] for k in range(len(bundles))]


def _timed_in_turn(lanes: Mapping[int, _Lane]) -> dict[int, float]:
    """Seconds of a launch in each lane, the median of its rounds."""
    rounds: dict[int, list[float]] = {k: [] for k in lanes}
    for _ in range(HEATS):
        for k, lane in lanes.items():
            rounds[k].append(lane.seconds())
    fastest = min((min(times) for times in rounds.values()), default=0.0)
    near = [k for k, times in rounds.items() if min(times) <= NEAR * fastest]
    for _ in range(ROUNDS):
        for k in near:
            rounds[k].append(lanes[k].seconds())
    return {k: statistics.median(times) for k, times in rounds.items()}


@dataclass(frozen=True)
class GuardedTimer:
    """A DeviceTimer in a process of its own: a kernel that does not end, or that breaks its context, costs its process
    and not the figures of the other candidates."""

    inner: DeviceTimer
    limit_s: float = LIMIT_SECONDS

    def __call__(self, trial: Trial, bundles: Sequence[Path]) -> list[Sample]:
        samples: dict[int, Sample] = {}
        left = list(range(len(bundles)))
        while left:
            taken, at = self._attempt(trial, [bundles[k] for k in left])
            if at is None:
                return [*map((samples | dict(zip(left, taken, strict=True))).__getitem__, range(len(bundles)))]
            samples[left.pop(at)] = taken[0]
            if len(samples) > MOST_BROKEN:
                samples |= {k: Sample(problem=f"{MOST_BROKEN} others had problems before it") for k in left}
                break
        return [samples[k] for k in range(len(bundles))]

    def _attempt(self, trial: Trial, bundles: Sequence[Path]) -> tuple[list[Sample], int | None]:
        """The samples of all; or that of the one to leave out, and which it is."""
        server = _servers.pop(self, None) or _Server(self.inner)
        at, taken = server.ask(key_of(trial.shape), bundles, self.limit_s)
        if isinstance(taken, str):
            server.kill()
            return [Sample(problem=taken)], at
        broken = next((k for k, sample in enumerate(taken) if sample.broken), None)
        if broken is not None:
            server.kill()
            return [taken[broken]], broken
        _servers[self] = server
        return taken, None


class _Server:
    """The process of a GuardedTimer."""

    def __init__(self, timer: DeviceTimer) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(timer.device, timer.cuda_driver, there), daemon=True)
        self._process.start()
        there.close()

    def ask(self, key: str, bundles: Sequence[Path], limit_s: float) -> tuple[int, list[Sample] | str]:
        """The samples, or what happened where the process was silent for too long or died; which bundle it was at."""
        at = 0
        try:
            self._here.send((key, list(bundles)))
            while self._here.poll(limit_s):
                said = self._here.recv()
                if isinstance(said, list):
                    return at, said
                at = said
        except (EOFError, OSError):
            return at, "the process that timed it died"
        return at, f"it did not end within {limit_s:g} s"

    def close(self) -> None:
        """Lets the process end."""
        with contextlib.suppress(OSError):
            self._here.send(None)
        self._process.join(10)

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()
        self._process.join()


_servers: dict[GuardedTimer, _Server] = {}
"""The processes that wait for more to time."""


@atexit.register
def close_servers() -> None:
    """Ends the processes of all GuardedTimers."""
    while _servers:
        _servers.popitem()[1].close()


def _serve(device: str, cuda_driver: str | None, there: Connection) -> None:
    """Answers a key and its bundles with their samples, until it is sent None or nobody is there any more."""
    timer = DeviceTimer(device, cuda_driver)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while (asked := there.recv()) is not None:
            key, bundles = asked
            there.send(timer.measure(make_trial(shape_of(key)), bundles, there.send))


def _leaves(trial: Trial) -> list[Any]:
    return [np.array(trial.hints[ROWS], np.int64)] if trial.hints else []


def _result(model: hardtack.Model, trial: Trial, arrays: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The first result, on the host, flat, in f64."""
    session = model.session(outputs="host", graphs=False)
    for name in trial.first:
        session.write_state(name, arrays[name])
    (spec,) = model.entries["trial"].outputs
    out = np.asarray(session(*_leaves(trial))).reshape(-1)
    out = out[:: -(-out.size // COMPARED_NUMEL) | 1]  # an odd step, so that it meets all columns
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
        self._outputs = self._session._native.run(0, self._leaves)
        for _ in range(3):  # the second run in the same place records the graph
            self._run()
        self._session.synchronize()
        self._replays = max(1, min(1000, round(ROUND_SECONDS / max(1e-6, self._timed(5)))))

    def _run(self) -> None:
        self._session._native.run(0, self._leaves, self._outputs)

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
