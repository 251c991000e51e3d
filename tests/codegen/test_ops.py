"""Every op against eager torch, on every dtype that it takes, with static and dynamic sizes."""

from __future__ import annotations

import pytest

from tests.codegen.tables import suites_by_name

SUITES = suites_by_name()


@pytest.mark.parametrize(("suite", "row"), [(s.name, row) for s in SUITES.values() for row in s.functions])
def test_equals_eager(suite: str, row: str) -> None:
    SUITES[suite].check(row)
