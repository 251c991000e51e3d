"""Two builds of the server in turn: what a change costs its clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import median

from bench.serving_cases import Case, Protocol
from bench.serving_systems import Endpoint, Load, Result
from tests.support.served import Server

CLIENTS = (1, 64)
PROTOCOLS: tuple[Protocol, ...] = ("http", "grpc")


@dataclass(frozen=True)
class Build:
    """A server's program, and a folder of models that it reads, with the perceptron as `mlp`."""

    program: Path
    models: Path


@dataclass(frozen=True)
class Turn:
    """What one build did for `seconds`. Processor time in us of all its threads, for each answer."""

    result: Result
    processor_us: float


def beside(
    load: Load, cases: Sequence[Case], builds: tuple[Build, Build], starts: int, pairs: int, seconds: float
) -> list[tuple[str, ...]]:
    """Rows of ratios, the first build's to the second's, by protocol and number of clients.

    A process keeps its speed for life, and starts of one build differ by 10% and more. So both servers are started
    `starts` times; each start gives the median of the ratios of its `pairs` of turns, and a row the median of those,
    with the interval that holds the true median 19 times of 20.
    """
    found: dict[str, list[list[float]]] = {}
    for start in range(starts):
        order = (0, 1) if start % 2 == 0 else (1, 0)
        with ExitStack() as stack:
            started = {i: stack.enter_context(Server(builds[i].program, builds[i].models)) for i in order}
            for protocol, clients in product(PROTOCOLS, CLIENTS):
                title = f"{protocol}, {clients} client{'s' if clients > 1 else ''}"
                measures = [_measure(load, started[i], protocol, cases, clients, seconds) for i in (0, 1)]
                found.setdefault(title, []).append(_ratios(_pairs(measures, pairs)))
    return [(title, *map(interval, zip(*ratios, strict=True))) for title, ratios in found.items()]


TITLES = ("ours to the other's", "answers/s", "p50", "p99", "processor time an answer")
_FIGURES: tuple[Callable[[Turn], float], ...] = (
    lambda t: t.result.per_second,
    lambda t: t.result.p50_us,
    lambda t: t.result.p99_us,
    lambda t: t.processor_us,
)


def _pairs(measures: Sequence[Callable[[], Turn]], pairs: int) -> list[tuple[Turn, Turn]]:
    """Turns of both, each first in every other pair; a pair before them, which finds nothing warm, is thrown away."""
    found: list[tuple[Turn, Turn]] = []
    for pair in range(pairs + 1):
        turns = [measures[i]() for i in ((0, 1), (1, 0))[pair % 2]]
        found.append((turns[pair % 2], turns[1 - pair % 2]))
    return found[1:]


def _ratios(pairs: Sequence[tuple[Turn, Turn]]) -> list[float]:
    """For each of TITLES but the first."""
    return [median(figure(ours) / figure(other) for ours, other in pairs) for figure in _FIGURES]


def interval(values: Sequence[float]) -> str:
    """The median and, by the sign test, the order statistics around it."""
    ordered = sorted(values)
    middle, away = len(ordered) // 2, round(0.98 * sqrt(len(ordered)))
    low, high = max(middle - away, 0), min(middle + away, len(ordered) - 1)
    return f"{ordered[middle]:.3f} ({ordered[low]:.3f} to {ordered[high]:.3f})"


def _measure(
    load: Load, server: Server, protocol: Protocol, cases: Sequence[Case], clients: int, seconds: float
) -> Callable[[], Turn]:
    end = Endpoint(protocol, server.port if protocol == "http" else server.grpc_port, "mlp")

    def turn() -> Turn:
        before = _processor_s(server.process.pid)
        result = load.run(end, cases, clients, seconds)
        used = _processor_s(server.process.pid) - before
        return Turn(result, 1e6 * used / result.answers)

    return turn


def _processor_s(pid: int) -> float:
    """What all threads of a process have computed so far, to the nanosecond, as Linux counts it."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
