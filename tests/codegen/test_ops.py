"""Every op against eager torch, on every dtype that it takes, with static and dynamic sizes; and each of its kernels
writes what it declares to write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.codegen.access_runner import AccessRunner
from tests.codegen.compare import Suite
from tests.codegen.tables import of_what_runs, rows_by_table, suites_by_name

SUITES = suites_by_name()


@pytest.fixture(scope="module")
def suites(request: pytest.FixtureRequest) -> dict[str, Suite]:
    return {name: replace(suite, runner=AccessRunner) for name, suite in of_what_runs(SUITES, request).items()}


@pytest.mark.sweep(over="suite")
@pytest.mark.parametrize(("table", "row", "suite"), rows_by_table(SUITES))
def test_equals_eager(suites: Mapping[str, Suite], table: str, row: str, suite: str) -> None:
    """A row that several suites have runs in one of them."""
    suites[suite].check(row)
