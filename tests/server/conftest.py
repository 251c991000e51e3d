"""Started servers, each on a free port of 127.0.0.1, and the bundles that they serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sample
import served
import serving_bundles
from served import Server
from serving_bundles import put


@pytest.fixture(scope="session")
def program() -> Path:
    return served.build_program()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """spin (no states, batches), types (every element type), count (two entries, a state)."""
    folder = tmp_path_factory.mktemp("models")
    put(serving_bundles.spin(), folder / "spin" / "1" / "model.pkg")
    put(serving_bundles.types(), folder / "types.pkg")
    put(sample.content(("x86-64-v3",)), folder / "count" / "count.pkg")
    return folder


@pytest.fixture(scope="session")
def server(program: Path, models: Path) -> Iterator[Server]:
    """One for the tests that change nothing in it."""
    with Server(program, models, "--max-body", "1000000", "--max-header", "4096") as started:
        yield started


@pytest.fixture
def spin_folder(tmp_path: Path) -> Path:
    """A repository of one's own with spin in it."""
    put(serving_bundles.spin(), tmp_path / "models" / "spin" / "1" / "model.pkg")
    return tmp_path / "models"
