"""The op table: functions of every op with inputs, in suites that are compiled as one module each."""

from __future__ import annotations

from tests.codegen import tables_conv, tables_corners, tables_nn, tables_scalar, tables_tensor
from tests.codegen.compare import Suite

SOURCES = (tables_scalar, tables_tensor, tables_nn, tables_conv, tables_corners)


def suites_by_name() -> dict[str, Suite]:
    """All suites, made anew."""
    return {s.name: s for source in SOURCES for s in source.suites()}
