"""The CPU of the machine that builds, as a target: the only one that depends on where the build runs."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hardtack.codegen.machine.data import AARCH64, AARCH64_BF16, AMX, X86_64_V3, X86_64_V4, X86_64_V4_BF16
from hardtack.codegen.machine.machine import Cpu, TargetError

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
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
    "amx-int8": "amx_int8",
    "dotprod": "asimddp",
}
_DESIGN = ("vendor_id", "cpu family", "model", "CPU implementer", "CPU part")
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


def host_caches(folder: Path = CACHES) -> dict[int, int]:
    """Level -> bytes of the caches for data of the first CPU, as far as the system tells."""
    found: dict[int, int] = {}
    for at in sorted(folder.glob("index*")):
        try:
            level, kind, size = ((at / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and level.isdigit() and size.endswith("K") and size[:-1].isdigit():
            found[int(level)] = int(size[:-1]) << 10
    return found


def host_kind(cpuinfo: str | None = None, caches: Mapping[int, int] | None = None) -> str:
    """What tells this machine's kind of CPU from others, such as "AuthenticAMD 26 2, caches of 48K and 1024K": the
    design, by maker, family and model, and what it has of caches. Names that people read are no help: clouds call
    different ones the same. The third level is left out: virtual machines see of it what they are told.
    """
    text = Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo
    lines = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    said = dict(reversed([(name.strip(), value.strip()) for name, value in lines]))
    found = host_caches() if caches is None else caches
    design = " ".join(said[name] for name in _DESIGN if name in said) or "a CPU that does not name itself"
    return f"{design}, caches of {' and '.join(f'{found.get(level, 0) >> 10}K' for level in (1, 2))}"


def native_cpu(machine: str | None = None, cpuinfo: str | None = None, caches: Mapping[int, int] | None = None) -> Cpu:
    """The best target that this machine can run, with the sizes of this machine's caches where the system tells them.

    ``machine``, ``cpuinfo`` and ``caches`` stand in for ``platform.machine()``, the text of /proc/cpuinfo and
    ``host_caches()``.
    Raises TargetError on a machine that is below every known target.
    """
    cpu = _level(machine, cpuinfo)
    found = host_caches() if caches is None else caches
    first, second = found.get(1, cpu.first_level_nbytes), found.get(2, cpu.second_level_nbytes)
    return replace(cpu, first_level_nbytes=first, second_level_nbytes=second)


def _level(machine: str | None, cpuinfo: str | None) -> Cpu:
    """The best target that this machine can run, by its instructions."""
    machine = machine or platform.machine()
    arm = machine in ("aarch64", "arm64")
    if not arm and machine not in ("x86_64", "AMD64"):
        raise TargetError(f"target cpu:native: this machine is {machine}; Hardtack knows x86_64 and aarch64")
    present = host_features(Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo)
    if arm:
        found = AARCH64_BF16 if present.issuperset({*AARCH64_BF16.features} - {"neon"}) else AARCH64
        return replace(found, name="native", level=found.name)
    for level, extras in _LEVELS:
        if present.issuperset(level.features):
            extra = tuple(name for name in extras if name in present and name not in level.features)
            flags = (*level.flags_clang, *(f"-m{name}" for name in extra))
            features = (*level.features, *extra)
            return replace(
                level, name="native", features=features, flags_clang=flags, flags_gcc=flags, level=level.name
            )
    missing = ", ".join(name for name in X86_64_V3.features if name not in present)
    raise TargetError(f"target cpu:native: this machine's CPU lacks {missing}, which x86-64-v3 needs")
