"""A process of its own for one model and one system, so that no system's threads or memory disturb another's."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.systems import Run

if TYPE_CHECKING:
    from bench.models import Case
    from bench.systems import System
    from bench.work import Work

Outputs = list[np.ndarray[Any, Any]]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["bench.worker", "bench.systems"])


class Failed(Exception):
    """A system cannot do a model; the message is the reason."""


@dataclass(frozen=True)
class Prepared:
    """A model made ready.

    export_seconds: None where nothing was exported or an earlier file served. shapes, work: of a System.
    """

    outputs: Outputs
    export_seconds: float | None
    first_ms: float
    shapes: tuple[int, int] | None = None
    work: Work | None = None


class Worker:
    """The parent's side. Raises Failed when the process cannot do what it is asked, or dies, or takes too long."""

    def __init__(
        self, model: str, system: str, folder: Path, timeout_s: float, gpu: bool = False, dtype: str = "float32",
    ) -> None:  # fmt: skip
        self.system = system
        self._timeout_s = timeout_s
        self._pipe, theirs = _CONTEXT.Pipe()
        made = (theirs, model, system, folder, gpu, dtype)
        self._process = _CONTEXT.Process(target=serve, args=made, daemon=False)
        self._process.start()
        theirs.close()

    def prepare(self, threads: int) -> Prepared:
        """Exports or compiles the model for `threads` threads and runs it once."""
        made = self._ask(("prepare", threads))
        assert isinstance(made, Prepared)
        return made

    def round(self, seconds: float, realtime: bool) -> tuple[float, float]:
        """Median and smallest milliseconds of the calls that fit into about `seconds`, at least 3.

        realtime: before everything else that wants to run on this machine.
        """
        middle, smallest = self._ask(("round", (seconds, realtime)))
        return middle, smallest

    def hang_up(self) -> None:
        """Tells the process to end; `close` waits for it."""
        self._pipe.close()

    def close(self) -> None:
        self.hang_up()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ask(self, message: tuple[Any, ...]) -> Any:
        try:
            self._pipe.send(message)
            if not self._pipe.poll(self._timeout_s):
                raise Failed(f"no answer to {message[0]} within {self._timeout_s:.0f} s")
            kind, answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join(5)
            raise Failed(f"the process died with exit code {self._process.exitcode}") from None
        if kind == "failed":
            raise Failed(answer)
        return answer


def serve(pipe: Connection, model: str, system: str, folder: Path, gpu: bool, dtype: str) -> None:
    """The process's side: answers until the parent closes the pipe. What libraries print goes to a log file."""
    log = os.open(folder / f"{model}.{system}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        server: _Server | None = None
        while True:
            order, value = pipe.recv()
            try:
                server = server or (_GpuServer if gpu else _Server)(model, system, folder, dtype)
                pipe.send(("done", server.prepare(value) if order == "prepare" else server.round(*value)))
            except Exception as error:
                traceback.print_exc()
                pipe.send(("failed", f"{type(error).__name__}: {first_line(error)}"))
    except (EOFError, OSError):
        pass


def first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else ""


class _Server:
    def __init__(self, model: str, system: str, folder: Path, dtype: str) -> None:
        import torch

        torch.set_grad_enabled(False)
        self._case, self._system = self._made(model, system, folder, dtype)
        self._run: Run | None = None

    @staticmethod
    def _made(model: str, system: str, folder: Path, dtype: str) -> tuple[Case, System]:
        import torch

        from bench.models import build
        from bench.systems import SYSTEMS

        return build(model, getattr(torch, dtype)), SYSTEMS[system](folder)

    def prepare(self, threads: int) -> Prepared:
        self._run = self._system.prepare(self._case, threads)
        begin = time.perf_counter()
        outputs = self._run()
        first_ms = (time.perf_counter() - begin) * 1e3
        gc.collect()
        gc.freeze()
        return Prepared(
            as_arrays(outputs), self._system.export_seconds, first_ms, self._system.shapes, self._system.work
        )

    def round(self, seconds: float, realtime: bool) -> tuple[float, float]:
        assert self._run is not None
        with realtime_threads() if realtime else nullcontext():
            times = timed(self._run, seconds)
        return median(times), min(times)


class _GpuServer(_Server):
    """The same on a GPU: a call counts until the device is done."""

    @staticmethod
    def _made(model: str, system: str, folder: Path, dtype: str) -> tuple[Case, System]:
        """A model of the GPU's sets has a dtype of its own."""
        from bench.gpu_others import build_any
        from bench.gpu_systems import SYSTEMS

        return build_any(model), SYSTEMS[system](folder)

    def round(self, seconds: float, realtime: bool) -> tuple[float, float]:
        """Milliseconds a run: the median of runs that are waited for, and the mean of runs one behind the other."""
        import torch

        run = self._run
        assert run is not None

        def waited() -> None:
            run()
            torch.cuda.synchronize()

        times = timed(waited, seconds / 2)
        count = max(10, min(1000, int(seconds * 500 / median(times))))
        begin = time.perf_counter()
        for _ in range(count):
            run()
        torch.cuda.synchronize()
        return median(times), (time.perf_counter() - begin) * 1e3 / count


@contextmanager
def realtime_threads() -> Iterator[None]:
    """All threads of this process run before all ordinary ones on the machine, which takes root's rights.

    Set for each thread and taken back, so that no process that a system starts inherits it.
    """

    def set_all(policy: int, priority: int) -> None:
        for thread in os.listdir("/proc/self/task"):
            with suppress(ProcessLookupError):
                os.sched_setscheduler(int(thread), policy, os.sched_param(priority))

    set_all(os.SCHED_RR, 1)
    try:
        yield
    finally:
        set_all(os.SCHED_OTHER, 0)


def timed(run: Run, seconds: float) -> list[float]:
    """Milliseconds of each call, for about `seconds` and at least 3 calls, after a tenth of that without timing."""
    clock = time.perf_counter
    end = clock() + seconds / 10
    run()
    while clock() < end:
        run()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < 3 or clock() < end:
        begin = clock()
        run()
        times.append((clock() - begin) * 1e3)
    return times


def as_arrays(outputs: Any) -> Outputs:
    """The tensors and arrays of a tree of outputs, copied."""
    import torch
    from torch.utils import _pytree

    def plain(leaf: Any) -> np.ndarray[Any, Any]:
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().cpu()
            leaf = leaf.float().numpy() if leaf.is_floating_point() else leaf.numpy()
        return np.array(leaf)

    return [plain(leaf) for leaf in _pytree.tree_leaves(outputs)]


def difference(outputs: Sequence[np.ndarray[Any, Any]], expected: Sequence[np.ndarray[Any, Any]]) -> float:
    """The largest error over the largest value, worst over all outputs. Raises Failed where they cannot be compared."""
    if [a.shape for a in outputs] != [b.shape for b in expected]:
        raise Failed(f"gives shapes {[a.shape for a in outputs]}, eager {[b.shape for b in expected]}")
    worst = 0.0
    for a, b in zip(outputs, expected, strict=True):
        if b.size == 0:
            continue
        error = np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
        scale = max(float(np.abs(b).max()), 1e-12)
        worst = max(worst, float(error) / scale if np.isfinite(error) else float("inf"))
    return worst
