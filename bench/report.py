"""What the benchmark prints and stores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from bench.measure import Measured, geometric_mean
from bench.systems import PEERS

TITLES = {"eager": "eager", "compile": "compile", "aoti": "AOTInductor", "ort": "ONNX Runtime", "hardtack": "Hardtack"}
_TIED = 0.97
"""A ratio above this is not called behind: rounds of the same system differ by as much."""


def milliseconds(value: float) -> str:
    """Three digits; "-" for what was not measured."""
    if math.isnan(value):
        return "-"
    return (
        f"{value:.3f}"
        if value < 1
        else f"{value:.2f}"
        if value < 10
        else f"{value:.1f}"
        if value < 100
        else f"{value:.0f}"
    )


def ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def against_best(measured: Measured) -> tuple[str | None, float]:
    """The fastest of eager and the peers that ran, and its time over Hardtack's: above 1, Hardtack is faster."""
    best = measured.best(("eager", *PEERS))
    return best, math.nan if best is None else measured.ratio(best, "hardtack")


def table(measured: Sequence[Measured], systems: Sequence[str], threads: int) -> Table:
    """Median times of one number of threads, and how many times faster Hardtack is than eager and the best peer."""
    title = f"{threads} thread{'s' if threads > 1 else ''}: ms, and the other's time over Hardtack's"
    out = Table(title=title, title_justify="left")
    out.add_column("model")
    shown = ["eager", *(s for s in systems if s != "eager")]
    for name in shown:
        out.add_column(TITLES[name], justify="right")
    peers = [s for s in shown if s in PEERS]
    if "hardtack" in shown:
        for name in ["eager", *peers]:
            out.add_column(f"{TITLES[name]} / H", justify="right")
    for m in measured:
        if m.threads != threads:
            continue
        best = m.best(shown)
        cells = []
        for name in shown:
            text = "fails" if m.results[name].failure else milliseconds(m.results[name].ms)
            cells.append(f"[bold]{text}[/bold]" if name == best else text)
        if "hardtack" in shown:
            cells += [ratio(m.ratio(name, "hardtack")) for name in ["eager", *peers]]
        out.add_row(m.model, *cells)
    return out


def summary(measured: Sequence[Measured], systems: Sequence[str]) -> list[str]:
    """Failures, then geometric means, then where a peer is ahead, in plain sentences."""
    lines = []
    for m in measured:
        for name, result in m.results.items():
            if result.failure:
                lines.append(f"{m.model}, {m.threads} threads: {TITLES[name]} fails: {result.failure}")
    if "hardtack" not in systems:
        return lines
    for threads in sorted({m.threads for m in measured}):
        lines += _standing([m for m in measured if m.threads == threads], systems, threads)
    return lines


def _standing(measured: Sequence[Measured], systems: Sequence[str], threads: int) -> list[str]:
    label = f"{threads} thread{'s' if threads > 1 else ''}"
    lines = []
    for name in ("eager", *PEERS):
        found = [r for m in measured if not math.isnan(r := m.ratio(name, "hardtack"))]
        if found and (name == "eager" or name in systems):
            mean = geometric_mean(found)
            lines.append(
                f"{label}: Hardtack is {mean:.2f} times as fast as {TITLES[name]}, geometric mean of {len(found)}."
            )
    behind = []
    for m in measured:
        best, value = against_best(m)
        if best is not None and value < _TIED:
            behind.append((value, f"{m.model} ({TITLES[best]}, {1 / value:.2f} times as fast)"))
    ran = sum(not math.isnan(against_best(m)[1]) for m in measured)
    if behind:
        lines.append(f"{label}: a peer is ahead on {len(behind)} of {ran}: {', '.join(t for _, t in sorted(behind))}.")
    else:
        lines.append(f"{label}: no peer is ahead on any of {ran} models.")
    return lines


def document(measured: Sequence[Measured], facts: Mapping[str, str], command: str) -> dict[str, Any]:
    """Everything that was measured, for --json."""
    rows = []
    for m in measured:
        results = {name: {**asdict(r), "ms": r.ms} for name, r in m.results.items()}
        best, value = against_best(m)
        rows.append(
            {"model": m.model, "threads": m.threads, "best_peer": best, "best_peer_ratio": value, "results": results}
        )
    return {"command": command, "machine": dict(facts), "measured": _without_nan(rows)}


def _without_nan(value: Any) -> Any:
    """NaN, which JSON lacks, as None."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    return [_without_nan(v) for v in value] if isinstance(value, list) else value
