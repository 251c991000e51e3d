"""The targets that an export may name: CPUs ("cpu", "cpu:x86-64-v3") and GPUs ("cuda:sm_90", "hip:gfx942").

Texts become machines here, where they enter, and machines backends; behind that nobody reads a target's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.compiler import find_compiler
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import CPUS, DEFAULT_CPUS, GPUS, H200
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu, Gpu, Machine, TargetError
from hardtack.codegen.tune.choice import tuning_for
from hardtack.codegen.tune.table import NONE, SHIPPED_ALONE, Tables

GPU_TARGETS = {gpu.target: gpu for gpu in GPUS.values()}
"""Name -> machine."""
STAGES = tuple(dict.fromkeys((*TritonBackend(H200).passes().stages, *CppBackend().passes().stages)))
"""Of all backends: what has a text, in order."""
_NAMED = {cpu.target: cpu for cpu in CPUS.values()} | GPU_TARGETS


def parse_targets(names: Sequence[str]) -> tuple[Machine, ...]:
    """What the texts name, each once: CPUs, best first, since a runtime takes the first that it can run; then GPUs in
    their order.

    Raises TargetError, listing the known ones, for an unknown one.
    """
    if not names:
        raise TargetError('no target to build for; "cpu" is x86-64-v4 and x86-64-v3')
    found: dict[str, Machine] = {}
    for text in names:
        for machine in _named(text):
            found.setdefault(machine.target, machine)
    return tuple(sorted(found.values(), key=_rank))


def _rank(machine: Machine) -> int:
    """Of CPUs their place in the list of all, "native" before them."""
    return list(CPUS).index(machine.name) if machine.name in CPUS else -1 if isinstance(machine, Cpu) else len(CPUS)


def _named(text: str) -> tuple[Machine, ...]:
    if text == "cpu":
        return DEFAULT_CPUS
    if text == "cpu:native":
        return (native_cpu(),)
    if text in _NAMED:
        return (_NAMED[text],)
    known = ", ".join(("cpu", *(cpu.target for cpu in CPUS.values()), "cpu:native", *GPU_TARGETS))
    raise TargetError(f"unknown target {text!r}; known targets: {known}")


def backends_for(
    names: Sequence[str], tuning: Tables = SHIPPED_ALONE, compiler: str | None = None
) -> tuple[Backend, ...]:
    """The backends of the targets: one for the CPUs of each layout, then one for each GPU.

    compiler: for CPUs, as find_compiler has it. Raises TargetError for an unknown target, or where what is said about
    tables concerns none, CompilerError for a compiler that is not there.
    """
    machines = parse_targets(names)
    gpus = [m for m in machines if isinstance(m, Gpu)]
    named = ", ".join(m.target for m in sorted(machines, key=lambda m: isinstance(m, Gpu)))
    if tuning.user is not None and tuning.user.arch not in (gpu.name for gpu in gpus):
        raise TargetError(f"the tuning table is for {GPUS[tuning.user.arch].target}; the targets are {named}")
    if not tuning.shipped and not gpus:
        raise TargetError(f'the tuning "{NONE}" is for GPU targets, others have no tables; the targets are {named}')
    layouts: dict[str, list[Cpu]] = {}
    for m in machines:
        if isinstance(m, Cpu):
            layouts.setdefault(m.layout, []).append(m)
    found = find_compiler(compiler) if compiler is not None and layouts else None
    cpus = [CppBackend(tuple(group), found) for group in layouts.values()]
    return (*cpus, *(TritonBackend(gpu, tuning=tuning_for(gpu, tuning)) for gpu in gpus))


def stage_backend(target: str, stage: str, tuning: Tables = SHIPPED_ALONE) -> Backend:
    """The backend of one target. Raises TargetError where it has no such stage."""
    backend = backends_for([target], tuning)[0]
    if stage not in backend.passes().stages:
        known = ", ".join(backend.passes().stages)
        raise TargetError(f"there is no stage {stage} for target {target}; its stages are {known}")
    return backend


__all__ = ["GPU_TARGETS", "STAGES", "TargetError", "backends_for", "parse_targets", "stage_backend"]
