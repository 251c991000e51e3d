"""Bundles for aarch64 through a hardtack-rt for aarch64 under qemu-user: equal to eager, as test_bundles.py has it, and
on the target that the CPU has the features of.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hardtack
from tests.models.test_bundles import assert_close
from tests.support.aarch64 import MAX, PLAIN, emulated, needs_aarch64
from tests.support.builds import bring_up_to_date

pytestmark = needs_aarch64
TARGETS = ("cpu:aarch64-bf16", "cpu:aarch64")


@pytest.fixture(scope="module")
def program() -> Path:
    return bring_up_to_date("hardtack-rt", preset="aarch64") / "runtime_cpp" / "tools" / "hardtack-rt"


def call(program: Path, cpu: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = emulated([str(program), *map(str, arguments)], cpu)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def to_file(path: Path, tensor: torch.Tensor) -> None:
    """As .npy; bfloat16 as the bits, which hardtack-rt takes for it."""
    np.save(path, (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy())


@dataclass(frozen=True)
class Program:
    """A bundle and the program that runs it."""

    program: Path
    bundle: Path

    def run(self, args: tuple[torch.Tensor, ...], dtype: torch.dtype, *, cpu: str, threads: int = 1) -> torch.Tensor:
        """The only output, of ``dtype``."""
        folder = self.bundle.parent
        entry = json.loads(self.inspect(cpu).stdout)["manifest"]["entries"][0]
        command: list[str | Path] = ["run", self.bundle, "-o", folder, "--threads", str(threads)]
        for given, tensor in zip(entry["inputs"], args, strict=True):
            path = folder / f"in_{given['name']}.npy"
            to_file(path, tensor)
            command += ["-i", f"{given['name']}={path}"]
        done = call(self.program, cpu, *command)
        assert done.returncode == 0, done.stdout + done.stderr
        found = torch.from_numpy(np.load(folder / f"{entry['outputs'][0]['name']}.npy"))
        return found.view(dtype) if dtype is torch.bfloat16 else found

    def inspect(self, cpu: str) -> subprocess.CompletedProcess[str]:
        return call(self.program, cpu, "inspect", "--json", self.bundle)


class LastOf(nn.Module):
    """An LSTM's outputs alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(12, 40, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]  # type: ignore[no-any-return]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(70, 130), nn.GELU(), nn.LayerNorm(130), nn.Linear(130, 33), nn.Softmax(-1))


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1), nn.BatchNorm2d(24), nn.SiLU(),
        nn.Conv2d(24, 24, 3, padding=1, groups=24), nn.ReLU(), nn.Conv2d(24, 40, 1), nn.MaxPool2d(2),
        nn.ConvTranspose2d(40, 8, 2, stride=2), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 10),
    )  # fmt: skip


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(48, 4, 100, batch_first=True)


MODELS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "mlp": (mlp, (5, 70)),
    "conv_net": (conv_net, (2, 3, 19, 22)),
    "transformer": (transformer, (2, 17, 48)),
    "lstm": (LastOf, (3, 6, 12)),
}


def made(program: Path, folder: Path, name: str, dtype: torch.dtype) -> tuple[Program, nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    build, shape = MODELS[name]
    module, x = build().eval().to(dtype), torch.randn(shape).to(dtype)
    hardtack.export(module, (x,), path=folder / "m.pkg", targets=TARGETS)
    return Program(program, folder / "m.pkg"), module, x


KEPT = (("float32", "transformer"), ("bfloat16", "conv_net"), ("float16", "lstm"), ("float16", "mlp"))
"""Of each dtype and each model one."""
DTYPES = [("float32", MODELS), ("bfloat16", MODELS), ("float16", ("mlp", "lstm"))]
CASES = [
    pytest.param(*case, marks=() if case in KEPT else pytest.mark.sweep(only=True))
    for case in ((dtype, name) for dtype, names in DTYPES for name in names)
]


@pytest.mark.parametrize(("dtype", "name"), CASES)
def test_a_model_equals_eager_on_both_targets(program: Path, tmp_path: Path, dtype: str, name: str) -> None:
    bundle, module, x = made(program, tmp_path, name, getattr(torch, dtype))
    for cpu in (PLAIN, MAX):
        assert_close(bundle.run((x,), x.dtype, cpu=cpu, threads=2), module, (x,))


def test_the_demos_model_equals_eager(program: Path, tmp_path: Path) -> None:
    try:
        from examples.classify.demo import load_model, write_photo

        module, photo = load_model(), write_photo()
    except (ModuleNotFoundError, FileNotFoundError) as missing:
        pytest.skip(f"the demo's model: {missing}")
    x = torch.from_numpy(photo.copy())[None]
    bundle = Program(program, tmp_path / "m.pkg")
    hardtack.export(module, (x,), path=bundle.bundle, targets=("cpu:aarch64",))
    found = bundle.run((x,), torch.float32, cpu=PLAIN)
    assert found.argmax() in range(281, 286)  # of ImageNet's classes those of cats
    with torch.no_grad():
        torch.testing.assert_close(found, module(x), rtol=1e-4, atol=1e-6)


def test_the_best_target_that_the_cpu_runs_is_taken(program: Path, tmp_path: Path) -> None:
    bundle, _, _ = made(program, tmp_path, "mlp", torch.float32)
    for cpu, runnable in ((PLAIN, ["cpu:aarch64"]), (MAX, list(TARGETS))):
        found = json.loads(bundle.inspect(cpu).stdout)
        assert found["runnable_targets"] == runnable
        assert found["target"] == runnable[0]
    refused = call(program, PLAIN, "run", bundle.bundle, "--target", TARGETS[0])
    assert refused.returncode == 1
    lacks = "target cpu:aarch64-bf16 needs bf16, dotprod, which this machine lacks"
    assert refused.stderr == f"error: {bundle.bundle}: {lacks}\n"
