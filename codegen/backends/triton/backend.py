"""A GPU architecture as a Backend: Triton kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hardtack.codegen.accesses import accesses_of
from hardtack.codegen.backend import Rendered, named, visible
from hardtack.codegen.backends.triton import loops, templates
from hardtack.codegen.backends.triton.early import begun_early
from hardtack.codegen.backends.triton.empty import without_empty_reductions
from hardtack.codegen.backends.triton.gemm import row_operand
from hardtack.codegen.backends.triton.helpers import module_head
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.regroup import regroup
from hardtack.codegen.backends.triton.siblings import render_siblings, siblings_text
from hardtack.codegen.backends.triton.split import split_reductions
from hardtack.codegen.backends.triton.tile import tile
from hardtack.codegen.backends.triton.tiled import to_text
from hardtack.codegen.backends.triton.tiled_verify import verify_tiled
from hardtack.codegen.fuse import FusionLimits
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.ir.group import Decision, Group
from hardtack.codegen.ir.loops import Buffer, Nest
from hardtack.codegen.ir.schedule import to_text_kernel
from hardtack.codegen.ir.schedule_verify import verify_kernel
from hardtack.codegen.lower import reductions, triton
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.triton_conv import lower_conv
from hardtack.codegen.lower.triton_grouped import lower_grouped
from hardtack.codegen.planning import KernelLaunch
from hardtack.codegen.products import join_products
from hardtack.codegen.tile import tile_template
from hardtack.codegen.tune.choice import NO_TUNING, Tuning
from hardtack.codegen.tune.machine import machine_of

GPU_LIMITS = FusionLimits(
    parallel_enough=64,
    small_work=1 << 18,
    largest_group=24,
    epilogues=templates.EPILOGUES,
    nested_reductions=False,
    keeps_parallelism=True,
    row_operand=row_operand,
    sibling_points=1 << 17,
)


@dataclass(frozen=True)
class TritonBackend:
    """See hardtack.codegen.backend.Backend. `arch`: "sm_90" and the like, or "gfx942"."""

    arch: str
    comment: str = "#"
    limits: FusionLimits = field(default=GPU_LIMITS)
    tuning: Tuning = NO_TUNING

    @property
    def device(self) -> str:
        return machine_of(self.arch).device

    @property
    def rules(self) -> Mapping[str, Callable[[Lowering, Op], None]]:
        return {**reductions.RULES, **triton.RULES, "conv": lower_conv, "grouped_matmul": lower_grouped}

    def joined(self, graph: Graph, hints: Mapping[str, int]) -> tuple[Graph, tuple[Decision, ...]]:
        return join_products(graph, hints, self.arch, self.tuning)

    def prepare(
        self, nests: tuple[Nest, ...], buffers: Mapping[str, Buffer], hints: Mapping[str, int]
    ) -> tuple[tuple[Nest, ...], Mapping[str, Buffer]]:
        return split_reductions(regroup(without_empty_reductions(nests), buffers), buffers, hints)

    def render(
        self, group: Group, buffers: Mapping[str, Buffer], kept: frozenset[str], stem: str, hints: Mapping[str, int],
        following: Group | None = None,
    ) -> Rendered:  # fmt: skip
        if group.siblings:
            tiles = [tile(g, buffers, kept, f"part{k}", hints) for k, g in enumerate(group.siblings)]
            for tiled, g in zip(tiles, group.siblings, strict=True):
                verify_tiled(tiled, g, buffers)
            kernel, listing = render_siblings(tiles, buffers, stem), siblings_text(tiles, stem)
        elif group.anchor is not None:
            scheduled = tile_template(group, buffers, kept, stem, templates.batch_axes(group.anchor))
            verify_kernel(scheduled, group, buffers)
            kernel, listing = templates.render(scheduled, buffers), to_text_kernel(scheduled)
        else:
            tiled = tile(group, buffers, kept, stem, hints)
            verify_tiled(tiled, group, buffers)
            kernel, listing = loops.render(tiled, buffers), to_text(tiled)
        kernel = self._finished(begun_early(kernel, self.arch, following))
        name, source = named(stem, kernel.text, _settings(kernel))
        launch = KernelLaunch(
            name, kernel.buffers, accesses_of(group, buffers, kernel.buffers), kernel.writes, kernel.reads, kernel.ints,
            const(0), const(0), kernel.origin, kernel.grid, kernel.maps,
        )  # fmt: skip
        listing = re.sub(rf"^kernel {re.escape(stem)}\b", f"kernel {name}", listing)
        return Rendered(visible(launch, group), source, listing, replace(kernel, name=name, text=source))

    def _finished(self, kernel: TritonKernel) -> TritonKernel:
        """The kernel as a module, in blocks of as many warps as the architecture has."""
        warps = min(kernel.num_warps, machine_of(self.arch).most_warps)
        return replace(kernel, text=module_head(kernel.text, self.device) + kernel.text, num_warps=warps)


def _settings(kernel: TritonKernel) -> str:
    """What besides its text decides what a kernel is: equal ones are compiled once."""
    rest = (kernel.arguments, sorted(kernel.constexprs.items()), kernel.num_warps, kernel.num_stages, kernel.num_ctas)
    return f"{rest!r} {kernel.dependent!r} {sorted(kernel.options.items())!r}"
