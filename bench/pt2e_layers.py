"""Layers that PT2E has quantised, static, beside float32: python -m bench.pt2e_layers.

Each is two layers with a ReLU behind each, so that codes go from one to the other. They take turns, and the ratio is
the median of those of the turns.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from bench.machine import multiplies_bytes
from bench.quantised_products import bundle
from bench.quantised_weights import seconds
from bench.quantisers import by_pt2e

Case = tuple[Callable[[], nn.Module], tuple[int, ...]]


def convolutions(channels: int, kernel: int, groups: int = 1) -> Callable[[], nn.Module]:
    """Two convolutions that keep the size of images."""

    def make() -> nn.Module:
        def conv() -> nn.Conv2d:
            return nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=groups)

        return nn.Sequential(conv(), nn.ReLU(), conv(), nn.ReLU())

    return make


def stem() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU())


def products(width: int, hidden: int) -> Callable[[], nn.Module]:
    """A feed-forward layer."""
    return lambda: nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU())


CASES: dict[str, Case] = {
    "linear 768, 3072, 128 rows": (products(768, 3072), (128, 768)),
    "linear 768, 3072, 16 rows": (products(768, 3072), (16, 768)),
    "linear 768, 3072, 1 row": (products(768, 3072), (1, 768)),
    "linear 64, 128, 16 rows": (products(64, 128), (16, 64)),
    "3 x 3, 32 channels, 56 x 56": (convolutions(32, 3), (1, 32, 56, 56)),
    "3 x 3, 64 channels, 56 x 56": (convolutions(64, 3), (1, 64, 56, 56)),
    "3 x 3, 256 channels, 14 x 14": (convolutions(256, 3), (1, 256, 14, 14)),
    "1 x 1, 64 channels, 56 x 56": (convolutions(64, 1), (1, 64, 56, 56)),
    "1 x 1, 512 channels, 14 x 14": (convolutions(512, 1), (1, 512, 14, 14)),
    "5 x 5, 64 channels, 28 x 28": (convolutions(64, 5), (1, 64, 28, 28)),
    "3 x 3, 4 groups of 32, 28 x 28": (convolutions(128, 3, 4), (1, 128, 28, 28)),
    "from 3 channels, 224 x 224": (stem, (1, 3, 224, 224)),
}


@click.command(help=__doc__)
@click.option("--threads", default=1, show_default=True)
@click.option("--rounds", default=30, show_default=True, help="Turns of each.")
@click.option("--only", default="", help="Cases whose name has this.")
def main(threads: int, rounds: int, only: str) -> None:
    table = Table("layers", "float32, us", "int8, us", "float32 / int8")
    for name, (make, shape) in CASES.items():
        if only not in name:
            continue
        torch.manual_seed(0)
        module, x = make().eval(), torch.randn(shape)
        with tempfile.TemporaryDirectory() as folder:
            wide = bundle(Path(folder) / "wide.pkg", module, x, threads)
            narrow = bundle(Path(folder) / "int8.pkg", by_pt2e(module, (x,), not multiplies_bytes()), x, threads)
            turns = [(seconds(wide, x), seconds(narrow, x)) for _ in range(rounds)]
        shown = [f"{statistics.median(t[k] for t in turns) * 1e6:.0f}" for k in (0, 1)]
        table.add_row(name, *shown, f"{statistics.median(w / n for w, n in turns):.2f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
