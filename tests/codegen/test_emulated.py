"""The op table on kernels for aarch64, whose vectors have 16 bytes, under qemu-user: whole plans equal eager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.machine.data import AARCH64
from tests.codegen.compare import Suite
from tests.codegen.emulated import EmulatedRunner
from tests.codegen.tables import of_what_runs, suites_by_name
from tests.support.aarch64 import needs_aarch64

CHOSEN = [
    *("unary_float32", "unary_bfloat16", "binary_float32", "binary_float16", "special_float64", "int_int64"),
    *("int_int8", "int_uint8", "bool", "casts", "casts_outside", "bitcast", "reduce_bfloat16", "reduce_bool", "ties"),
    *("unsigned_uint16", "unsigned_uint32", "casts_uint32", "casts_unsigned"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
    *("matmul_int8", "matmul_int8_depth"),
    *("order_nan", "norm", "pool_nan", "attention", "recurrent_bf16", "zero_sums_float16", "masked"),
]
"""Suites that between them have every scalar op, dtype, kind of conversion and reduction. The templates have tests of
their own, and so have the functions of numbers: tests/templates. A row of each suite is left where this is no sweep.
"""

SUITES = suites_by_name()


@pytest.fixture(scope="module")
def suites(request: pytest.FixtureRequest) -> dict[str, Suite]:
    backend = CppBackend(machines=(AARCH64,))
    found = of_what_runs(SUITES, request)
    return {name: replace(suite, backend=backend, runner=EmulatedRunner) for name, suite in found.items()}


@needs_aarch64
@pytest.mark.sweep(over="row")
@pytest.mark.parametrize(("suite", "row"), [(name, row) for name in CHOSEN for row in SUITES[name].functions])
def test_equals_eager(suites: Mapping[str, Suite], suite: str, row: str) -> None:
    suites[suite].check(row)
