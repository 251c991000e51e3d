"""What the benchmark prints and stores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from bench import peaks as roofs
from bench import shares
from bench.measure import Measured, geometric_mean
from bench.peaks import Peaks
from bench.systems import PEERS

TITLES = {
    "eager": "eager", "compile": "compile", "aoti": "AOTInductor", "ort": "ONNX Runtime", "openvino": "OpenVINO",
    "ort-f32": "ONNX Runtime f32", "openvino-f32": "OpenVINO f32",
    "hardtack-f32": "Hardtack f32", "hardtack-compute": "Hardtack, compute=", "hardtack": "Hardtack",
}  # fmt: skip
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


@dataclass(frozen=True)
class Grid:
    """A table as texts; the first column holds names, the others figures. best[i]: the column of row i's fastest."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: tuple[int, ...]

    def rich(self) -> Table:
        out = Table(title=self.title, title_justify="left")
        for k, column in enumerate(self.columns):
            out.add_column(column, justify="right" if k else "left")
        for row, best in zip(self.rows, self.best, strict=True):
            out.add_row(*(f"[bold]{text}[/bold]" if k == best else text for k, text in enumerate(row)))
        return out

    def markdown(self) -> str:
        lines = [f"| {' | '.join(self.columns)} |", f"|---|{'---:|' * (len(self.columns) - 1)}"]
        for row, best in zip(self.rows, self.best, strict=True):
            lines.append(f"| {' | '.join(f'**{text}**' if k == best else text for k, text in enumerate(row))} |")
        return "\n".join(lines)


def grid(
    measured: Sequence[Measured], systems: Sequence[str], threads: int, peaks: Mapping[int, Peaks] | None = None
) -> Grid:
    """Median times of one number of threads, how many times faster Hardtack is than eager and every other system, and
    with `peaks` the share of the one that bounds the model."""
    found = [m for m in measured if m.threads == threads]
    title = f"{_label(threads)}: ms, and the other's time over Hardtack's"
    if found and found[0].dtype != "float32":
        title = f"{found[0].dtype} (eager: float32), {title}"
    shown = ["eager", *(s for s in systems if s != "eager")]
    compared = [s for s in shown if s != "hardtack"] if "hardtack" in shown else []
    bound = bool(compared and peaks)
    rows, fastest = [], []
    for m in found:
        cells = [
            "-" if (r := m.results.get(name)) is None else "fails" if r.failure else milliseconds(r.ms)
            for name in shown
        ]
        cells += [ratio(m.ratio(name, "hardtack")) for name in compared]
        rows.append((m.model, *cells, *([shares.text(shares.share(m, "hardtack", peaks[threads]))] if bound else [])))
        fastest.append(1 + shown.index(m.best(shown) or "eager"))
    columns = ("model", *(TITLES[s] for s in shown), *(f"{TITLES[s]} / H" for s in compared))
    return Grid(title, (*columns, "of peak") if bound else columns, tuple(rows), tuple(fastest))


def _label(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def summary(measured: Sequence[Measured], systems: Sequence[str]) -> list[str]:
    """Failures, then geometric means, then where a peer is ahead, in plain sentences."""
    lines = []
    for m in measured:
        for name, result in m.results.items():
            if result.failure:
                lines.append(f"{m.model}, {m.threads} threads: {TITLES[name]} fails: {result.failure}")
    lines += _losses([m for m in measured if m.dtype == "int8"])
    if "hardtack" not in systems:
        return lines
    for threads in sorted({m.threads for m in measured}):
        lines += _standing([m for m in measured if m.threads == threads], systems, threads)
    return lines


def _losses(measured: Sequence[Measured]) -> list[str]:
    """How far the systems of int8 are off, for each model once."""
    found = {}
    for m in measured:
        errors = {n: r.error for n, r in m.results.items() if n in ("ort", "openvino", "hardtack")}
        shown = ", ".join(f"{TITLES[n]} {e:.1e}" for n, e in errors.items() if not math.isnan(e))
        found[m.model] = f"{m.model}: off by {shown or 'nobody knows'} of the largest value."
    return list(found.values())


def _standing(measured: Sequence[Measured], systems: Sequence[str], threads: int) -> list[str]:
    label = _label(threads)
    lines = []
    for name in ("eager", *PEERS):
        found = [r for m in measured if not math.isnan(r := m.ratio(name, "hardtack"))]
        if found and (name == "eager" or name in systems):
            mean = geometric_mean(found)
            lines.append(
                f"{label}: Hardtack is {mean:.2f} times as fast as {TITLES[name]}, geometric mean of {len(found)}."
            )
    best = [value for m in measured if not math.isnan(value := against_best(m)[1])]
    if best:
        lines.append(
            f"{label}: Hardtack is {geometric_mean(best):.2f} times as fast as the best of all others on each model, "
            f"geometric mean of {len(best)}."
        )
    refused = [m.model for m in measured if (r := m.results.get("hardtack")) is not None and r.failure]
    if refused:
        lines.append(f"{label}: Hardtack fails on {len(refused)} of {len(measured)}: {', '.join(refused)}.")
    return [*lines, _who_is_ahead(measured, label)]


def _who_is_ahead(measured: Sequence[Measured], label: str) -> str:
    """Where a peer is ahead by more than rounds differ, the furthest first."""
    behind, ran = [], 0
    for m in measured:
        best, value = against_best(m)
        ran += not math.isnan(value)
        if best is not None and value < _TIED:
            behind.append((value, f"{m.model} ({TITLES[best]}, {1 / value:.2f} times as fast)"))
    if behind:
        return f"{label}: a peer is ahead on {len(behind)} of {ran}: {', '.join(t for _, t in sorted(behind))}."
    return f"{label}: no peer is ahead on any of {ran} models."


def markdown(
    measured: Sequence[Measured],
    systems: Sequence[str],
    peaks: Mapping[int, Peaks],
    facts: str,
    command: str,
) -> str:
    """The same as a page part: command, machine, its peaks, tables, sentences."""
    parts = [f"`{command}`", facts, roofs.sentence(peaks)]
    for count in peaks:
        found = grid(measured, systems, count, peaks)
        parts += [f"### {found.title}", found.markdown()]
    parts.append("\n".join(f"- {line}" for line in summary(measured, systems)))
    return "\n\n".join(parts) + "\n"


def document(
    measured: Sequence[Measured], peaks: Mapping[int, Peaks], facts: Mapping[str, str], command: str
) -> dict[str, Any]:
    """Everything that was measured, for --json."""
    rows = []
    for m in measured:
        results = {name: {**asdict(r), "ms": r.ms} for name, r in m.results.items()}
        best, value = against_best(m)
        bound = shares.share(m, "hardtack", peaks[m.threads])
        rows.append({
            "model": m.model, "threads": m.threads, "dtype": m.dtype, "best_peer": best, "best_peer_ratio": value,
            "work": m.work and asdict(m.work), "share_of_peak": bound and {"peak": bound[0], "share": bound[1]},
            "results": results,
        })  # fmt: skip
    found = {"command": command, "machine": dict(facts), "peaks": {str(n): p for n, p in peaks.items()}}
    return {**found, "measured": _without_nan(rows)}


def _without_nan(value: Any) -> Any:
    """NaN, which JSON lacks, as None."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, dict):
        return {k: _without_nan(v) for k, v in value.items()}
    return [_without_nan(v) for v in value] if isinstance(value, list) else value
