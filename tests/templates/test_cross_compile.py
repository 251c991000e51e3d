"""Every template of this folder's tests compiles for aarch64 from here, into a library that needs nothing."""

from __future__ import annotations

import shutil
import struct

import pytest

from hardtack.codegen.machine.data import AARCH64_BF16, AMX, X86_64_V4, X86_64_V4_BF16
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu
from tests.templates import attention_kernels, test_half, test_int8, test_recurrent, test_sort_scan, test_vmath
from tests.templates.cpu_kernels import AARCH64, compile_bytes

SOURCES = {
    "attention": attention_kernels.SOURCES,
    "recurrent": {
        kind: test_recurrent.SOURCE % {"name": kind, "kind": cell} for kind, cell in test_recurrent.KINDS.items()
    },
    "sort": {f"sort_{t}": test_sort_scan.SORT % {"t": t} for t in ("float", "int64_t", "bf16")},
    "scan": {"scan_float": test_sort_scan.SCAN % {"t": "float", "out": "float"}},
    "scan_log": {f"scan_log_{t}": test_sort_scan.SCAN_LOG % {"t": t} for t in ("float", "double")},
    "vmath": test_vmath.sources(),
}  # fmt: skip


@pytest.mark.parametrize("template", SOURCES)
def test_compiles_for_aarch64(template: str) -> None:
    assert _machine(compile_bytes(SOURCES[template], AARCH64)) == 183  # EM_AARCH64


@pytest.mark.parametrize(("target", "machine"), [(AARCH64_BF16, 183), (AARCH64, 183), (AMX, 62)])
def test_products_of_16_bits_compile_for_every_machine(target: Cpu, machine: int) -> None:
    """Of whatever instructions the machine has that runs the tests."""
    assert _machine(compile_bytes(test_half.sources(), target)) == machine


@pytest.mark.parametrize(
    "target",
    # what v4-bf16 multiplies int8 by AMX has, too, beside its tiles
    [AMX, pytest.param(X86_64_V4_BF16, marks=pytest.mark.sweep(only=True)), X86_64_V4, AARCH64_BF16],
    ids=lambda cpu: cpu.name,
)
@pytest.mark.parametrize("compiler", [None, pytest.param("g++", marks=pytest.mark.sweep(only=True))])
def test_products_of_int8_compile_for_every_machine(target: Cpu, compiler: str | None) -> None:
    """The same, of which VPDPBUSD and SDOT are modelled elsewhere."""
    if compiler is not None and (shutil.which(compiler) is None or native_cpu().arch != target.arch):
        pytest.skip(f"asks for {compiler} of {target.arch}")
    assert _machine(compile_bytes(test_int8.sources(), target, compiler)) == (62 if target.arch == "x86_64" else 183)


@pytest.mark.skipif(shutil.which("g++") is None or native_cpu().arch != "x86_64", reason="asks for g++ of x86-64")
def test_products_by_tiles_compile_with_gcc() -> None:
    """Whose intrinsics take a tile's number as it stands in the source: a template's parameter is none."""
    source = {"packed_bfloat16": test_half.sources()["packed_bfloat16"]}
    assert _machine(compile_bytes(source, AMX, "g++")) == 62


def _machine(library: bytes) -> int:
    """The ELF machine."""
    return int(struct.unpack_from("<H", library, 18)[0])
