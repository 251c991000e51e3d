"""The command line `python -m bench.gpu`: models under Hardtack and its peers on this machine's GPU."""

from __future__ import annotations

import json
import math
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from bench.__main__ import chosen
from bench.gpu_models import COLUMNS, ROWS, names
from bench.gpu_systems import PEERS, SYSTEMS
from bench.measure import Measured, Settings, geometric_mean, measure
from bench.report import milliseconds, ratio
from bench.worker import Failed

_DEFAULT = ("eager", "graph", "compile", "reduce", "hardtack")
_TOLERANCE = 0.06
"""bfloat16 has 8 bits; a deep model's outputs differ by a few of the last ones, whatever computes them."""
_MOVED = {"ln_gelu": 4, "rms_swiglu": 5, "softmax": 2}
"""Matrices that a memory-bound model reads and writes."""


def facts() -> str:
    """The GPU, its driver and the versions, in a sentence."""
    import torch
    import triton

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip().splitlines()[0]
    return f"{gpu}; torch {torch.__version__}, triton {triton.__version__}."


def copy_bandwidth() -> float:
    """Bytes read and written a second by a device-to-device copy of 4 GiB: the roof of the memory-bound rows."""
    import torch

    a = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_()
    b = torch.empty_like(a)
    times = []
    for _ in range(12):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        b.copy_(a)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return 2 * a.numel() / sorted(times)[len(times) // 2]


@click.command()
@click.option("--models", help="Names, separated by commas. Without it, all; --list shows them.")
@click.option("--systems", help=f"Of {', '.join(SYSTEMS)}, separated by commas. Without it, {', '.join(_DEFAULT)}.")
@click.option("--rounds", default=5, show_default=True, help="How often every system has its turn.")
@click.option("--seconds", default=0.3, show_default=True, help="How long a turn lasts.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="Store everything measured here.")
@click.option("--markdown", type=click.Path(dir_okay=False), help="Store the table here, as Markdown.")
@click.option("--keep", type=click.Path(file_okay=False), help="Keep exported files here, and use them again.")
@click.option("--list", "list_models", is_flag=True, help="List the models and stop.")
def main(
    models: str | None, systems: str | None, rounds: int, seconds: float, json_path: str | None, markdown: str | None,
    keep: str | None, list_models: bool,
) -> None:  # fmt: skip
    """Times bfloat16 models in interleaved rounds, after checking outputs against eager's.

    Two figures for each: a run that is waited for, and runs enqueued one behind the other.
    """
    if list_models:
        click.echo("\n".join(names()))
        return
    picked = chosen(models, names(), "--models")
    running = chosen(systems, tuple(SYSTEMS), "--systems") if systems else _DEFAULT
    console = Console(width=None if Console().is_terminal else 200)
    console.print(facts(), markup=False, highlight=False)
    bandwidth = copy_bandwidth()
    console.print(f"Copy: {bandwidth / 1e12:.2f} TB/s.", highlight=False)
    measured: list[Measured] = []
    with ExitStack() as stack:
        folder = Path(keep or stack.enter_context(tempfile.TemporaryDirectory(prefix="hardtack-bench-"))).resolve()
        if keep:
            folder.mkdir(parents=True, exist_ok=True)
        settings = Settings(
            folder, rounds, seconds, timeout_s=400, keep=keep is not None, gpu=True, choosing=frozenset({"max"}),
            tolerance=_TOLERANCE,
        )  # fmt: skip
        for model in picked:
            try:
                measured += measure(model, running, (0,), settings, lambda text: None)
            except Failed as failed:
                console.print(f"{model} is left out: eager fails: {failed}", markup=False)
                continue
            console.print(line(measured[-1], running), markup=False, highlight=False)
            if json_path:
                rows = [{"model": m.model, "results": {n: asdict(r) for n, r in m.results.items()}} for m in measured]
                Path(json_path).write_text(json.dumps({"facts": facts(), "copy": bandwidth, "rows": rows}) + "\n")
    console.print(table(measured, running, bandwidth))
    for text in sentences(measured, running):
        console.print(text, markup=False, highlight=False)
    if markdown:
        Path(markdown).write_text(page(measured, running, bandwidth))


def line(m: Measured, systems: Sequence[str]) -> str:
    """One model's figures as they come in."""
    parts = [f"{s} {'FAILS: ' + str(m.results[s].failure) if m.results[s].failure else cell(m, s)}" for s in systems]
    return f"{m.model}: {'; '.join(parts)}"


def cell(m: Measured, system: str) -> str:
    """`0.130 / 0.117`: waited for, and one behind the other; ms."""
    r = m.results.get(system)
    if r is None or r.failure or not r.rounds:
        return "-"
    return f"{milliseconds(r.ms)} / {milliseconds(r.smallest_ms)}"


def best_peer(m: Measured) -> tuple[str | None, float]:
    """The fastest peer when waited for, and its time over Hardtack's."""
    best = m.best(PEERS)
    return best, math.nan if best is None else m.ratio(best, "hardtack")


def roof(m: Measured, bandwidth: float) -> str:
    """The share of the copy bandwidth that a memory-bound model reaches, runs one behind the other."""
    r = m.results.get("hardtack")
    if m.model not in _MOVED or r is None or not r.rounds:
        return ""
    return f"{_MOVED[m.model] * ROWS * COLUMNS * 2 / (r.smallest_ms * 1e-3) / bandwidth:.0%}"


def rows_of(measured: Sequence[Measured], systems: Sequence[str], bandwidth: float) -> list[tuple[str, ...]]:
    rows = []
    for m in measured:
        best, value = best_peer(m)
        rows.append((m.model, *(cell(m, s) for s in systems), f"{ratio(value)} ({best})", roof(m, bandwidth)))
    return rows


def columns_of(systems: Sequence[str]) -> tuple[str, ...]:
    return ("model", *systems, "best peer / Hardtack", "of copy")


def table(measured: Sequence[Measured], systems: Sequence[str], bandwidth: float) -> Table:
    """For a terminal."""
    out = Table(title="ms, waited for / one behind the other", title_justify="left")
    for k, column in enumerate(columns_of(systems)):
        out.add_column(column, justify="right" if k else "left")
    for row in rows_of(measured, systems, bandwidth):
        out.add_row(*row)
    return out


def sentences(measured: Sequence[Measured], systems: Sequence[str]) -> list[str]:
    """What failed, and the geometric mean against the best peer."""
    lines = [f"{m.model}: {name} fails: {r.failure}" for m in measured for name, r in m.results.items() if r.failure]
    found = [v for m in measured if not math.isnan(v := best_peer(m)[1])]
    if "hardtack" in systems and found:
        lines.append(
            f"Hardtack is {geometric_mean(found):.2f} times as fast as the best peer, geometric mean of {len(found)}; "
            f"a peer is ahead on {sum(v < 1 for v in found)}."
        )
    return lines


def page(measured: Sequence[Measured], systems: Sequence[str], bandwidth: float) -> str:
    """The same as Markdown."""
    columns = columns_of(systems)
    lines = [facts(), "", f"Copy: {bandwidth / 1e12:.2f} TB/s.", ""]
    lines += [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows_of(measured, systems, bandwidth)]
    return "\n".join([*lines, "", *(f"- {text}" for text in sentences(measured, systems))]) + "\n"


if __name__ == "__main__":
    main()
