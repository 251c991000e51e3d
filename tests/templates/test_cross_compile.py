"""Every template of this folder's tests compiles for aarch64 from here, into a library that needs nothing."""

from __future__ import annotations

import struct

import pytest

from tests.templates import test_attention, test_recurrent, test_sort_scan, test_vmath
from tests.templates.cpu_kernels import AARCH64, compile_bytes

SOURCES = {
    "attention": {"attend": test_attention.SOURCE},
    "recurrent": {
        kind: test_recurrent.SOURCE % {"name": kind, "kind": cell} for kind, cell in test_recurrent.KINDS.items()
    },
    "sort": {f"sort_{t}": test_sort_scan.SORT % {"t": t} for t in ("float", "int64_t", "bf16")},
    "scan": {"scan_float": test_sort_scan.SCAN % {"t": "float", "out": "float"}},
    "scan_log": {f"scan_log_{t}": test_sort_scan.SCAN_LOG % {"t": t} for t in ("float", "double")},
    "vmath": {
        f"{name}_{t}": test_vmath.SOURCE % {"name": f"{name}_{t}", "f": name, "t": t, "more": ""}
        for name in ("tanh", "erf", "sin", "lgamma")
        for t in ("float", "double")
    },
}  # fmt: skip


@pytest.mark.parametrize("template", SOURCES)
def test_compiles_for_aarch64(template: str) -> None:
    data = compile_bytes(SOURCES[template], AARCH64)
    machine = struct.unpack_from("<H", data, 18)[0]
    assert machine == 183  # EM_AARCH64
