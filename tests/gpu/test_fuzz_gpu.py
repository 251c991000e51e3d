"""A fixed sample of the fuzzer's programs on the GPU, in all its ways; ./dev fuzz models --device cuda runs others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_fixed_sample_of_programs() -> None:
    """A process of its own: its children are forks, which a process that has used CUDA cannot have."""
    command = [sys.executable, "-m", "tests.fuzz", "models", "--device", "cuda", "--seed", "7200", "--count", "48"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-4000:]
    assert " right " in ran.stdout
