"""Fixtures of the template tests: the kernels of sources.py, compiled once for every target that runs here."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator

import pytest
from tests.templates import sources
import torch
from tests.templates.cpu_kernels import Library, load_library, runnable_targets
from hardtack.codegen.backends.cpp.targets import CpuTarget


@functools.cache
def _library(target: CpuTarget, compiler: str | None) -> Library:
    return load_library(sources.ALL, target, compiler)


def _builds() -> list[tuple[CpuTarget, str | None]]:
    builds: list[tuple[CpuTarget, str | None]] = [(target, None) for target in runnable_targets()]
    if shutil.which("g++"):
        builds.append((runnable_targets()[0], "g++"))
    return builds


@pytest.fixture(scope="session", params=_builds(), ids=lambda build: f"{build[0].name}-{build[1] or 'zig'}")
def library(request: pytest.FixtureRequest) -> Library:
    """The template kernels, for each runnable target by the pinned compiler and for the best one by g++ too."""
    target, compiler = request.param
    return _library(target, compiler)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
