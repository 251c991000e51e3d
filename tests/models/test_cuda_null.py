"""Tensor maps on the null driver. Whole models are run on it by test_bundles.py."""

from __future__ import annotations

from pathlib import Path

import torch
from null_driver import NullDriver

import hardtack
from tests.models.launched import RUNS, TARGET, records


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
