"""A GPU architecture as a Backend: Triton kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from hardtack.codegen.backend import CompileProgress, MachineCode, Rendered, named, visible
from hardtack.codegen.backends.triton import triton_loops as loops
from hardtack.codegen.backends.triton import triton_templates as templates
from hardtack.codegen.backends.triton.compile import compile_kernels, toolchain
from hardtack.codegen.backends.triton.cuda_compile import compile_cuda
from hardtack.codegen.backends.triton.helpers import module_head
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.siblings import render_siblings
from hardtack.codegen.backends.triton.waits import with_waits
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.expr import const
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.schedule import to_text_kernel
from hardtack.codegen.ir.schedule_verify import verify_kernel
from hardtack.codegen.ir.tiles import SharedLaunch, TiledKernel, to_text, to_text_shared
from hardtack.codegen.ir.tiles_verify import verify_tiled
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.rules import rules_on
from hardtack.codegen.machine.machine import Gpu, Machine
from hardtack.codegen.passes.gpu.addend import START_FROM_ADDEND
from hardtack.codegen.passes.gpu.coarse import TAKE_COARSE_FORMS
from hardtack.codegen.passes.gpu.dependent_launch import LAUNCH_DEPENDENT
from hardtack.codegen.passes.gpu.float8_products import MULTIPLY_FLOAT8
from hardtack.codegen.passes.gpu.gates import INLINE_GATES
from hardtack.codegen.passes.gpu.gelu import FUSE_GELU
from hardtack.codegen.passes.gpu.join_products import JOIN_PRODUCTS
from hardtack.codegen.passes.gpu.join_siblings import JOIN_SIBLINGS
from hardtack.codegen.passes.gpu.kernel_nests import GpuKernelIr
from hardtack.codegen.passes.gpu.neutral_reductions import NEUTRAL_REDUCTIONS
from hardtack.codegen.passes.gpu.regroup import REGROUP
from hardtack.codegen.passes.gpu.split_reductions import SPLIT_REDUCTIONS
from hardtack.codegen.passes.gpu.take_prologues import TAKE_PROLOGUES
from hardtack.codegen.passes.passes import Context, Passes
from hardtack.codegen.passes.shared.inline import INLINE
from hardtack.codegen.passes.shared.integer_products import INTEGER_PRODUCTS
from hardtack.codegen.plan.accesses import accesses_of
from hardtack.codegen.plan.planner import KernelLaunch
from hardtack.codegen.schedule.fusion_limits import FusionLimits
from hardtack.codegen.schedule.gpu_tile import tile
from hardtack.codegen.schedule.template_tile import tile_template
from hardtack.codegen.tune.choice import NO_TUNING, Tuning

GPU_LIMITS = FusionLimits(
    parallel_enough=64,
    small_work=1 << 18,
    largest_group=24,
    nested_reductions=False,
    keeps_parallelism=True,
    sibling_points=1 << 17,
)
PASSES = Passes(
    graph=(INTEGER_PRODUCTS, MULTIPLY_FLOAT8, JOIN_PRODUCTS),
    nests=(INLINE, INLINE_GATES, NEUTRAL_REDUCTIONS, REGROUP, SPLIT_REDUCTIONS),
    groups=(TAKE_PROLOGUES, JOIN_SIBLINGS),
    kernels=(FUSE_GELU, TAKE_COARSE_FORMS, START_FROM_ADDEND, LAUNCH_DEPENDENT),
)
PROGRAMS_REDUCING = 8
"""Of one multiprocessor: with more, a kernel of its own reduces a row sooner than each of them."""


@dataclass(frozen=True)
class TritonBackend:
    """See hardtack.codegen.backend.Backend. fusion: its limits but for what depends on the machine."""

    machine: Gpu
    comment: str = "#"
    suffix: str = "py"
    fusion: FusionLimits = GPU_LIMITS
    tuning: Tuning = NO_TUNING

    @property
    def machines(self) -> tuple[Gpu, ...]:
        return (self.machine,)

    @property
    def key(self) -> str:
        return self.machine.target

    @property
    def subfolder(self) -> str:
        return self.key.replace(":", "_")

    @property
    def limits(self) -> FusionLimits:
        return replace(self.fusion, most_reducing=PROGRAMS_REDUCING * self.machine.multiprocessors)

    @property
    def rules(self) -> Mapping[str, Callable[[Lowering, Op], None]]:
        return rules_on(Gpu)

    def passes(self) -> Passes:
        return PASSES

    def schedule(
        self, group: Group, buffers: Mapping[str, Buffer], kept: frozenset[str], name: str, context: Context
    ) -> GpuKernelIr:
        if group.siblings:
            parts = enumerate(group.siblings)
            tiles = (tile(g, buffers, kept, f"part{k}", context.hints, self.machine) for k, g in parts)
            return SharedLaunch(name, tuple(tiles))
        if group.anchor is not None:
            return tile_template(group, buffers, kept, name)
        return tile(group, buffers, kept, name, context.hints, self.machine)

    def verify(self, kernel: GpuKernelIr, group: Group | None, buffers: Mapping[str, Buffer]) -> None:
        if isinstance(kernel, SharedLaunch):
            groups = [None] * len(kernel.parts) if group is None else group.siblings
            for part, g in zip(kernel.parts, groups, strict=True):
                verify_tiled(part, g, buffers, self.machine.most_warps)
        elif isinstance(kernel, TiledKernel):
            verify_tiled(kernel, group, buffers, self.machine.most_warps)
        else:
            verify_kernel(kernel, group, buffers)

    def listing(self, kernel: GpuKernelIr) -> str:
        if isinstance(kernel, SharedLaunch):
            return to_text_shared(kernel)
        return to_text(kernel) if isinstance(kernel, TiledKernel) else to_text_kernel(kernel)

    def render(self, kernel: GpuKernelIr, group: Group, buffers: Mapping[str, Buffer]) -> Rendered:
        printed = with_waits(_printed(kernel, buffers), kernel.overlap)
        if not printed.whole:
            printed = replace(printed, text=module_head(printed.text, self.machine) + printed.text)
        name, source = named(kernel.name, printed.text, _settings(printed))
        accesses = accesses_of(group, buffers, printed.buffers)
        launch = KernelLaunch(
            name, printed.buffers, accesses, printed.writes, printed.reads, printed.ints, const(0), const(0),
            printed.origin, printed.grid, printed.maps,
        )  # fmt: skip
        return Rendered(visible(launch, group), source, replace(printed, name=name, text=source))

    def tools(self) -> Mapping[str, str]:
        found = toolchain(self.machine)
        return {"triton": found.triton, **({} if found.ptxas is None else {"ptxas": found.ptxas})}

    def compile(
        self,
        kernels: Mapping[str, Rendered],
        machine: Machine,
        *,
        cache: KernelCache,
        jobs: int | None = None,
        progress: CompileProgress | None = None,
    ) -> MachineCode:
        assert machine is self.machine
        ordered = [_detail(kernels[name]) for name in sorted(kernels)]
        ours, users = ([k for k in ordered if (k.cuda is None) is triton] for triton in (True, False))
        codes = compile_kernels(ours, self.machine, cache=cache, jobs=jobs, progress=progress)
        more, tools = compile_cuda(users, self.machine, cache=cache)
        codes |= more
        records = {name: code.record for name, code in codes.items()}
        members = {c.record.member: c.code for c in codes.values()}
        return MachineCode((self.machine.name,), None, records, members, tools)


def _printed(kernel: GpuKernelIr, buffers: Mapping[str, Buffer]) -> TritonKernel:
    if isinstance(kernel, SharedLaunch):
        return render_siblings(kernel, buffers)
    return loops.render(kernel, buffers) if isinstance(kernel, TiledKernel) else templates.render(kernel, buffers)


def _detail(kernel: Rendered) -> TritonKernel:
    assert isinstance(kernel.detail, TritonKernel), kernel.launch.kernel
    return kernel.detail


def _settings(kernel: TritonKernel) -> str:
    """What besides its text decides what a kernel is: equal ones are compiled once."""
    rest = (kernel.arguments, sorted(kernel.constexprs.items()), kernel.num_warps, kernel.num_stages, kernel.num_ctas)
    return f"{rest!r} {kernel.dependent!r} {sorted(kernel.options.items())!r}{kernel.cuda or ''}"
