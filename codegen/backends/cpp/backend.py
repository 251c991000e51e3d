"""The CPU as a Backend: C++ kernels, the same for every CPU target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hardtack.codegen.accesses import accesses_of
from hardtack.codegen.backend import NAME, Rendered, named, visible
from hardtack.codegen.backends.cpp import loops, templates
from hardtack.codegen.fuse import CPU_LIMITS, FusionLimits
from hardtack.codegen.ir.expr import Expr, const
from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.group import Decision, Group
from hardtack.codegen.ir.loops import Buffer, Nest
from hardtack.codegen.ir.schedule import to_text_kernel
from hardtack.codegen.ir.schedule_verify import verify_kernel
from hardtack.codegen.lower import RULES
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.planning import KernelLaunch
from hardtack.codegen.tile import ALL_STEPS, TileSteps, tile, tile_template
from hardtack.codegen.tune.choice import NO_TUNING, Tuning


@dataclass(frozen=True)
class CppBackend:
    """See hardtack.codegen.backend.Backend."""

    device: str = "cpu"
    arch: str = ""
    comment: str = "//"
    limits: FusionLimits = CPU_LIMITS
    tuning: Tuning = NO_TUNING
    steps: TileSteps = ALL_STEPS

    @property
    def rules(self) -> Mapping[str, Callable[[Lowering, Op], None]]:
        return RULES

    def joined(self, graph: Graph, hints: Mapping[str, int]) -> tuple[Graph, tuple[Decision, ...]]:
        return graph, ()

    def prepare(
        self, nests: tuple[Nest, ...], buffers: Mapping[str, Buffer], hints: Mapping[str, int]
    ) -> tuple[tuple[Nest, ...], Mapping[str, Buffer]]:
        return nests, buffers

    def render(
        self, group: Group, buffers: Mapping[str, Buffer], kept: frozenset[str], stem: str, hints: Mapping[str, int],
        following: Group | None = None,
    ) -> Rendered:  # fmt: skip
        ints: tuple[Expr, ...]
        if group.anchor is not None:
            k = tile_template(group, buffers, kept, stem, templates.batch_axes(group.anchor))
            verify_kernel(k, group, buffers)
            rendered = templates.render(k, buffers, NAME)
            source, ints = rendered.source, rendered.ints
            shared, per_worker = rendered.shared, rendered.per_worker
        else:
            k = tile(group, buffers, kept, stem, self.steps)
            verify_kernel(k, group, buffers)
            source, ints = loops.render(k, buffers, NAME), tuple(loops.kernel_syms(k))
            shared, per_worker = const(0), loops.worker_nbytes(k, buffers)
        name, text = named(stem, source)
        memory = tuple(b.name for b in k.buffers)
        launch = KernelLaunch(
            name, memory, accesses_of(group, buffers, memory), k.writes, k.reads, ints, shared, per_worker, k.origin
        )
        return Rendered(visible(launch, group), text, to_text_kernel(replace(k, name=name)))
