"""CPU targets: the instruction sets that a bundle's native code is built for.

A target fixes the compiler flags, the vector width that the templates use and the CPU features that the runtime checks
before it calls into the library. Every target but ``native`` is the same on every building machine.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# The x86-64 psABI micro-architecture levels, less what every 64-bit CPU of the level below has. The names are those of
# gcc's and clang's -m flags, which are also the names that the runtime checks.
_FEATURES_V3 = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe",
)  # fmt: skip
_FEATURES_V4 = (*_FEATURES_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

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
}
# Features beyond a level that ``native`` turns on where the host has them: those that kernels could gain from.
_NATIVE_EXTRAS_V3 = ("avxvnni",)
_NATIVE_EXTRAS_V4 = ("avx512vnni", "avx512bf16", "avx512fp16", "avx512vbmi", "avx512vbmi2", "avxvnni")


class TargetError(ValueError):
    """A CPU target that does not exist, or that this machine cannot give."""


@dataclass(frozen=True)
class CpuTarget:
    """One instruction set to compile for.

    ``flags_clang`` and ``flags_gcc`` select it; ``triple`` is clang's ``-target``; ``vector_nbytes`` is the width of
    the templates' vectors; ``features`` are what a CPU must have to run the result, by the names the runtime checks.
    """

    name: str
    triple: str
    vector_nbytes: int
    features: tuple[str, ...]
    flags_clang: tuple[str, ...]
    flags_gcc: tuple[str, ...]

    @property
    def arch(self) -> str:
        """The machine part of the triple: ``x86_64`` or ``aarch64``."""
        return self.triple.split("-", 1)[0]


def _x86(name: str, features: tuple[str, ...], flags: tuple[str, ...], vector_nbytes: int) -> CpuTarget:
    return CpuTarget(
        name=name,
        triple="x86_64-linux-gnu",
        vector_nbytes=vector_nbytes,
        features=features,
        flags_clang=flags,
        flags_gcc=flags,
    )


# Compilers prefer 256-bit vectors on most 512-bit CPUs, and clang then splits every 64-byte operation in two.
_WIDE = "-mprefer-vector-width=512"
X86_64_V3 = _x86("x86-64-v3", _FEATURES_V3, ("-march=x86-64-v3",), 32)
X86_64_V4 = _x86("x86-64-v4", _FEATURES_V4, ("-march=x86-64-v4", _WIDE), 64)
AARCH64 = CpuTarget(
    name="aarch64",
    triple="aarch64-linux-gnu",
    vector_nbytes=16,
    features=("neon",),
    flags_clang=("-march=armv8-a", "-mno-outline-atomics"),
    flags_gcc=("-march=armv8-a", "-mno-outline-atomics"),
)

KNOWN_TARGETS: dict[str, CpuTarget] = {target.name: target for target in (X86_64_V4, X86_64_V3, AARCH64)}
DEFAULT_TARGETS: tuple[CpuTarget, ...] = (X86_64_V4, X86_64_V3)


def host_features(cpuinfo: str) -> frozenset[str]:
    """The x86 features, by compiler flag name, in the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        if line.startswith("flags"):
            present = set(line.split(":", 1)[1].split())
            break
    else:
        return frozenset()
    wanted = {*_FEATURES_V4, *_NATIVE_EXTRAS_V3, *_NATIVE_EXTRAS_V4}
    return frozenset(name for name in wanted if _CPUINFO_NAMES.get(name, name) in present)


def native_target(machine: str | None = None, cpuinfo: str | None = None) -> CpuTarget:
    """The best target that this machine can run: the only one that depends on where the build runs.

    ``machine`` and ``cpuinfo`` stand in for ``platform.machine()`` and the text of /proc/cpuinfo.
    Raises TargetError on a machine that is below every known target.
    """
    machine = machine or platform.machine()
    if machine in ("aarch64", "arm64"):
        return CpuTarget(
            name="native",
            triple=AARCH64.triple,
            vector_nbytes=AARCH64.vector_nbytes,
            features=AARCH64.features,
            flags_clang=AARCH64.flags_clang,
            flags_gcc=AARCH64.flags_gcc,
        )
    if machine not in ("x86_64", "AMD64"):
        raise TargetError(f"target cpu:native: this machine is {machine}; Hardtack knows x86_64 and aarch64")
    present = host_features(Path("/proc/cpuinfo").read_text() if cpuinfo is None else cpuinfo)
    for level, extras in ((X86_64_V4, _NATIVE_EXTRAS_V4), (X86_64_V3, _NATIVE_EXTRAS_V3)):
        if present.issuperset(level.features):
            found = tuple(name for name in extras if name in present)
            return _x86(
                "native",
                (*level.features, *found),
                (*level.flags_clang, *(f"-m{name}" for name in found)),
                level.vector_nbytes,
            )
    missing = ", ".join(name for name in X86_64_V3.features if name not in present)
    raise TargetError(f"target cpu:native: this machine's CPU lacks {missing}, which x86-64-v3 needs")


def known_target_names() -> Sequence[str]:
    """What may follow ``cpu:``."""
    return (*KNOWN_TARGETS, "native")


def parse_target(text: str, others: Sequence[str] = ()) -> tuple[CpuTarget, ...]:
    """The targets that ``text`` names: ``cpu`` is the default pair, widest first; ``cpu:NAME`` is one.

    Raises TargetError for any other text, listing the known ones and ``others``, targets of other backends.
    """
    if text == "cpu":
        return DEFAULT_TARGETS
    kind, _, name = text.partition(":")
    if kind == "cpu" and name == "native":
        return (native_target(),)
    if kind == "cpu" and name in KNOWN_TARGETS:
        return (KNOWN_TARGETS[name],)
    known = ", ".join(["cpu", *(f"cpu:{known_name}" for known_name in known_target_names()), *others])
    raise TargetError(f"unknown target {text!r}; known targets: {known}")
