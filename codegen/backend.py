"""Backend: what the pipeline and the build ask of a kind of device. backends/cpp and backends/triton have one each.

The stages are the same for all; a backend says for which machines, which rules lower an op, which passes run between
the stages and how far fusion may go, how a group becomes a kernel, and how kernels become machine code.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.plan import GpuKernel
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.machine.machine import Machine
from hardtack.codegen.passes.passes import Context, Passes
from hardtack.codegen.plan.planner import KernelLaunch
from hardtack.codegen.schedule.fusion_limits import FusionLimits
from hardtack.codegen.tune.choice import Tuning

NAME = "@KERNEL@"
"""Stands for a kernel's name in its text: the name ends with the hash of the text."""
CompileProgress = Callable[[int, int], None]
"""progress(done, total), in kernels."""


@dataclass(frozen=True)
class Rendered:
    """One kernel. `text`: its source, named; `detail`: what the backend's compiler needs besides."""

    launch: KernelLaunch
    text: str
    detail: object = None


@dataclass(frozen=True)
class MachineCode:
    """What became of the kernels for one machine.

    requires: what a device must have to run it: CPU features by the compilers' -m flags, or the one GPU architecture.
    library: the shared object with all kernels, or None: then each kernel has a member of the bundle. records: kernel
    name -> how a GPU launches it; None where the runtime calls it. members: member name -> its bytes. tools: what
    has made it besides the backend's tools, with versions.
    """

    requires: tuple[str, ...]
    library: bytes | None = field(default=None, repr=False)
    records: Mapping[str, GpuKernel] | None = None
    members: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    tools: Mapping[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """See the module's docstring."""

    @property
    def machines(self) -> tuple[Machine, ...]:
        """What one compilation serves: several only where no stage tells them apart."""

    @property
    def key(self) -> str:
        """The name of the compilation: "cpu", or the target's."""

    @property
    def subfolder(self) -> str:
        """Where its dumps lie in the folder of dumps; "" for the folder itself."""

    @property
    def comment(self) -> str:
        """What begins a comment in its sources."""

    @property
    def suffix(self) -> str:
        """How the name of a file with a source ends."""

    @property
    def limits(self) -> FusionLimits:
        """How far fusion goes."""

    @property
    def rules(self) -> Mapping[str, Callable[[Lowering, Op], None]]:
        """Graph op kind -> its lowering rule."""

    @property
    def tuning(self) -> Tuning:
        """The tables that choose plans of templates."""

    def passes(self) -> Passes:
        """Its passes, by name, in their order."""

    def schedule(
        self, group: Group, buffers: Mapping[str, Buffer], kept: frozenset[str], name: str, context: Context
    ) -> Any:
        """A group with its loops or tiles decided: the IR that kernel passes change. `kept`: buffers that something
        outside of the group reads. Control flow has no kernel."""

    def verify(self, kernel: Any, group: Group | None, buffers: Mapping[str, Buffer]) -> None:
        """Raise LoopError where the scheduled kernel breaks the rules of its IR, or does not compute the group. None: a
        pass has made it of a kernel that does, as its own verifier has seen to."""

    def listing(self, kernel: Any) -> str:
        """The scheduled kernel as text."""

    def render(self, kernel: Any, group: Group, buffers: Mapping[str, Buffer]) -> Rendered:
        """Print a scheduled kernel, whose name becomes that of the result, with the hash of its text behind it."""

    def tools(self) -> Mapping[str, str]:
        """What makes machine code, with versions, for the manifest. Raises CompilerError or TritonError where it is
        missing or not a supported version: asked before any work is done."""

    def compile(
        self,
        kernels: Mapping[str, Rendered],
        machine: Machine,
        *,
        cache: KernelCache,
        jobs: int | None = None,
        progress: CompileProgress | None = None,
    ) -> MachineCode:
        """The kernels, by name, for one of the machines. `jobs`: compilers that run at once; None: one a core.

        Raises ToolchainError or TritonError where a kernel does not compile, CacheError for a cache that cannot be
        used.
        """


def named(stem: str, text: str, rest: str = "") -> tuple[str, str]:
    """A kernel's name, which ends with the hash of its text and `rest`, and the text with the name put in."""
    name = f"{stem}_{hashlib.sha256((text + rest).encode()).hexdigest()[:12]}"
    return name, text.replace(NAME, name)


def visible(launch: KernelLaunch, group: Group) -> KernelLaunch:
    """The launch without the reads of what the group itself wrote before."""
    return replace(launch, reads=launch.reads & group.reads_from_outside())
