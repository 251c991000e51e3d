"""The targets that an export may name: CPUs ("cpu", "cpu:x86-64-v3") and GPUs ("cuda:sm_90", "hip:gfx942")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.backend import CppBackend
from hardtack.codegen.backends.cpp.targets import CpuTarget, TargetError, parse_target
from hardtack.codegen.backends.triton.backend import TritonBackend
from hardtack.codegen.backends.triton.compile import ARCHITECTURES, toolchain
from hardtack.codegen.tune.choice import tuning_for
from hardtack.codegen.tune.machine import target_name
from hardtack.codegen.tune.table import TuningTable

GPU_TARGETS = {target_name(arch): arch for arch in ARCHITECTURES}
"""Name -> architecture."""


@dataclass(frozen=True)
class Targets:
    """What to build for, in the order given, each once. gpu: architectures."""

    cpu: tuple[CpuTarget, ...]
    gpu: tuple[str, ...]

    def backends(self, tuning: TuningTable | None = None) -> dict[str, Backend]:
        """A backend for all CPU targets under "cpu", and one for each GPU target under its name.

        tuning: the user's table. Raises TargetError where none of the targets is of its architecture.
        """
        if tuning is not None and tuning.arch not in self.gpu:
            named = ", ".join((*(f"cpu:{t.name}" for t in self.cpu), *map(target_name, self.gpu)))
            raise TargetError(f"the tuning table is for {target_name(tuning.arch)}; the targets are {named}")
        found: dict[str, Backend] = {"cpu": CppBackend()} if self.cpu else {}
        return found | {target_name(arch): TritonBackend(arch, tuning=tuning_for(arch, tuning)) for arch in self.gpu}


def parse_targets(names: Sequence[str]) -> Targets:
    """The targets that the texts name.

    Raises TargetError, listing the known ones, for an unknown target, and TritonError for a GPU target where Triton is
    missing or not a supported version.
    """
    if not names:
        raise TargetError('no target to build for; "cpu" is x86-64-v4 and x86-64-v3')
    cpu: dict[str, CpuTarget] = {}
    gpu: dict[str, None] = {}
    for text in names:
        if text in GPU_TARGETS:
            toolchain(GPU_TARGETS[text])
            gpu[GPU_TARGETS[text]] = None
        else:
            for t in parse_target(text, tuple(GPU_TARGETS)):
                cpu.setdefault(t.name, t)
    return Targets(tuple(cpu.values()), tuple(gpu))


__all__ = ["GPU_TARGETS", "TargetError", "Targets", "parse_targets"]
