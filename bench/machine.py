"""What the figures were taken on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

_PACKAGES = (
    "torch",
    "onnxruntime",
    "openvino",
    "nncf",
    "onnx",
    "onnxscript",
    "torchao",
    "transformers",
    "numpy",
    "ziglang",
)

_BYTES = frozenset({"avx_vnni", "avx512_vnni", "amx_int8", "asimddp"})
"""Flags of instructions that multiply bytes and add up in 32 bits."""
_MULTIPLY = ("avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "amx_int8", "amx_fp16")


def facts() -> dict[str, str]:
    """The processor, its caches, the memory, the kernel and the versions of what takes part."""
    found = {
        "cpu": _from_cpuinfo("model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "vectors": _vectors(_from_cpuinfo("flags").split()),
        "caches": _caches(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    for package in ("hardtack", *_PACKAGES):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def sentence(found: dict[str, str]) -> str:
    """The facts in two lines."""
    made = f"{found['cpu']}, {found['cores']} cores, {found['vectors']}, {found['caches']}, {found['memory']}"
    versions = ", ".join(f"{name} {found[name]}" for name in ("hardtack", *_PACKAGES))
    return f"{made}, {found['system']}\nPython {found['python']}, {versions}"


def multiplies_bytes() -> bool:
    """True if this CPU has an instruction that multiplies bytes and saturates nothing."""
    field = "Features" if platform.machine() == "aarch64" else "flags"
    return not _BYTES.isdisjoint(_from_cpuinfo(field).split())


def _from_cpuinfo(field: str) -> str:
    """The value of the first line of /proc/cpuinfo that starts with `field`; arm64 names no model."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return platform.machine()


def _vectors(flags: list[str]) -> str:
    """The widest vectors, and the instructions beyond them that kernels multiply with."""
    widest = next((name for name in ("avx512f", "avx2", "avx", "sse4_2") if name in flags), platform.machine())
    return " ".join([widest, *(name for name in _MULTIPLY if name in flags)])


def _caches() -> str:
    """Such as "L1 48K, L2 1024K, L3 32768K", of the first core, without the instruction cache."""
    out = []
    for cache in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        if (cache / "type").read_text().strip() != "Instruction":
            out.append(f"L{(cache / 'level').read_text().strip()} {(cache / 'size').read_text().strip()}")
    return ", ".join(out) or "caches unknown"
