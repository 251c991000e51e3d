"""Programs of the release build, for tests that run side by side in several processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build" / "release"


def bring_up_to_date(target: str, *options: str, preset: str = "release") -> Path:
    """Builds a target of a build, with CMake options; gives the build's folder. One process at a time."""
    jobs = os.environ.get("HARDTACK_JOBS", str(os.cpu_count()))
    folder = ROOT / "build" / preset
    folder.parent.mkdir(exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        for command in (
            ["cmake", "--preset", preset, *options],
            ["cmake", "--build", "--preset", preset, "-j", jobs, "--target", target],
        ):
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return folder


def build_faults(folder: Path) -> Path:
    """Compiles faults.cpp, a library for LD_PRELOAD that makes calls fail."""
    library = folder / "faults.so"
    source = ROOT / "tests" / "support" / "faults.cpp"
    build = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(build, check=True)
    return library
