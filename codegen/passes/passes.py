"""What a pass is, one class an IR, and what it may look at besides what it changes.

A pass has a name of one word: `hardtack export --stop-after=NAME` prints what it leaves, and a dump has a file of it.
It decides and changes; that the result still means the same is proved by the IR's verifier, whoever wrote the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.group import Decision, Group
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Nest
from hardtack.codegen.machine.machine import Gpu, Machine
from hardtack.codegen.schedule.fusion_limits import FusionLimits
from hardtack.codegen.tune.choice import Tuning

Buffers = Mapping[str, Buffer]
Decisions = tuple[Decision, ...]


@dataclass(frozen=True)
class Context:
    """hints: example sizes of symbols by name, for decisions of profit only. machine: of CPUs of a layout the first."""

    hints: Mapping[str, int]
    machine: Machine
    tuning: Tuning
    limits: FusionLimits

    @property
    def gpu(self) -> Gpu:
        """The machine, for a pass of GPUs."""
        assert isinstance(self.machine, Gpu), f"a pass of GPUs on {self.machine.target}"
        return self.machine


@dataclass(frozen=True)
class Scope:
    """What lives longer than nests and groups. kept: buffers that are read after the last kernel, or through a state's
    memory. constants: those that no kernel writes. in_place: a buffer that takes
    the memory of another one -> that one."""

    kept: frozenset[str]
    constants: frozenset[str] = frozenset()
    in_place: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GraphPass:
    """Verified by verify_graph."""

    name: str
    run: Callable[[Graph, Context], tuple[Graph, Decisions]]


@dataclass(frozen=True)
class NestPass:
    """May add buffers. Verified by verify_nest and verify_written: `LoopNest.sources` says what a nest was made of."""

    name: str
    run: Callable[[tuple[Nest, ...], Buffers, Scope, Context], tuple[tuple[Nest, ...], Buffers, Decisions]]


@dataclass(frozen=True)
class GroupPass:
    """Verified by verify_grouping and verify_group."""

    name: str
    run: Callable[[tuple[Group, ...], Buffers, Scope, Context], tuple[tuple[Group, ...], Decisions]]


@dataclass(frozen=True)
class KernelPass:
    """Of one scheduled kernel, whose class the backend knows. following: the group that runs next, if that is known.

    verify: raises LoopError unless the second kernel computes what the first does: the backend's verifier compares a
    kernel with its group statement by statement, which a pass that replaces statements cannot be held to.
    """

    name: str
    run: Callable[[Any, Buffers, Group | None, Context], Any]
    verify: Callable[[Any, Any, Buffers], None]


@dataclass(frozen=True)
class Passes:
    """A backend's passes, in the order in which they run: those of each IR between the stages that make and take it."""

    graph: tuple[GraphPass, ...] = ()
    nests: tuple[NestPass, ...] = ()
    groups: tuple[GroupPass, ...] = ()
    kernels: tuple[KernelPass, ...] = ()

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of all that has a text, in order, passes and what makes one IR of another."""
        made = (("graph", self.graph), ("lower", self.nests), ("fuse", self.groups), ("tile", self.kernels))
        return (*(name for stage, passes in made for name in (stage, *(p.name for p in passes))), "render", "plan")
