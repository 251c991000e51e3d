"""The CPU of the machine that builds, as a target: the only one that depends on where the build runs."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

from hardtack.codegen.machine.data import AARCH64, AARCH64_BF16, AMX, X86_64_V3, X86_64_V4, X86_64_V4_BF16
from hardtack.codegen.machine.machine import Cpu, TargetError

# /proc/cpuinfo spells some features differently from the compilers' flags.
_CPUINFO_NAMES = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avxvnni": "avx_vnni",
    "amx-tile": "amx_tile",
    "amx-bf16": "amx_bf16",
}
# Features beyond a level that ``native`` turns on where the host has them: those that kernels could gain from.
_EXTRAS_V3 = ("avxvnni",)
_EXTRAS_V4 = ("avx512vnni", "avx512fp16", "avx512vbmi", "avx512vbmi2", "avxvnni")
_LEVELS = ((AMX, _EXTRAS_V4), (X86_64_V4_BF16, _EXTRAS_V4), (X86_64_V4, _EXTRAS_V4), (X86_64_V3, _EXTRAS_V3))


def host_features(cpuinfo: str) -> frozenset[str]:
    """The features, by compiler flag name, in the text of /proc/cpuinfo."""
    lines = (line.split(":", 1) for line in cpuinfo.splitlines() if line.startswith(("flags", "Features")))
    present = set(next((line[1].split() for line in lines), []))
    wanted = {name for level, extras in _LEVELS for name in (*level.features, *extras)} | {*AARCH64_BF16.features}
    return frozenset(name for name in wanted if _CPUINFO_NAMES.get(name, name) in present)


def native_cpu(machine: str | None = None, cpuinfo: str | None = None) -> Cpu:
    """The best target that this machine can run.

    ``machine`` and ``cpuinfo`` stand in for ``platform.machine()`` and the text of /proc/cpuinfo.
    Raises TargetError on a machine that is below every known target.
    """
    machine = machine or platform.machine()
    arm = machine in ("aarch64", "arm64")
    if not arm and machine not in ("x86_64", "AMD64"):
        raise TargetError(f"target cpu:native: this machine is {machine}; Hardtack knows x86_64 and aarch64")
    present = host_features(Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo)
    if arm:
        return replace(AARCH64_BF16 if "bf16" in present else AARCH64, name="native")
    for level, extras in _LEVELS:
        if present.issuperset(level.features):
            found = tuple(name for name in extras if name in present)
            flags = (*level.flags_clang, *(f"-m{name}" for name in found))
            return replace(level, name="native", features=(*level.features, *found), flags_clang=flags, flags_gcc=flags)
    missing = ", ".join(name for name in X86_64_V3.features if name not in present)
    raise TargetError(f"target cpu:native: this machine's CPU lacks {missing}, which x86-64-v3 needs")
