"""One row by weights of int4, int8 and fp8 beside llama.cpp's Q4_0 and Q8_0 of the same sizes, on this CPU:

    python -m bench.llama_beside --llama-python DIR/bin/python [--dtype bfloat16] [--decode]

Products of one row with as many weights as no cache holds, or with --decode a step of a llama behind 128 tokens. All
take turns, with reading memory as fast as it goes (bench/peaks.py). Ratios are medians of those of the turns.

llama.cpp rounds activations to 8 bits and multiplies integers; Hardtack multiplies floats, weights rounded as the model
has them. Q4_0 and Q8_0 have a scale of 16 bits for 32 weights.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import hardtack
from bench import language, models, peaks

SHAPES = ((4096, 4096), (4096, 11008), (11008, 4096), (2048, 8192))
"""(K, N) of weights."""
WEIGHTS = 128_000_000
"""At least so many in a module: no cache holds them."""
PEERS = {"int4:32": "q4_0", "int4": "q4_0", "int8": "q8_0", "fp8": "q8_0"}
"""Options.weights -> what of llama.cpp is beside it."""
BITS = {"q4_0": 4.5, "q8_0": 8.5}
CALLS = 3
"""Of a turn, behind one that is not counted; llama_worker.py has as many."""
LLAMAS = {"8 x 1024": (8, 1024, 2816, 16, 4), "6 x 2048": (6, 2048, 5632, 32, 8)}
"""layers, hidden, feed-forward, heads, heads of keys and values."""
_VOCABULARY, _CACHED = 32000, 128


class LlamaError(click.ClickException):
    """There is no llama.cpp, or it says what is wrong."""


class Products(nn.Module):
    """x (1, K) by `count` weights."""

    def __init__(self, k: int, n: int, count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(k, n, bias=False) for _ in range(count))

    def forward(self, x: Tensor) -> list[Tensor]:
        return [layer(x) for layer in self.layers]


class Llama:
    """llama_worker.py."""

    def __init__(self, python: str, threads: int, *what: str) -> None:
        command = [python, str(Path(__file__).with_name("llama_worker.py")), str(threads), *what]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self._line()
        if said.startswith("absent"):
            raise LlamaError(
                f"{python} has not all of llama.cpp ({said}): python -m venv DIR && "
                "DIR/bin/pip install llama-cpp-python gguf (a quarter of an hour of compiling), then "
                "--llama-python DIR/bin/python"
            )

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise LlamaError(f"llama.cpp's process ended with status {self._process.wait()}")
        return line.strip()

    def seconds(self, kind: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{kind}\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def exported(module: nn.Module, args: tuple[Tensor, ...], dtype: torch.dtype, folder: Path) -> dict[str, Path]:
    """A bundle for each of PEERS."""
    found = {}
    module = module.eval().requires_grad_(False).to(dtype)
    for weights in PEERS:
        found[weights] = folder / f"{weights.replace(':', '_')}.pkg"
        options = hardtack.Options(weights=weights)
        hardtack.export(module, args, path=found[weights], targets=("cpu:native",), options=options)
    return found


def seconds(session: Any, args: Sequence[Tensor]) -> float:
    session(*args)
    start = time.perf_counter()
    for _ in range(CALLS):
        session(*args)
    return (time.perf_counter() - start) / CALLS


def nbytes_of(weights: str, numel: int, dtype: torch.dtype, k: int) -> float:
    """Codes and scales of weights whose rows have k."""
    kind, _, group = weights.partition(":")
    shared = int(group or 128) if kind == "int4" else k
    return numel * ((4 if kind == "int4" else 8) / 8 + dtype.itemsize / shared)


def measure(
    title: str,
    bundles: dict[str, Path],
    args: tuple[Tensor, ...],
    numel: int,
    k: int,
    llama: Llama,
    threads: int,
    rounds: int,
) -> Table:
    """A table: a row for each of PEERS. numel: weights that a call reads."""
    read = peaks.reader(threads)
    sessions = {name: hardtack.load(path, threads=threads).session() for name, path in bundles.items()}
    turns = []
    for _ in range(rounds):
        ours = {name: seconds(session, args) for name, session in sessions.items()}
        turns.append((1 / read(), ours, {kind: llama.seconds(kind) for kind in BITS}))
    columns = ("ms", "GB/s", "of read", "llama.cpp", "its ms", "its GB/s", "its time / ours")
    table = Table(f"{title}, {threads} thread{'s' if threads > 1 else ''}", *columns)
    middle = statistics.median
    for name, kind in PEERS.items():
        nbytes = nbytes_of(name, numel, args[-1].dtype, k)
        took, its = middle(o[name] for _, o, _ in turns), middle(t[kind] for _, _, t in turns)
        share = middle(r * nbytes / o[name] for r, o, _ in turns)
        ratio = middle(t[kind] / o[name] for _, o, t in turns)
        its_rate = numel * BITS[kind] / 8 / its / 1e9
        table.add_row(
            name, f"{took * 1e3:.2f}", f"{nbytes / took / 1e9:.1f}", f"{share:.0%}", kind, f"{its * 1e3:.2f}",
            f"{its_rate:.1f}", f"{ratio:.2f}",
        )  # fmt: skip
    table.caption = f"read: {1e-9 / middle(r for r, _, _ in turns):.1f} GB/s"
    return table


def decoder(layers: int, hidden: int, inner: int, heads: int, key_heads: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    model = language.llama(layers, hidden, inner, heads, key_heads)
    cache = models.normal(layers, 1, key_heads, _CACHED, hidden // heads)
    ids, position = torch.tensor([[11]]), torch.tensor([[_CACHED]])
    return language.Decode(model, layers), (ids, position, cache, cache.flip(3).contiguous())


@click.command(help=__doc__)
@click.option("--llama-python", default=sys.executable, help="Where llama-cpp-python and gguf are installed.")
@click.option("--threads", multiple=True, type=int, default=(1, 2), show_default=True)
@click.option("--rounds", default=15, show_default=True, help="Turns of each.")
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), default="float32", show_default=True)
@click.option("--decode", is_flag=True, help="A step of a llama in place of products.")
@click.option("--only", default="", help="Those alone in whose title this is.")
def main(llama_python: str, threads: tuple[int, ...], rounds: int, dtype: str, decode: bool, only: str) -> None:
    number, console = getattr(torch, dtype), Console(width=150)
    for title, *sizes in [(n, *s) for n, s in LLAMAS.items()] if decode else [(f"{k} x {n}", k, n) for k, n in SHAPES]:
        if only not in title:
            continue
        with tempfile.TemporaryDirectory() as folder:
            if decode:
                module, args = decoder(*sizes)
                args = tuple(a.to(number) if a.is_floating_point() else a for a in args)
                numel = sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear))
                names = ("layers", "hidden", "inner", "heads", "key_heads", "vocabulary", "cached")
                what = ("decode", json.dumps(dict(zip(names, (*sizes, _VOCABULARY, _CACHED), strict=True))))
                k = sizes[1]
            else:
                k, n = sizes
                count = math.ceil(WEIGHTS / (k * n))
                module, args, numel = Products(k, n, count), (torch.randn(1, k).to(number),), count * k * n
                what = ("products", str(k), str(n), str(count))
            bundles = exported(module, args, number, Path(folder))
            for t in threads:
                llama = Llama(llama_python, t, *what)
                console.print(measure(title, bundles, args, numel, k, llama, t, rounds))
                llama.close()


if __name__ == "__main__":
    main()
