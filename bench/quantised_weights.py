"""Products with weights of int8, fp8 and int4 beside the same in the activations' type, on this CPU:
python -m bench.quantised_weights [--dtype bfloat16].

Each is a linear layer in a bundle of its own; they take turns, and ratios are medians of those of the turns.
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
ROWS = (1, 4, 8, 32, 256)
GROUP = 128
CALLS = 3
"""Of a turn."""


class Wide(nn.Module):
    """x (M, K) times the transpose of weights (N, K) of its own type, whose rows have scales."""

    def __init__(self, depth: int, columns: int) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.weight = nn.Buffer(self.numbers(columns, depth, g))
        self.scales = nn.Buffer(torch.rand(columns, generator=g) * 0.01)

    def numbers(self, columns: int, depth: int, g: torch.Generator) -> torch.Tensor:
        """The weights, as they are stored."""
        return torch.randn(columns, depth, generator=g)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scales.to(x.dtype)


class Bytes(Wide):
    """The same of int8."""

    def numbers(self, columns: int, depth: int, g: torch.Generator) -> torch.Tensor:
        return torch.randint(-128, 128, (columns, depth), generator=g).to(torch.int8)


class Floats(Wide):
    """Of float8_e4m3fn."""

    def numbers(self, columns: int, depth: int, g: torch.Generator) -> torch.Tensor:
        return (torch.randn(columns, depth, generator=g) * 64).to(torch.float8_e4m3fn)


class Groups(Wide):
    """Of int4, with zero points and scales of GROUP neighbours along K."""

    def __init__(self, depth: int, columns: int) -> None:
        super().__init__(depth, columns)
        g = torch.Generator().manual_seed(1)
        self.zeros = nn.Buffer(torch.randint(-8, 8, (columns, depth // GROUP), generator=g).to(torch.int8))
        self.scales = nn.Buffer(torch.rand(columns, depth // GROUP, generator=g) * 0.01)

    def numbers(self, columns: int, depth: int, g: torch.Generator) -> torch.Tensor:
        return torch.randint(-8, 8, (columns, depth), generator=g).to(torch.int8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zeros, scales = (t.to(x.dtype).repeat_interleave(GROUP, 1) for t in (self.zeros, self.scales))
        return F.linear(x, (self.weight.to(x.dtype) - zeros) * scales)


LAYERS = (Wide, Bytes, Floats, Groups)


def bits_of(dtype: torch.dtype) -> tuple[float, ...]:
    """Of a weight in each behind Wide, its part of tables with it."""
    return 8.0, 8.0, 4 + 2 * 8 * dtype.itemsize / GROUP


def session(folder: Path, layer: type[Wide], depth: int, columns: int, x: torch.Tensor, threads: int) -> Any:
    """Warm."""
    path = folder / f"{layer.__name__}.pkg"
    hardtack.export(layer(depth, columns).eval(), (x,), path=path, targets=("cpu:native",))
    made = hardtack.load(path, threads=threads).session()
    made(x)
    return made


def seconds(call: Any, x: torch.Tensor) -> float:
    """Of a call behind others of its kind: the workers of the one before are at rest then, and its own awake."""
    call(x)
    start = time.perf_counter()
    for _ in range(CALLS):
        call(x)
    return (time.perf_counter() - start) / CALLS


@click.command(help=__doc__)
@click.option("--threads", default=2, show_default=True)
@click.option("--rounds", default=30, show_default=True, help="Turns of each.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16", "float16"]), default="float32", show_default=True)
def main(threads: int, rounds: int, dtype: str) -> None:
    number = getattr(torch, dtype)
    titles = (f"{dtype}, ms", *(c for name in ("int8", "fp8", "int4") for c in (f"{name}, ms", "ratio", "GB/s")))
    table = Table("K x N", "rows", *titles)
    with tempfile.TemporaryDirectory() as folder:
        for depth, columns in SHAPES:
            for rows in ROWS:
                x = torch.randn(rows, depth).to(number)
                made = [session(Path(folder), layer, depth, columns, x, threads) for layer in LAYERS]
                turns = [[seconds(call, x) for call in made] for _ in range(rounds)]
                shown = [f"{statistics.median(t[0] for t in turns) * 1e3:.3f}"]
                for k, bits in enumerate(bits_of(number), 1):
                    small = statistics.median(t[k] for t in turns)
                    ratio = statistics.median(t[0] / t[k] for t in turns)
                    shown += [f"{small * 1e3:.3f}", f"{ratio:.2f}", f"{depth * columns * bits / 8 / small / 1e9:.1f}"]
                table.add_row(f"{depth} x {columns}", str(rows), *shown)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
