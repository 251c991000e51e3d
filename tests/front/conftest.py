"""The hand-made bundle on disk and loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import sample

import hardtack
from hardtack.codegen.package.writer import write_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample bundle, for x86-64-v3 only: every machine that runs the tests has it."""
    path = tmp_path_factory.mktemp("sample") / "sample.pkg"
    write_bundle(path, sample.content(("x86-64-v3",)))
    return path


@pytest.fixture(scope="session")
def model(bundle: Path) -> hardtack.Model:
    return hardtack.load(bundle, threads=1)
