"""The runtime as installed, and bundles to run with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import sample

from examples.common import install_runtime
from hardtack.codegen.package.writer import write_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample bundle, for x86-64-v3 only: every machine that runs the tests has it."""
    path = tmp_path_factory.mktemp("sample") / "sample.pkg"
    write_bundle(path, sample.content(("x86-64-v3",)))
    return path


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed tree, moved to where nothing knew that it would be."""
    moved = tmp_path_factory.mktemp("elsewhere") / "hardtack"
    shutil.copytree(install_runtime(), moved, symlinks=True)
    return moved
