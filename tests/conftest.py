"""Options of the tests, and the null driver for those that load bundles for CUDA devices."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import null_driver
import pytest
from hypothesis import settings
from null_driver import NullDriver

# how long an example takes is no property of the code: machines are shared, and first calls import torch
settings.register_profile("hardtack", deadline=None)
settings.load_profile("hardtack")


@pytest.fixture(scope="module", autouse=True)
def collector_of_this_module_alone() -> None:
    """What torch, twenty thousand tests and the modules before keep alive is not walked through again: it made each
    collection take a second, and a third of the whole suite's time."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/codegen/golden anew from what is found")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def null_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return null_driver.build(tmp_path_factory.mktemp("null_driver"))


@pytest.fixture
def driver(null_library: Path) -> Iterator[NullDriver]:
    """The null driver; when the test ends, nothing may have been done wrong or be left behind."""
    stay = NullDriver(null_library)
    yield stay
    stay.finish()
