"""The op table on GPU kernels: whole plans through Triton's interpreter equal eager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from tests.codegen.compare import Suite
from tests.codegen.tables import of_what_runs, rows_by_table, suites_by_name
from tests.triton.simulate import Simulator

CHOSEN = [
    *("unary_float32", "unary_bfloat16", "binary_float32", "binary_float16", "special_float64"),
    *("int_int64", "int_int8", "int_uint8", "bool", "casts", "casts_outside", "creation_dynamic", "bitcast"),
    *("unsigned_uint16", "unsigned_uint32", "casts_uint32", "casts_unsigned", "float8_e4m3fn", "float8_e5m2"),
    *("reduce_float32", "reduce_bool", "ties", "views", "views_dynamic", "index", "order_float32"),
    *("norm", "norm_dynamic", "resize_align", "pool_nan", "conv_1d", "matmul", "attention_dynamic"),
    *("resize_scale_float64", "histogram_float64", "resize_antialias", "resize_antialias_dynamic"),
    *("matmul_int8", "matmul_int8_depth"),
    *("no_width", "one_result", "rolled", "masked", "batch"),
]
"""Suites that between them have every scalar op, dtype, view, reduction and template."""

EVERY = suites_by_name()
SUITES = {name: EVERY[name] for name in CHOSEN}


@pytest.fixture(scope="module")
def suites(request: pytest.FixtureRequest) -> dict[str, Suite]:
    backend = TritonBackend(H200)
    return {n: replace(s, backend=backend, runner=Simulator) for n, s in of_what_runs(SUITES, request).items()}


@pytest.mark.sweep(over="suite")
@pytest.mark.parametrize(("table", "row", "suite"), rows_by_table(SUITES))
def test_equals_eager(suites: Mapping[str, Suite], table: str, row: str, suite: str) -> None:
    """A row that several suites have runs in one of them."""
    suites[suite].check(row)
