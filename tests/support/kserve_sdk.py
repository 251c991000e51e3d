"""The environment of KServe's SDK, build/kserve: it needs older packages than ours. ./dev test runs this file while the
runtime is built; a test that finds no environment makes it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "build" / "kserve"


class NoSdk(Exception):
    """The SDK cannot be installed here."""


def sdk_python() -> Path:
    """The environment's Python; made on demand. Raises NoSdk where that cannot be."""
    requirements, stamp = ROOT / "requirements" / "kserve.txt", VENV / "requirements.stamp"
    wanted, program = hashlib.sha256(requirements.read_bytes()).hexdigest(), VENV / "bin" / "python"
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(VENV, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        command = [program, "-m", "pip", "install", "-q", "-q", "--no-compile", "--no-deps", "-r", requirements]
        if subprocess.run(command, check=False).returncode != 0:
            raise NoSdk("KServe's SDK, requirements/kserve.txt, cannot be installed")
        stamp.write_text(wanted)
    return program


if __name__ == "__main__":
    try:
        sdk_python()
    except NoSdk as error:
        sys.exit(str(error))
