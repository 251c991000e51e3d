"""Measures models under systems: rounds that take every system in turn, so that all meet the same weather."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.work import Work
from bench.worker import Failed, Prepared, Worker, difference

Progress = Callable[[str], None]


@dataclass
class Result:
    """One system on one model with one number of threads.

    Times in ms; rounds[i] is the median of round i; error is the largest over the largest value that eager gives.
    shapes: of a System.
    """

    rounds: list[float] = field(default_factory=list)
    smallest_ms: float = math.inf
    error: float = math.nan
    export_seconds: float | None = None
    first_ms: float = math.nan
    failure: str | None = None
    shapes: tuple[int, int] | None = None

    @property
    def ms(self) -> float:
        return median(self.rounds) if self.rounds else math.nan


@dataclass
class Measured:
    """One model with one number of threads in one dtype, by system; always with eager. work: where it was counted."""

    model: str
    threads: int
    results: dict[str, Result]
    dtype: str = "float32"
    work: Work | None = None

    def ratio(self, slow: str, fast: str) -> float:
        """Median over the rounds of the time of `slow` over that of `fast`; NaN where one of them failed."""
        a, b = self.results.get(slow), self.results.get(fast)
        if a is None or b is None or not a.rounds or not b.rounds:
            return math.nan
        return median(x / y for x, y in zip(a.rounds, b.rounds, strict=True))

    def best(self, systems: Sequence[str]) -> str | None:
        """The fastest of `systems` that ran."""
        ran = [s for s in systems if s in self.results and self.results[s].rounds]
        return min(ran, key=lambda s: self.results[s].ms, default=None)


@dataclass(frozen=True)
class Settings:
    """rounds of about `seconds` for each system; timeout_s for every export.
    folder: for their files; those of peers that are there serve again.

    realtime: systems run at real-time priority, for a machine that is busy with other things; takes root's rights.
    gpu: the models and systems of the GPU benchmark; a round's second figure is then the time of runs that are not
    waited for. choosing: of these, the systems that time kernels while they prepare, which then have the device alone.
    rounding: of these, those that round weights on purpose; how far they are off is shown, and not judged.
    tolerance: the largest error over the largest value of an output that counts as right; tolerance_f32: the
    same for models whose names end with _f32. dtype: what the CPU's systems compute in.
    """

    folder: Path
    rounds: int = 9
    seconds: float = 0.2
    timeout_s: float = 900
    realtime: bool = False
    gpu: bool = False
    choosing: frozenset[str] = frozenset()
    rounding: frozenset[str] = frozenset()
    tolerance: float = 1e-3
    tolerance_f32: float = 1e-3
    dtype: str = "float32"

    def allowed(self, model: str, system: str) -> float:
        if system in self.rounding:
            return math.inf
        return self.tolerance_f32 if model.endswith("_f32") else self.tolerance


def measure(
    model: str, systems: Sequence[str], threads: Sequence[int], settings: Settings, report: Progress
) -> list[Measured]:
    """`model` under eager and `systems`, once for every number of threads. Raises Failed when eager cannot run it."""
    failures: dict[str, str] = {}
    with _started(model, systems, settings) as workers:
        out = []
        for count in threads:
            results = {name: Result(failure=failures.get(name)) for name in workers}
            work = _prepare(model, workers, results, count, settings, report)
            failures |= {name: r.failure for name, r in results.items() if r.failure is not None}
            _rounds(model, workers, results, count, settings, report)
            out.append(Measured(model, count, results, settings.dtype, work))
        return out


def measure_together(
    models: Sequence[str], systems: Sequence[str], threads: int, settings: Settings, report: Progress
) -> Iterator[Measured]:
    """All models made ready at once, on as many cores as there are, then timed one after the other, while
    nothing compiles. Takes the memory of all of them. One that eager cannot run is reported and left out.
    """
    begin = time.perf_counter()

    def ready(model: str, workers: dict[str, Worker]) -> dict[str, Result]:
        results = {name: Result() for name in workers}
        _prepare(model, workers, results, threads, settings, lambda text: None)
        for name in [n for n, r in results.items() if r.failure is not None]:
            workers[name].close()  # one that was not ready in time would go on
        report(f"{model} is ready after {time.perf_counter() - begin:.0f} s")
        return results

    with ExitStack() as stack:
        workers = {m: stack.enter_context(_started(m, systems, settings)) for m in models}
        with ThreadPoolExecutor(len(models)) as pool:
            made = {m: pool.submit(ready, m, workers[m]) for m in models}
        for model, results in made.items():
            try:
                found = results.result()
            except Failed as failed:
                report(f"{model} is left out: eager fails: {failed}")
                continue
            _rounds(model, workers[model], found, threads, settings, lambda text: None)
            yield Measured(model, threads, found)
        for started in workers.values():
            for worker in started.values():
                worker.hang_up()  # all at once, before each is waited for


@contextmanager
def _started(model: str, systems: Sequence[str], settings: Settings) -> Iterator[dict[str, Worker]]:
    """A process for eager and for each system."""
    workers: dict[str, Worker] = {}
    try:
        for name in ("eager", *(s for s in systems if s != "eager")):
            workers[name] = Worker(model, name, settings.folder, settings.timeout_s, settings.gpu, settings.dtype)
        yield workers
    finally:
        for worker in workers.values():
            worker.close()


def _prepare(
    model: str,
    workers: dict[str, Worker],
    results: dict[str, Result],
    threads: int,
    settings: Settings,
    report: Progress,
) -> Work | None:
    """Makes every system ready; one that fails, or whose output is not eager's, gets its reason. Gives a run's work."""
    report(f"{model}, {threads} threads: eager")
    ahead = _prepared_together(workers, [n for n, r in results.items() if r.failure is None], threads, settings)
    expected = ahead["eager"].result() if ahead else workers["eager"].prepare(threads)
    for name, result in results.items():
        if result.failure is not None:
            continue
        report(f"{model}, {threads} threads: {name} prepares")
        try:
            if name in ahead:
                made = ahead[name].result()
            else:
                made = expected if name == "eager" else workers[name].prepare(threads)
            result.error = difference(made.outputs, expected.outputs)
            result.export_seconds, result.first_ms, result.shapes = made.export_seconds, made.first_ms, made.shapes
            if not result.error <= settings.allowed(model, name):
                result.failure = f"differs from eager by {result.error:.1e} of the largest value"
        except Failed as failed:
            result.failure = str(failed)
    return expected.work


def _prepared_together(
    workers: dict[str, Worker], names: Sequence[str], threads: int, settings: Settings
) -> dict[str, Future[Prepared]]:
    """On a GPU, where nobody asks how long it takes: all systems but those that time kernels to choose among them."""
    names = [n for n in names if n not in settings.choosing] if settings.gpu else []
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return {n: pool.submit(workers[n].prepare, threads) for n in names}


def _rounds(
    model: str,
    workers: dict[str, Worker],
    results: dict[str, Result],
    threads: int,
    settings: Settings,
    report: Progress,
) -> None:
    able = [name for name, result in results.items() if result.failure is None]
    for k in range(settings.rounds):
        for name in [n for n in able if results[n].failure is None]:
            report(f"{model}, {threads} threads: round {k + 1} of {settings.rounds}, {name}")
            try:
                middle, smallest = workers[name].round(settings.seconds, settings.realtime)
                results[name].rounds.append(middle)
                results[name].smallest_ms = min(results[name].smallest_ms, smallest)
            except Failed as failed:
                results[name].failure = f"in round {k + 1}: {failed}"
                results[name].rounds.clear()


def geometric_mean(values: Sequence[float]) -> float:
    """NaN for none."""
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else math.nan
