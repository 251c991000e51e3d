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
from hardtack.codegen.machine.host import host_kind, native_cpu
from hardtack.codegen.machine.machine import Cpu, Gpu, Machine, TargetError
from hardtack.codegen.tune.choice import Tuning, check_cuts, tuning_for
from hardtack.codegen.tune.table import NONE, SHIPPED_ALONE, Tables, TuningTable

GPU_TARGETS = {gpu.target: gpu for gpu in GPUS.values()}
"""Name -> machine."""


def _merged(some: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """The stages of both in the order that each has."""
    stages, at = list(some), 0
    for name in others:
        if name not in stages:
            stages.insert(at, name)
        at = stages.index(name) + 1
    return tuple(stages)


STAGES = _merged(TritonBackend(H200).passes().stages, CppBackend().passes().stages)
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
    user = tuning.user
    if user is not None and user.target not in (_level_target(m) for m in machines):
        raise TargetError(f"the tuning table is for {user.target}; the targets are {named}")
    if not tuning.shipped and not gpus:
        raise TargetError(
            f'the tuning "{NONE}" is for GPU targets, none are shipped for others; the targets are {named}'
        )
    groups: dict[tuple[str, str], list[Cpu]] = {}
    for m in machines:
        if isinstance(m, Cpu):
            groups.setdefault((m.layout, m.target if _has_table(m, user) else ""), []).append(m)
    found = find_compiler(compiler) if compiler is not None and groups else None
    cpus = []
    for (_, alone), group in groups.items():
        levels = (("user", user),) if alone and user is not None else ()
        cpus.append(CppBackend(tuple(group), found, alone=bool(alone), tuning=Tuning(levels)))
    return (*cpus, *(TritonBackend(gpu, tuning=tuning_for(gpu, tuning)) for gpu in gpus))


def _level_target(machine: Machine) -> str:
    """The target whose tables a machine takes: of "native" that of its level."""
    return f"cpu:{machine.level}" if isinstance(machine, Cpu) and machine.level else machine.target


def _has_table(cpu: Cpu, user: TuningTable | None) -> bool:
    """Whether the user's table is for a CPU. Raises TargetError where the CPU is this machine's and the table was made
    on another kind, LoadError for an entry that is no plan."""
    if user is None or user.target != _level_target(cpu):
        return False
    if cpu.level and host_kind() != user.cpu:
        raise TargetError(f"the tuning table was measured on {user.cpu}; cpu:native is {host_kind()}")
    check_cuts(user)
    return True


def stage_backend(target: str, stage: str, tuning: Tables = SHIPPED_ALONE) -> Backend:
    """The backend of one target. Raises TargetError where it has no such stage."""
    backend = backends_for([target], tuning)[0]
    if stage not in backend.passes().stages:
        known = ", ".join(backend.passes().stages)
        raise TargetError(f"there is no stage {stage} for target {target}; its stages are {known}")
    return backend


__all__ = ["GPU_TARGETS", "STAGES", "TargetError", "backends_for", "parse_targets", "stage_backend"]
