"""hardtack-rt on small bundles under compute-sanitizer: no access outside memory, no race on shared memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import hardtack
from bench import gpu_models
from hardtack.codegen.package.bundle import open_bundle

SANITIZER = shutil.which("compute-sanitizer")
BAD = 86
"""The tool's exit status when it found something."""
LIMIT_S = 300

pytestmark = pytest.mark.skipif(SANITIZER is None, reason="no compute-sanitizer on the PATH: it comes with CUDA")

Made = tuple[nn.Module, tuple[torch.Tensor, ...]]


def softmax() -> Made:
    return nn.Softmax(-1), (torch.randn(100, 1000),)


def gemm() -> Made:
    """A product whose sizes are no multiples of a tile's, with an epilogue."""
    return nn.Sequential(nn.Linear(200, 136), nn.GELU()).half(), (torch.randn(130, 200).half(),)


def decode() -> Made:
    """A step of a decoder: attention over a cache that is state of the session."""
    return gpu_models.Decoder(256, 2, 8, 2, 512, 1000, 64).half(), (torch.tensor([[7]]), torch.tensor([5]))


CASES: dict[str, Callable[[], Made]] = {f.__name__: f for f in (softmax, gemm, decode)}


def command(name: str, folder: Path, target: str) -> list[str]:
    """Exports the case; what runs it on its inputs."""
    torch.manual_seed(0)
    module, args = CASES[name]()
    path = folder / "m.pkg"
    hardtack.export(module.eval().requires_grad_(False), args, path=path, targets=(target,))
    with open_bundle(path) as bundle:
        inputs = bundle.manifest.entries[0].inputs
    out = [str(Path(sys.executable).parent / "hardtack-rt"), "run", str(path), "--device", "cuda:0"]
    for spec, tensor in zip(inputs, args, strict=True):
        np.save(folder / f"{spec.name}.npy", tensor.numpy())
        out += ["-i", f"{spec.name}={folder / spec.name}.npy"]
    return [*out, "-o", str(folder / "out")]


def sanitize(tool: str, program: Sequence[str]) -> None:
    """Errors that the driver returns are no findings: asking for one parameter too many is how the runtime counts."""
    assert SANITIZER is not None
    options = ["--tool", tool, "--error-exitcode", str(BAD)]
    if tool == "memcheck":
        options += ["--report-api-errors", "no"]
    done = subprocess.run([SANITIZER, *options, *program], capture_output=True, text=True, timeout=LIMIT_S)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "========= COMPUTE-SANITIZER" in said, f"{tool} did not run:\n{said}"


@pytest.mark.parametrize("name", CASES)
def test_no_access_outside_memory(name: str, tmp_path: Path, target: str) -> None:
    sanitize("memcheck", command(name, tmp_path, target))
    assert list((tmp_path / "out").glob("*.npy"))


def test_no_race_on_shared_memory(tmp_path: Path, target: str) -> None:
    sanitize("racecheck", command("softmax", tmp_path, target))
