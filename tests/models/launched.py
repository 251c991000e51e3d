"""Bundles for a GPU on the null driver: launch records and pointers, no results.

The driver checks grids, blocks, clusters, shared memory, where pointers lie and how they are aligned, and tensor maps;
the `driver` fixture fails a test after which it saw a problem or has something left.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from null_driver import NullDriver

import hardtack
from hardtack.codegen.ir.plan import GpuKernel
from hardtack.codegen.package.bundle import open_bundle

TARGET = "cuda:sm_90"
RUNS = 3
"""Plain, recorded, replayed."""


def leaves(value: Any) -> list[Any]:
    """The tensors of a nested result, in order."""
    if value is None:
        return []
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return [value]
    items = value.values() if hasattr(value, "values") else value
    return [leaf for item in items for leaf in leaves(item)]


def records(path: Path) -> list[GpuKernel]:
    """How the bundle's kernels are launched."""
    with open_bundle(path) as bundle:
        return [k.gpu for k in bundle.plan("forward", TARGET).kernels if k.gpu is not None]


def run(path: Path, driver: NullDriver, calls: Sequence[tuple[Sequence[Any], Any]]) -> set[str]:
    """Runs the bundle on the arguments of all calls, each of which must give what is beside them but for the values;
    the functions that it launched."""
    session = hardtack.load(path, device="cuda", cuda_driver=driver.path).session("forward")
    seen: set[str] = set()
    for args, result in calls:
        wanted = leaves(result)
        driver.log()
        for _ in range(RUNS):
            got = leaves(session(*args))
            assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in wanted]
        log = driver.log()
        names = [line.split()[1] for line in log if line.startswith("launch ")]
        half = len(names) // 2
        assert names[:half] == names[half:], "what is recorded differs from what was run"
        assert sum(line.startswith("graph of ") for line in log) >= RUNS - 1
        seen |= set(names)
    return seen
