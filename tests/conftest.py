"""Options of the tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

# how long an example takes is no property of the code: machines are shared, and first calls import torch
settings.register_profile("hardtack", deadline=None)
settings.load_profile("hardtack")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/codegen/golden anew from what is found")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
