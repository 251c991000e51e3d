"""Every op against eager torch, on every dtype that it takes, with static and dynamic sizes."""

from __future__ import annotations

import pytest

from tests.codegen import tables_nn, tables_scalar, tables_tensor
from tests.codegen.compare import Suite

SUITES: dict[str, Suite] = {s.name: s for source in (tables_scalar, tables_tensor, tables_nn) for s in source.suites()}


@pytest.mark.parametrize(("suite", "row"), [(s.name, row) for s in SUITES.values() for row in s.functions])
def test_equals_eager(suite: str, row: str) -> None:
    SUITES[suite].check(row)
