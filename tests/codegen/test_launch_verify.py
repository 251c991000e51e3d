"""Launches that do not say what they do with memory are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from hardtack.codegen import pipeline
from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.plan.launch_verify import verify_launch
from hardtack.codegen.plan.planner import KernelLaunch
from hardtack.exporter import to_graphs

Found = tuple[KernelLaunch, Group, frozenset[str]]


@pytest.fixture(scope="module", params=[CppBackend(), TritonBackend(H200)], ids=["cpu", "gpu"])
def found(request: pytest.FixtureRequest) -> Found:
    """The launch of a softmax."""
    backend: Backend = request.param
    seen: list[Found] = []

    def note(launch: KernelLaunch, group: Group, kept: frozenset[str]) -> None:
        verify_launch(launch, group, kept)
        seen.append((launch, group, kept))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "verify_launch", note)
        (entry,) = to_graphs(nn.Softmax(-1).eval(), (torch.ones(4, 100),)).entries.values()
        compile_entry(entry.graph, {}, backend)
    (launch,) = seen
    return launch


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda k: replace(k, buffers=tuple(b for b in k.buffers if b not in k.writes)),
            "is written outside, and not in",
        ),
        (lambda k: replace(k, buffers=tuple(b for b in k.buffers if b not in k.reads)), "is read outside, and not in"),
        (lambda k: replace(k, writes=frozenset()), "the launch does not say that it writes softmax"),
        (lambda k: replace(k, reads=frozenset()), "the launch does not say that it reads input"),
        (lambda k: replace(k, writes=k.writes | k.reads), "the launch says that it writes input"),
        (lambda k: replace(k, reads=k.writes | k.reads), "the launch says that it reads softmax"),
    ],
)
def test_broken_launches(found: Found, change: Callable[[KernelLaunch], KernelLaunch], message: str) -> None:
    launch, group, kept = found
    with pytest.raises(LoopError, match=message):
        verify_launch(change(launch), group, kept)
