"""How long an export of EfficientNet-Lite0 takes: python -m bench.export_time.

Hardtack with an empty kernel cache, Hardtack again with that cache filled, and torch.export with AOTInductor with empty
caches; each in a fresh process that has imported torch and built the model when its clock starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench import machine

MODEL = "efficientnet_lite0"
_BEGIN = """
import sys, time, torch
from bench.models import build
torch.set_grad_enabled(False)
case = build(sys.argv[1])
import hardtack, hardtack.api, torch._inductor.package
begin = time.perf_counter()
"""
_HARDTACK = """
targets = ("cpu",) if sys.argv[3] == "both" else ("cpu:native",)
hardtack.export(case.module, case.args, path=sys.argv[2], targets=targets, progress=False)
"""
_AOTI = """
program = torch.export.export(case.module, case.args, strict=False)
torch._inductor.aoti_compile_and_package(program, package_path=sys.argv[2], inductor_configs={"freezing": True})
"""
_END = "print('seconds', time.perf_counter() - begin, flush=True)\n"


def export(source: str, path: Path, caches: Path, targets: str) -> float:
    """Seconds of one export in a fresh process whose caches are under `caches`."""
    caches.mkdir(exist_ok=True)
    env = dict(os.environ)
    for variable in ("XDG_CACHE_HOME", "HARDTACK_CACHE", "TORCHINDUCTOR_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR"):
        env[variable] = str(caches / variable.lower())
    command = [sys.executable, "-c", _BEGIN + source + _END, MODEL, str(path), targets]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise click.ClickException(f"an export failed: {done.stderr.strip().splitlines()[-1]}")
    return float(next(line for line in done.stdout.splitlines() if line.startswith("seconds ")).split()[1])


def measure(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds by what was exported; every round starts with empty caches."""
    found: dict[str, list[float]] = {}
    for k in range(rounds):
        for name, targets in (("one target (this CPU)", "native"), ("two targets (x86-64-v4, x86-64-v3)", "both")):
            caches, path = folder / f"{targets}{k}", folder / f"{targets}{k}.pkg"
            for state in ("empty", "filled"):
                label = f"Hardtack, {name}, {state} kernel cache"
                found.setdefault(label, []).append(export(_HARDTACK, path, caches, targets))
        label = "torch.export and AOTInductor, empty caches"
        found.setdefault(label, []).append(export(_AOTI, folder / f"aoti{k}.pt2", folder / f"aoti{k}", ""))
    return found


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
def main(rounds: int) -> None:
    """Times exports of EfficientNet-Lite0."""
    with tempfile.TemporaryDirectory(prefix="hardtack-bench-") as folder:
        found = measure(Path(folder), rounds)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(machine.sentence(machine.facts()), markup=False, highlight=False)
    table = Table(title=f"{MODEL}: export, median of {rounds}", title_justify="left")
    table.add_column("export")
    table.add_column("seconds", justify="right")
    for label, seconds in found.items():
        table.add_row(label, f"{median(seconds):.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
