"""Two builds of the server in turn: what a change costs its clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

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
    load: Load, cases: Sequence[Case], ours: Build, other: Build, pairs: int, seconds: float
) -> list[tuple[str, ...]]:
    """Rows of ratios, ours to the other's, by protocol and number of clients: medians over the pairs of turns, with the
    interval that holds the true median 19 times of 20.
    """
    rows: list[tuple[str, ...]] = []
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(b.program, b.models)) for b in (ours, other)]
        for protocol in PROTOCOLS:
            ends = [Endpoint(protocol, s.port if protocol == "http" else s.grpc_port, "mlp") for s in servers]
            for clients in CLIENTS:
                found: list[tuple[Turn, Turn]] = []
                for pair in range(pairs + 1):
                    turns = [
                        _turn(load, ends[i], servers[i], cases, clients, seconds) for i in ((0, 1), (1, 0))[pair % 2]
                    ]
                    found.append((turns[pair % 2], turns[1 - pair % 2]))
                title = f"{protocol}, {clients} client{'s' if clients > 1 else ''}"
                rows.append((title, *_ratios(found[1:])))  # the first pair finds nothing warm
    return rows


TITLES = ("ours to the other's", "answers/s", "p50", "p99", "processor time an answer")


def _ratios(pairs: Sequence[tuple[Turn, Turn]]) -> list[str]:
    of: tuple[Callable[[Turn], float], ...] = (
        lambda t: t.result.per_second,
        lambda t: t.result.p50_us,
        lambda t: t.result.p99_us,
        lambda t: t.processor_us,
    )
    return [interval([f(ours) / f(other) for ours, other in pairs]) for f in of]


def interval(values: Sequence[float]) -> str:
    """The median and, by the sign test, the order statistics around it."""
    ordered = sorted(values)
    middle, away = len(ordered) // 2, round(0.98 * sqrt(len(ordered)))
    low, high = max(middle - away, 0), min(middle + away, len(ordered) - 1)
    return f"{ordered[middle]:.3f} ({ordered[low]:.3f} to {ordered[high]:.3f})"


def _turn(load: Load, end: Endpoint, server: Server, cases: Sequence[Case], clients: int, seconds: float) -> Turn:
    before = _processor_s(server.process.pid)
    result = load.run(end, cases, clients, seconds)
    used = _processor_s(server.process.pid) - before
    return Turn(result, 1e6 * used / result.answers)


def _processor_s(pid: int) -> float:
    """What all threads of a process have computed so far, to the nanosecond, as Linux counts it."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
