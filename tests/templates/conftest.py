"""Fixtures of the template tests: the kernels of sources.py, compiled once for every build that runs here."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Iterator

import pytest
import torch

from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu
from tests.templates import sources
from tests.templates.cpu_kernels import Library, load_library, runnable_targets


def _builds() -> list[tuple[Cpu, str | None]]:
    builds: list[tuple[Cpu, str | None]] = [(target, None) for target in runnable_targets()]
    best = builds[0][0]
    if shutil.which("g++"):
        builds.append((best, "g++"))
    if native_cpu().arch == "x86_64":
        # Not a target of Hardtack's: 16-byte vectors, as on aarch64, without intrinsics.
        flags = ("-march=x86-64-v2",)
        builds.append((dataclasses.replace(best, name="x86-64-v2", flags_clang=flags, flags_gcc=flags), None))
    return builds


# Target and compiler: each runnable target by the pinned compiler, the best by g++ too, and the portable code.
BUILDS = _builds()


def build_name(build: tuple[Cpu, str | None]) -> str:
    """For test ids."""
    return f"{build[0].name}-{build[1] or 'zig'}"


@functools.cache
def _library(target: Cpu, compiler: str | None) -> Library:
    return load_library(sources.ALL, target, compiler)


@pytest.fixture(scope="session", params=BUILDS, ids=build_name)
def library(request: pytest.FixtureRequest) -> Library:
    """The template kernels, for every build."""
    target, compiler = request.param
    return _library(target, compiler)


@pytest.fixture(autouse=True)
def _seeded_and_single_threaded() -> Iterator[None]:
    """torch computes small oracles here; waking its threads for each costs more than the work on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
