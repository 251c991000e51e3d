"""Options of the tests, and the null driver for those that load bundles for CUDA devices."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import null_driver
import pytest
import sweep
from hypothesis import settings
from null_driver import NullDriver

# how long an example takes is no property of the code: machines are shared, and first calls import torch
settings.register_profile("hardtack", deadline=None)
settings.load_profile("hardtack")

TESTS = Path(__file__).parent
# The files that take minutes, from the longest.
LONG_FILES = (
    *("fuzz/test_models.py", "codegen/test_ops.py", "models/test_bundles.py", "triton/test_op_table.py"),
    *("export/test_zoo.py", "bench/test_bench.py", "export/test_writes.py"),
    *("triton/test_versions.py", "packaging/test_own_program.py", "front/test_wheel.py"),
)


def pytest_configure(config: pytest.Config) -> None:
    sweep.runs_all = bool(config.getoption("--sweep"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What only a sweep runs is left out. The long files first: workers take whole files, and one that came last would
    keep a single worker busy."""
    if not config.getoption("--sweep"):
        items[:], left_out = sweep.thin(items)
        config.hook.pytest_deselected(items=left_out)
    place = {TESTS / name: k for k, name in enumerate(LONG_FILES)}
    gone = [path for path in place if not path.is_file()]
    if gone:
        raise pytest.UsageError(f"LONG_FILES in tests/conftest.py has what is not there: {', '.join(map(str, gone))}")
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(scope="module", autouse=True)
def collector_of_this_module_alone() -> None:
    """What torch, twenty thousand tests and the modules before keep alive is not walked through again: it made each
    collection take a second, and a third of the whole suite's time."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--sweep", action="store_true", help="every combination of parameters, not a fixed part of them")
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
