"""64-bit Arm on another machine: Debian's cross compiler, and qemu-user, which runs what it builds."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

CXX = "aarch64-linux-gnu-g++"
_QEMU = "qemu-aarch64"
_SYSROOT = Path("/usr/aarch64-linux-gnu")
PLAIN, MAX = "cortex-a57", "max"
"""CPUs of qemu's: one of Armv8-A and nothing beyond, where a newer instruction ends a process; one with all of them."""


def missing() -> str | None:
    """Why nothing can be built for aarch64 and run here, or None."""
    if platform.machine() in ("aarch64", "arm64"):
        return "this machine is aarch64: what would be emulated runs natively in the other tests"
    absent = [name for name in (CXX, _QEMU) if shutil.which(name) is None]
    return (
        f"aarch64 is not emulated here, there is no {' and no '.join(absent)}: ./dev test installs it"
        if absent
        else None
    )


def emulated(command: Sequence[str], cpu: str = MAX) -> list[str]:
    """The command line that runs a program for aarch64 here."""
    return [_QEMU, "-cpu", cpu, "-L", str(_SYSROOT), *command]


needs_aarch64 = pytest.mark.skipif(missing() is not None, reason=missing() or "")
"""Skips a test where aarch64 is not emulated."""
