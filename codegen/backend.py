"""Backend: what the pipeline asks of a kind of device. backends/cpp and backends/triton have one each.

The stages are the same for all; a backend says which rules lower an op, how far fusion may go, what happens to nests
before they are fused, and how a group becomes a kernel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from hardtack.codegen.fuse import FusionLimits
from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.group import Decision, Group
from hardtack.codegen.ir.loops import Buffer, Nest
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.planning import KernelLaunch
from hardtack.codegen.tune.choice import Tuning

NAME = "@KERNEL@"
"""Stands for a kernel's name in its text: the name ends with the hash of the text."""


@dataclass(frozen=True)
class Rendered:
    """One kernel. `text`: its source, named; `listing`: its loop tree; `detail`: what the backend's compiler needs."""

    launch: KernelLaunch
    text: str
    listing: str
    detail: object = None


class Backend(Protocol):
    """See the module's docstring. `device` is "cpu", "cuda" or "hip", `arch` the GPU architecture or ""."""

    @property
    def device(self) -> str:
        """The kind of device."""

    @property
    def arch(self) -> str:
        """What it is built for."""

    @property
    def comment(self) -> str:
        """What begins a comment in its sources."""

    @property
    def limits(self) -> FusionLimits:
        """How far fusion goes."""

    @property
    def rules(self) -> Mapping[str, Callable[[Lowering, Op], None]]:
        """Graph op kind -> its lowering rule."""

    @property
    def tuning(self) -> Tuning:
        """The tables that choose plans of templates."""

    def joined(self, graph: Graph, hints: Mapping[str, int]) -> tuple[Graph, tuple[Decision, ...]]:
        """The graph with products of one activation joined where the device gains by that (products.py)."""

    def prepare(
        self, nests: tuple[Nest, ...], buffers: Mapping[str, Buffer], hints: Mapping[str, int]
    ) -> tuple[tuple[Nest, ...], Mapping[str, Buffer]]:
        """The nests as they go into fusion, with all buffers."""

    def render(
        self, group: Group, buffers: Mapping[str, Buffer], kept: frozenset[str], stem: str, hints: Mapping[str, int],
        following: Group | None = None,
    ) -> Rendered:  # fmt: skip
        """A group as a kernel whose name starts with `stem`. `kept`: buffers that something outside of it reads;
        `following`: the group that runs next, as far as that is known."""


def named(stem: str, text: str, rest: str = "") -> tuple[str, str]:
    """A kernel's name, which ends with the hash of its text and `rest`, and the text with the name put in."""
    name = f"{stem}_{hashlib.sha256((text + rest).encode()).hexdigest()[:12]}"
    return name, text.replace(NAME, name)


def visible(launch: KernelLaunch, group: Group) -> KernelLaunch:
    """The launch without the reads of what the group itself wrote before."""
    return replace(launch, reads=launch.reads & group.reads_from_outside())
