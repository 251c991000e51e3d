"""The op table: functions of every op with inputs, in suites that are compiled as one module each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest
import torch

from tests.codegen import tables_conv, tables_corners, tables_float8, tables_nn, tables_scalar, tables_tensor
from tests.codegen.compare import Function, Suite

SOURCES = (tables_scalar, tables_float8, tables_tensor, tables_nn, tables_conv, tables_corners)
_VARIANT = re.compile(r"(_(dynamic|u?int\d+|b?float\d+|b?f\d+))+\Z")


def suites_by_name() -> dict[str, Suite]:
    """All suites, made anew."""
    return {s.name: s for source in SOURCES for s in source.suites()}


def of_what_runs(suites: Mapping[str, Suite], request: pytest.FixtureRequest) -> dict[str, Suite]:
    """Each with the rows that tests of the file run, by their parameters `suite` and `row`: others are not compiled."""
    here = [i for i in request.session.items if isinstance(i, pytest.Function) and i.path == request.path]
    rows = {
        name: {str(i.callspec.params["row"]) for i in here if i.callspec.params["suite"] == name} for name in suites
    }
    return {name: suite.of(rows[name]) for name, suite in suites.items()}


def rows_by_table(suites: Mapping[str, Suite]) -> Iterator[tuple[str, str, str]]:
    """(table, row, suite) of every row. Suites whose names differ in a dtype or in "dynamic" alone are of one table,
    so far as they have the same functions by the same names.
    """
    code: dict[tuple[str, str], object] = {}
    for suite in suites.values():
        for row, function in suite.functions.items():
            table = _VARIANT.sub("", suite.name)
            same = code.setdefault((table, row), _code(function)) == _code(function)
            yield table if same else suite.name, row, suite.name


def _code(function: Function) -> object:
    """The same for functions that one line of a table makes, whatever they are bound to."""
    return type(function) if isinstance(function, torch.nn.Module) else getattr(function, "__code__", function)
