"""Every model of the zoo compiled for a GPU and run on the null driver: launch records and pointers, no results.

The driver checks grids, blocks, clusters, shared memory, where pointers lie and how they are aligned, and tensor maps;
the `driver` fixture fails a test after which it saw a problem or has something left.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from null_driver import NullDriver

import hardtack
from hardtack.codegen.ir.plan import GpuKernel
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from tests.models import zoo
from tests.models.test_bundles import leaves, load

TARGET = "cuda:sm_90"
RUNS = 3
"""Plain, recorded, replayed."""


def records(path: Path) -> list[GpuKernel]:
    """How the bundle's kernels are launched."""
    with open_bundle(path) as bundle:
        return [k.gpu for k in bundle.plan("forward", TARGET).kernels if k.gpu is not None]


def run(path: Path, driver: NullDriver, module: Any, inputs: Sequence[Sequence[Any]]) -> set[str]:
    """Runs the bundle on all inputs, which must give what eager gives but for the values; the functions it launched."""
    session = hardtack.load(path, device="cuda", cuda_driver=driver.path).session("forward")
    seen: set[str] = set()
    for args in inputs:
        with torch.no_grad():
            wanted = leaves(copy.deepcopy(module)(*args))
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


@pytest.mark.sweep(over="dynamic")
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", zoo.NAMES)
def test_launches(name: str, dynamic: bool, tmp_path: Path, driver: NullDriver) -> None:
    """Static, and with the first declaration of dynamic dimensions at all sizes."""
    model = load(name)
    path = tmp_path / "m.pkg"
    hardtack.export(
        copy.deepcopy(model.module),
        model.args,
        path=path,
        dynamic_shapes=model.dynamic[0] if dynamic else None,
        targets=(TARGET,),
        options=hardtack.Options(strict=model.strict),
    )
    assert verify_bundle(path).num_plans == 1
    kernels = {k.function for k in records(path)}
    assert run(path, driver, model.module, [model.args, *(model.others if dynamic else ())]) == kernels


def test_tensor_maps_are_where_the_compiled_code_has_them(tmp_path: Path, driver: NullDriver) -> None:
    """A product large enough for tensor maps. They are aligned to 64 bytes in the constant bank, where parameters do
    not begin at a multiple of 64: their offsets among the parameters are not multiples of 64 either."""
    torch.manual_seed(0)
    module = torch.nn.Linear(768, 3072).bfloat16().eval()
    x = torch.randn(32, 197, 768, dtype=torch.bfloat16)
    path = tmp_path / "m.pkg"
    hardtack.export(module, (x,), path=path, targets=(TARGET,))
    (kernel,) = [k for k in records(path) if k.maps]
    driver.log()
    session = hardtack.load(path, device="cuda", cuda_driver=driver.path).session()
    for _ in range(RUNS):
        y = session(x)
    assert (y.shape, y.dtype) == ((32, 197, 3072), torch.bfloat16)
    log = driver.log()
    assert sum(line.startswith("map rank 2") for line in log) == len(kernel.maps)
    assert sum(line.startswith(f"launch {kernel.function} ") for line in log) == 2
    assert session.memory["num_graphs"] == 1
