"""Where a model's time goes, step by step: python -m bench.steps MODEL.

The runtime's observer tells what each instruction took. It costs a little on every step, so the sum is above the time
of a run without it, which the table's title gives.
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import click
import torch
from rich.console import Console
from rich.table import Table

import hardtack
from bench.models import build, names, other_names
from bench.systems import BY_DTYPE
from bench.worker import realtime_threads, timed


@dataclass
class Step:
    """One instruction of the plan: how long it took in every run, and what it stands for in the model."""

    kernel: str
    writes: str
    origin: str
    microseconds: list[float] = field(default_factory=list)


def profile(session: hardtack.Session, args: tuple[torch.Tensor, ...], runs: int) -> tuple[list[Step], float]:
    """The steps of a session's entry point in the order of its plan, and the median ms of a run without observer."""
    whole = median(timed(lambda: session(*args), 0.2))
    steps: dict[int, Step] = {}

    def see(step: hardtack.runtime.Step) -> None:
        place = f"{Path(step['file']).name}:{step['line']}" if step["file"] else ""
        origin = " ".join(part for part in (step["source_op"], step["module"], place) if part)
        writes = ", ".join("x".join(map(str, value.shape)) or "scalar" for value in step["values"].values())
        kept = steps.setdefault(step["index"], Step(step["kernel"] or step["op"], writes, origin))
        kept.microseconds.append(step["duration_ns"] / 1e3)

    session.observe(see)
    for _ in range(runs):
        session(*args)
    return [steps[i] for i in sorted(steps)], whole


@dataclass(frozen=True)
class Row:
    """Steps with the same kernel and shapes: how many, their microseconds together, the origin of the slowest."""

    kernel: str
    writes: str
    launches: int
    microseconds: float
    origin: str


def by_kernel(steps: list[Step]) -> list[Row]:
    """The most expensive first."""
    found: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        found.setdefault((step.kernel, step.writes), []).append(step)
    rows = []
    for (kernel, writes), those in found.items():
        slowest = max(those, key=lambda s: median(s.microseconds))
        rows.append(Row(kernel, writes, len(those), sum(median(s.microseconds) for s in those), slowest.origin))
    return sorted(rows, key=lambda row: -row.microseconds)


def show(model: str, threads: int, steps: list[Step], whole_ms: float, top: int, console: Console) -> None:
    rows = by_kernel(steps)
    total = sum(row.microseconds for row in rows)
    title = f"{model}, {threads} threads: {whole_ms:.3f} ms a run; {len(steps)} steps, together {total / 1e3:.3f} ms"
    table = Table(title=title, title_justify="left")
    for name in ("us", "%", "launches"):
        table.add_column(name, justify="right")
    for name in ("kernel", "writes", "origin"):
        table.add_column(name)
    rest = rows[top:]
    if rest:
        launches, microseconds = sum(r.launches for r in rest), sum(r.microseconds for r in rest)
        rows = [*rows[:top], Row("the rest", "", launches, microseconds, "")]
    for r in rows:
        share = f"{100 * r.microseconds / total:.1f}"
        table.add_row(f"{r.microseconds:.1f}", share, str(r.launches), r.kernel, r.writes, r.origin)
    console.print(table)


@click.command()
@click.argument("model", type=click.Choice((*names(), *other_names())), nargs=-1, required=True)
@click.option("--threads", default=1, show_default=True, type=click.IntRange(1))
@click.option("--top", default=15, show_default=True, help="How many kernels to list.")
@click.option("--runs", default=9, show_default=True, type=click.IntRange(1))
@click.option("--realtime", is_flag=True, help="Run at real-time priority, on a busy machine; as root.")
@click.option("--dtype", type=click.Choice(tuple(BY_DTYPE)), default="float32", show_default=True, help="Of the model.")
@click.option("--bundle", type=click.Path(exists=True), help="A bundle of the model that exists already.")
def main(
    model: tuple[str, ...], threads: int, top: int, runs: int, realtime: bool, dtype: str, bundle: str | None
) -> None:
    """Exports MODEL, runs it step by step and lists its kernels by the time they take."""
    torch.set_grad_enabled(False)
    console = Console(width=None if Console().is_terminal else 180)
    for name in model:
        case = build(name, getattr(torch, dtype)).cast()
        with tempfile.TemporaryDirectory(prefix="hardtack-bench-") as folder:
            path = Path(bundle) if bundle else Path(folder) / "model.pkg"
            if not bundle:
                hardtack.export(case.module, case.args, path=path, targets=("cpu:native",))
            session = hardtack.load(path, threads=threads).session()
            with realtime_threads() if realtime else nullcontext():
                steps, whole_ms = profile(session, case.args, runs)
        show(name, threads, steps, whole_ms, top, console)


if __name__ == "__main__":
    main()
