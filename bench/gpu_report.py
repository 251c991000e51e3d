"""What the GPU benchmark prints and stores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from bench.gpu_models import COLUMNS, ROWS
from bench.gpu_systems import PEERS
from bench.measure import Measured, geometric_mean
from bench.report import milliseconds, ratio

HARDTACK = ("hardtack", "untuned")
"""The columns of Hardtack: with the tuning table that comes with it, and without any."""
_MOVED = {"ln_gelu": 4, "rms_swiglu": 5, "softmax": 2}
"""Matrices that a memory-bound model reads and writes."""


def line(m: Measured, systems: Sequence[str]) -> str:
    """One model's figures as they come in, with the largest error over the largest value of eager's outputs."""
    parts = []
    for s in systems:
        r = m.results[s]
        off = "" if s == "eager" or math.isnan(r.error) else f" (off by {r.error:.1e})"
        parts.append(f"{s} {'FAILS: ' + r.failure if r.failure else cell(m, s) + off}")
    return f"{m.model}: {'; '.join(parts)}; in the table: {shapes(m) or '-'}"


def cell(m: Measured, system: str) -> str:
    """`0.130 / 0.117`: waited for, and one behind the other; ms."""
    r = m.results.get(system)
    if r is None or r.failure or not r.rounds:
        return "-"
    return f"{milliseconds(r.ms)} / {milliseconds(r.smallest_ms)}"


def best_peer(m: Measured, ours: str = "hardtack") -> tuple[str | None, float]:
    """The fastest peer when waited for, and its time over that of one of HARDTACK."""
    best = m.best(PEERS)
    return best, math.nan if best is None else m.ratio(best, ours)


def shapes(m: Measured) -> str:
    """`3 of 7`: of the shapes of products, convolutions and attentions, those that the tuning table has."""
    r = m.results.get("hardtack")
    return "" if r is None or r.shapes is None else f"{r.shapes[0]} of {r.shapes[1]}"


def roof(m: Measured, bandwidth: float) -> str:
    """The share of the copy bandwidth that a memory-bound model reaches, runs one behind the other."""
    r = m.results.get("hardtack")
    if m.model not in _MOVED or r is None or not r.rounds:
        return ""
    return f"{_MOVED[m.model] * ROWS * COLUMNS * 2 / (r.smallest_ms * 1e-3) / bandwidth:.0%}"


def rows_of(measured: Sequence[Measured], systems: Sequence[str], bandwidth: float) -> list[tuple[str, ...]]:
    rows = []
    for m in measured:
        against = [f"{ratio(v)} ({best})" for s in HARDTACK if s in systems for best, v in [best_peer(m, s)]]
        rows.append((m.model, *(cell(m, s) for s in systems), *against, shapes(m), roof(m, bandwidth)))
    return rows


def columns_of(systems: Sequence[str]) -> tuple[str, ...]:
    against = (f"best peer / {s}" for s in HARDTACK if s in systems)
    return ("model", *systems, *against, "in the table", "of copy")


def table(measured: Sequence[Measured], systems: Sequence[str], bandwidth: float) -> Table:
    """For a terminal."""
    out = Table(title="ms, waited for / one behind the other", title_justify="left")
    for k, column in enumerate(columns_of(systems)):
        out.add_column(column, justify="right" if k else "left")
    for row in rows_of(measured, systems, bandwidth):
        out.add_row(*row)
    return out


def sentences(measured: Sequence[Measured], systems: Sequence[str]) -> list[str]:
    """What failed, the geometric means against the best peer, and what the tuning table did."""
    lines = [f"{m.model}: {name} fails: {r.failure}" for m in measured for name, r in m.results.items() if r.failure]
    for name, begin in zip(HARDTACK, ("Hardtack is", "Without a tuning table it is"), strict=True):
        found = [v for m in measured if not math.isnan(v := best_peer(m, name)[1])]
        if name in systems and found:
            lines.append(
                f"{begin} {geometric_mean(found):.2f} times as fast as the best peer, geometric mean of {len(found)}; "
                f"a peer is ahead on {sum(v < 1 for v in found)}."
            )
    return lines + _what_the_table_did(measured)


def _what_the_table_did(measured: Sequence[Measured]) -> list[str]:
    lines = []
    known = [(m, r.shapes) for m in measured if (r := m.results.get("hardtack")) is not None and r.shapes is not None]
    if known:
        found, every = (sum(s[k] for _, s in known) for k in (0, 1))
        none = sum(s[0] == 0 for _, s in known)
        lines.append(f"The tuning table has {found} of {every} shapes, and none of {none} of {len(known)} models.")
    gains = [v for m, s in known if s[0] and not math.isnan(v := m.ratio("untuned", "hardtack"))]
    if gains:
        mean = geometric_mean(gains)
        lines.append(f"Where it has some, it makes the model {mean:.2f} times as fast, geometric mean of {len(gains)}.")
    return lines


def page(measured: Sequence[Measured], systems: Sequence[str], bandwidth: float, facts: str) -> str:
    """The same as Markdown."""
    columns = columns_of(systems)
    lines = [facts, "", f"Copy: {bandwidth / 1e12:.2f} TB/s.", ""]
    lines += [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows_of(measured, systems, bandwidth)]
    return "\n".join([*lines, "", *(f"- {text}" for text in sentences(measured, systems))]) + "\n"
