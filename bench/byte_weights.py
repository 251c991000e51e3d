"""Products with weights of int8 beside the same in float32, on this CPU: python -m bench.byte_weights.

Both are linear layers of one bundle each; they take turns, and the ratio is the median of the ratios of the turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import nn

import hardtack

SHAPES = ((4096, 11008), (1024, 4096), (768, 768))
"""(K, N) of weights; the first go beyond every cache."""
ROWS = (1, 4, 32, 256)


class Linear(nn.Module):
    """x (M, K) times the transpose of int8 (N, K), whose rows have scales; as float32 the same numbers."""

    def __init__(self, depth: int, columns: int, *, as_bytes: bool) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(0)
        weight = torch.randint(-128, 128, (columns, depth), generator=g).to(torch.int8)
        self.weight = nn.Buffer(weight if as_bytes else weight.float())
        self.scales = nn.Buffer(torch.rand(columns, generator=g) * 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scales


def session(folder: Path, depth: int, columns: int, x: torch.Tensor, threads: int, *, as_bytes: bool) -> Any:
    """Warm."""
    path = folder / f"{as_bytes}.pkg"
    hardtack.export(Linear(depth, columns, as_bytes=as_bytes).eval(), (x,), path=path, targets=("cpu:native",))
    made = hardtack.load(path, threads=threads).session()
    made(x)
    return made


def seconds(call: Any, x: torch.Tensor) -> float:
    start = time.perf_counter()
    call(x)
    return time.perf_counter() - start


@click.command(help=__doc__)
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=30, show_default=True, help="Turns of each.")
def main(threads: int, rounds: int) -> None:
    table = Table("K x N", "rows", "float32, ms", "int8, ms", "float32 / int8", "GB/s of int8")
    with tempfile.TemporaryDirectory() as folder:
        for depth, columns in SHAPES:
            for rows in ROWS:
                x = torch.randn(rows, depth)
                both = [session(Path(folder), depth, columns, x, threads, as_bytes=b) for b in (False, True)]
                turns = [[seconds(call, x) for call in both] for _ in range(rounds)]
                wide, small = (statistics.median(t[k] for t in turns) for k in (0, 1))
                ratio = statistics.median(t[0] / t[1] for t in turns)
                rate = depth * columns / small / 1e9
                shown = f"{wide * 1e3:.3f}", f"{small * 1e3:.3f}", f"{ratio:.2f}", f"{rate:.1f}"
                table.add_row(f"{depth} x {columns}", str(rows), *shown)
    Console().print(table)


if __name__ == "__main__":
    main()
