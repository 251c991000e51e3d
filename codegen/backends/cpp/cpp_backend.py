"""CPUs as a Backend: C++ kernels, the same for every CPU of one layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.backend import NAME, CompileProgress, MachineCode, Rendered, named, visible
from hardtack.codegen.backends.cpp import cpp_loops as loops
from hardtack.codegen.backends.cpp import cpp_templates as templates
from hardtack.codegen.backends.cpp.compiler import Compiler, find_compiler
from hardtack.codegen.backends.cpp.toolchain import ToolchainError, Unit, compile_library
from hardtack.codegen.backends.cpp.user_code import unit_text
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.kernel_code import KernelCode
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Workspace
from hardtack.codegen.ir.schedule import Kernel, to_text_kernel
from hardtack.codegen.ir.schedule_verify import verify_kernel
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.cpu_custom import Custom
from hardtack.codegen.lower.rules import rules_on
from hardtack.codegen.machine.data import DEFAULT_CPUS, X86_64_V4
from hardtack.codegen.machine.machine import Cpu, Machine
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.library import check_library
from hardtack.codegen.passes.cpu.code_clamps import CODE_CLAMPS
from hardtack.codegen.passes.cpu.code_conversions import CODE_CONVERSIONS
from hardtack.codegen.passes.cpu.expand import EXPAND
from hardtack.codegen.passes.cpu.pooled_codes import POOLED_CODES
from hardtack.codegen.passes.passes import Context, Passes
from hardtack.codegen.passes.shared.inline import INLINE
from hardtack.codegen.passes.shared.integer_products import INTEGER_PRODUCTS
from hardtack.codegen.plan.accesses import accesses_of
from hardtack.codegen.plan.planner import KernelLaunch
from hardtack.codegen.schedule.cpu_tile import ALL_STEPS, TileSteps, tile
from hardtack.codegen.schedule.fusion_limits import FusionLimits, cpu_limits
from hardtack.codegen.schedule.template_tile import tile_template
from hardtack.codegen.tune.choice import NO_TUNING, Tuning

USUAL_LAYOUT = DEFAULT_CPUS[0].layout


@dataclass(frozen=True)
class CppBackend:
    """See hardtack.codegen.backend.Backend. machines: of one layout. compiler: None for the pinned one.
    alone: one CPU, apart from others of its layout, as it has a tuning table."""

    machines: tuple[Cpu, ...] = DEFAULT_CPUS
    compiler: Compiler | None = None
    comment: str = "//"
    suffix: str = "cpp"
    limits: FusionLimits = cpu_limits(X86_64_V4)
    tuning: Tuning = NO_TUNING
    steps: TileSteps = ALL_STEPS
    alone: bool = False

    def __post_init__(self) -> None:
        assert len({m.layout for m in self.machines}) == 1, "CPUs that kernels must tell apart are compiled apart"

    @property
    def key(self) -> str:
        if self.alone:
            return self.machines[0].target
        layout = self.machines[0].layout
        return "cpu" if layout == USUAL_LAYOUT else f"cpu:{layout}"

    @property
    def subfolder(self) -> str:
        return "" if self.key == "cpu" else self.key.replace(":", "_")

    @property
    def rules(self) -> Mapping[str, Callable[[Lowering, Op], None]]:
        return rules_on(Cpu)

    def passes(self) -> Passes:
        return Passes(graph=(CODE_CLAMPS, POOLED_CODES, INTEGER_PRODUCTS, CODE_CONVERSIONS), nests=(INLINE, EXPAND))

    def schedule(
        self, group: Group, buffers: Mapping[str, Buffer], kept: frozenset[str], name: str, context: Context
    ) -> Kernel:
        if group.anchor is not None:
            return tile_template(group, buffers, kept, name)
        return tile(group, buffers, kept, name, self.steps)

    def verify(self, kernel: Kernel, group: Group | None, buffers: Mapping[str, Buffer]) -> None:
        verify_kernel(kernel, group, buffers)

    def listing(self, kernel: Kernel) -> str:
        return to_text_kernel(kernel)

    def render(self, kernel: Kernel, group: Group, buffers: Mapping[str, Buffer]) -> Rendered:
        if kernel.anchor is not None:
            rendered = templates.render(kernel, buffers, NAME)
            source, ints = rendered.source, rendered.ints
            workspace = kernel.anchor.template.workspace(kernel.anchor)
        else:
            source, ints = loops.render(kernel, buffers, NAME), tuple(loops.kernel_syms(kernel))
            workspace = Workspace(per_worker=loops.worker_nbytes(kernel, buffers))
        anchor = kernel.anchor.template if kernel.anchor is not None else None
        code = anchor.code if isinstance(anchor, Custom) else None
        name, text = named(kernel.name, source, "" if code is None else str(code))
        memory = tuple(b.name for b in kernel.buffers)
        accesses = accesses_of(group, buffers, memory)
        launch = KernelLaunch(
            name,
            memory,
            accesses,
            kernel.writes,
            kernel.reads,
            ints,
            workspace.shared,
            workspace.per_worker,
            kernel.origin,
            host=code.function if code is not None and code.host else None,
        )
        return Rendered(visible(launch, group), text, code)

    def tools(self) -> Mapping[str, str]:
        return {"compiler": self._compiler().version}

    def compile(
        self,
        kernels: Mapping[str, Rendered],
        machine: Machine,
        *,
        cache: KernelCache,
        jobs: int | None = None,
        progress: CompileProgress | None = None,
    ) -> MachineCode:
        assert isinstance(machine, Cpu)
        abi = {name: 2 if isinstance(kernel.detail, KernelCode) else 1 for name, kernel in kernels.items()}
        units = [Unit(name, kernel.text, abi=abi[name]) for name, kernel in sorted(kernels.items())]
        users = _user_units(kernels.values())
        library = compile_library(units + users, machine, self._compiler(), cache=cache, jobs=jobs, progress=progress)
        if users:
            _check_form(library, machine, users)
        return MachineCode(machine.features, library)

    def _compiler(self) -> Compiler:
        return self.compiler or find_compiler()


def _user_units(kernels: Iterable[Rendered]) -> list[Unit]:
    """A unit for each text of users' kernels: several may have functions in one."""
    texts: dict[str, set[KernelCode]] = {}
    for kernel in kernels:
        if isinstance(kernel.detail, KernelCode) and not kernel.detail.host:
            texts.setdefault(kernel.detail.key, set()).add(kernel.detail)
    return [
        Unit(f"users/{key}", unit_text(codes), tuple(sorted(codes, key=lambda c: c.function)))
        for key, codes in sorted(texts.items())
    ]


def _check_form(library: bytes, machine: Cpu, users: Sequence[Unit]) -> None:
    """ToolchainError where a user's text made of the library what no reader takes."""
    try:
        check_library(memoryview(library), "the library", machine.target)
    except LoadError as error:
        raise ToolchainError(
            f"{', '.join(u.what for u in users)}: {error}, for {machine.name}: a library runs nothing when it is "
            "loaded; leave out thread_local variables, and global objects that are made by code"
        ) from error
