"""Fixtures of the template tests: the kernels of sources.py, compiled once for every build that runs here."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hardtack.codegen.machine.data import AARCH64_BF16
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu
from tests.support.aarch64 import CXX, needs_aarch64
from tests.templates import sources
from tests.templates.cpu_kernels import Library, emulated_targets, load_library, runnable_targets

Build = tuple[Cpu, str | None]
"""A target and a compiler: None for the pinned one."""
_PORTABLE = "x86-64-v2"


def all_targets() -> list[Any]:
    """Parameters of a test, from the best that runs here; at the end those that qemu-user runs."""
    here = [pytest.param(target, id=target.name) for target in runnable_targets()]
    return here + [pytest.param(target, id=target.name, marks=needs_aarch64) for target in emulated_targets()]


def main_targets() -> list[Any]:
    """The best target of this machine, and the plainest that qemu-user runs: for what no other target has otherwise."""
    every = all_targets()
    return [every[0], every[-1]] if emulated_targets() else every[:1]


def _native_builds() -> list[Build]:
    builds: list[Build] = [(target, None) for target in runnable_targets()]
    best = builds[0][0]
    if shutil.which("g++"):
        builds.append((best, "g++"))
    if native_cpu().arch == "x86_64":
        # Not a target of Hardtack's: 16-byte vectors, as on aarch64, without intrinsics.
        flags = ("-march=x86-64-v2",)
        builds.append((dataclasses.replace(best, name=_PORTABLE, flags_clang=flags, flags_gcc=flags), None))
    return builds


def _emulated_builds() -> list[Build]:
    emulated = emulated_targets()
    return [*((target, None) for target in emulated), *((target, CXX) for target in emulated[-1:])]


def build_name(build: Build) -> str:
    """For test ids."""
    return f"{build[0].name}-{build[1] or 'zig'}"


def by_gcc(build: Build) -> bool:
    """Which takes twice as long as the pinned compiler."""
    return build[1] is not None


def by_gcc_for_aarch64(build: Build) -> bool:
    return build[1] == CXX


def portable(build: Build) -> bool:
    return build[0].name == _PORTABLE


def with_bf16(build: Build) -> bool:
    """A target whose kernels of float32 are those of plain aarch64."""
    return build[0] is AARCH64_BF16


def all_builds(*rare: Callable[[Build], bool]) -> list[Any]:
    """Parameters of a fixture: each target by the pinned compiler, the best by g++, too, and the portable code.

    rare: which of them only a sweep runs, since compiling the kernels is most of what their tests take.
    """
    builds: list[tuple[Build, tuple[Any, ...]]] = [(build, ()) for build in _native_builds()]
    builds += [(build, (needs_aarch64,)) for build in _emulated_builds()]
    sweep = (pytest.mark.sweep(only=True),)
    return [
        pytest.param(build, id=build_name(build), marks=(*marks, *(sweep if any(f(build) for f in rare) else ())))
        for build, marks in builds
    ]


@functools.cache
def _library(target: Cpu, compiler: str | None) -> Library:
    return load_library(sources.ALL, target, compiler)


@pytest.fixture(scope="session", params=all_builds(by_gcc, with_bf16))
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
