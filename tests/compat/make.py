"""Makes the bundles of this release that every later one must load: one for each kind of content, with inputs and bits.

python tests/compat/make.py     writes tests/compat/<version>/, once: what a release promised is not made again

A folder has NAME.pkg, and NAME.npz with what each run in a row gets and gives: "0 in 0", "0 out 0", "1 in 0", ...
Needs torch; commit what it writes. docs/package.md has the promise.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import nn

import hardtack
from hardtack.codegen.package import signing
from hardtack.codegen.package.signing import Release
from hardtack.codegen.package.writer import write_bundle

HERE = Path(__file__).parent
TARGETS = ("cpu:x86-64-v3", "cpu:aarch64")
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
Runs = Sequence[tuple[str, tuple[torch.Tensor, ...]]]
"""Entry points and their inputs, one run after the other in one session."""


class Memory(nn.Module):
    """Two states: rows that were given, and how many."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.arange(12.0).reshape(4, 3))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.rows.copy_(torch.cat([self.rows[1:], x[None]]))  # type: ignore[operator]
        self.count.add_(1)  # type: ignore[operator]
        return self.rows.sum(0), self.count * 2  # type: ignore[operator]


class Flow(nn.Module):
    """A conditional and a loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        cond: Any = torch.cond
        loop: Any = torch._higher_order_ops.while_loop
        y = cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,))
        return loop(lambda i, v: i < 5, lambda i, v: (i + 1, v * 2 + 1), (torch.tensor(0), y))[1]  # type: ignore[no-any-return]


class Encode(nn.Module):
    """Products, a norm, softmax, in a dynamic batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.second(torch.relu(self.norm(self.first(x)))), -1)


class Types(nn.Module):
    """Half types, integers and bools; sorting and picking."""

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        order = torch.argsort(x, dim=-1, stable=True)
        return x.half() * 3, (x > 0) & (i > 2), torch.gather(i, 1, order), x.bfloat16().float().cumsum(1), i // 3


def numbers(*shape: int) -> torch.Tensor:
    """The same on every machine, positive and negative."""
    count = int(np.prod(shape))
    return (torch.arange(count, dtype=torch.float32).reshape(shape) * 7919 % 31 - 15) / 8


def seeded(module: nn.Module) -> nn.Module:
    """A module whose parameters are `numbers`."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(numbers(*p.shape) / 4)
    return module.eval()


def states(path: Path) -> Runs:
    hardtack.export(Memory().eval(), (numbers(3),), path=path, targets=TARGETS, progress=False)
    return [("forward", (numbers(3) * k,)) for k in (1, 2, 3)]


def control_flow(path: Path) -> Runs:
    hardtack.export(Flow().eval(), (numbers(5),), path=path, targets=TARGETS, progress=False)
    return [("forward", (numbers(5) * k,)) for k in (1, -1)]


def _entries(path: Path, **options: Any) -> Runs:
    batch = torch.export.Dim("batch", min=1, max=64)
    model = seeded(Encode())
    assert isinstance(model, Encode)
    modules = {"whole": model, "first": model.first}
    hardtack.export(
        modules,
        dict.fromkeys(modules, (numbers(3, 6),)),
        path=path,
        dynamic_shapes=dict.fromkeys(modules, ({0: batch},)),
        targets=TARGETS,
        options=hardtack.Options(**options),
        progress=False,
    )
    return [("whole", (numbers(3, 6),)), ("first", (numbers(1, 6),)), ("whole", (numbers(17, 6),))]


def external(path: Path) -> Runs:
    return _entries(path, external_weights=True)


def types(path: Path) -> Runs:
    x, i = numbers(3, 7), torch.arange(21).reshape(3, 7) % 5
    hardtack.export(Types().eval(), (x, i), path=path, targets=TARGETS, progress=False)
    return [("forward", (x, i))]


def signed(path: Path) -> Runs:
    runs = _entries(path)
    signing.sign_bundle(path, KEY, release=Release("compat", 1))
    return runs


def signed_without_version(path: Path) -> Runs:
    runs = _entries(path)
    signing.sign_bundle(path, KEY)
    return runs


def cuda(path: Path) -> Runs:
    import sample_cuda

    write_bundle(path, sample_cuda.content())
    return []


def hip(path: Path) -> Runs:
    import sample_hip

    write_bundle(path, sample_hip.content())
    return []


KINDS: Mapping[str, Callable[[Path], Runs]] = {
    "states": states,
    "control_flow": control_flow,
    "entries": _entries,
    "external": external,
    "types": types,
    "signed": signed,
    "signed_without_version": signed_without_version,
    "cuda": cuda,
    "hip": hip,
}


def outputs(path: Path, runs: Runs) -> dict[str, np.ndarray[Any, Any]]:
    """What the runtime gives for the runs, with their inputs; in one session for each entry point."""
    model = hardtack.load(path, threads=1)
    sessions = {entry: model.session(entry) for entry, _ in runs}
    found: dict[str, np.ndarray[Any, Any]] = {}
    for k, (entry, inputs) in enumerate(runs):
        arrays = [x.numpy() for x in inputs]
        result = sessions[entry](*arrays)
        found |= {f"{k} {entry} in {i}": a for i, a in enumerate(arrays)}
        results = result if isinstance(result, tuple) else (result,)
        found |= {f"{k} {entry} out {i}": np.array(a) for i, a in enumerate(results)}
    return found


def main() -> None:
    folder = HERE / hardtack.__version__
    if folder.exists():
        sys.exit(f"{folder} exists: the bundles of a release are made once")
    sys.path.insert(0, str(HERE.parent / "support"))
    folder.mkdir()
    for name, make in KINDS.items():
        path = folder / f"{name}.pkg"
        runs = make(path)
        if runs:
            np.savez_compressed(path.with_suffix(".npz"), **outputs(path, runs))
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
