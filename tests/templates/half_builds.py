"""The builds that products of 16-bit numbers are tested with, and their numbers as kernels get them.

Instructions are modelled by plain C++, too (HT_MODEL_PAIRS, HT_MODEL_TILES), for CPUs that lack them; the real ones run
wherever the suite meets a CPU that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.host import native_cpu
from hardtack.codegen.machine.machine import Cpu
from hardtack.codegen.plan.prepack import PACKINGS
from tests.support.aarch64 import missing, needs_aarch64
from tests.templates.cpu_kernels import emulated_targets, runnable_targets

DTYPES = {torch.bfloat16: DType.BF16, torch.float16: DType.F16}
STORAGE = {torch.bfloat16: "ht::bf16", torch.float16: "ht::f16"}


def name_of(dtype: torch.dtype) -> str:
    """Without the module: bfloat16."""
    return str(dtype).removeprefix("torch.")


def bits(t: torch.Tensor) -> torch.Tensor:
    """What is stored, as integers: ctypes and numpy know no bf16."""
    return t.view(torch.int16)


def packed(kind: str, weights: torch.Tensor, *params: int) -> torch.Tensor:
    """By the export's own packing, of the bits."""
    return torch.from_numpy(PACKINGS[kind](bits(weights).contiguous().numpy(), params))


def _model(cpu: Cpu, name: str, *macros: str) -> Cpu:
    flags = tuple(f"-D{m}" for m in macros)
    return replace(cpu, name=name, flags_clang=(*cpu.flags_clang, *flags), flags_gcc=(*cpu.flags_gcc, *flags))


def _native_builds() -> list[Cpu]:
    """Every target that runs here; instructions for pairs and tiles by their models on the best and the least."""
    known = runnable_targets()
    models = [
        _model(known[-1], "pairs-model", "HT_MODEL_PAIRS"),
        _model(known[-1], "tiles-model", "HT_MODEL_TILES", "HT_MODEL_PAIRS"),
    ]
    if native_cpu().arch == "x86_64" and known[0] is not known[-1]:
        models.append(_model(known[0], "tiles-model-wide", "HT_MODEL_TILES", "HT_MODEL_PAIRS"))
    return [*known, *models]


BUILDS = [*_native_builds(), *(emulated_targets() if missing() is None else ())]


def build_params() -> list[Any]:
    """Parameters of a test: all of them; those that qemu-user would run are skipped where it is not there."""
    here = [pytest.param(cpu, id=cpu.name) for cpu in _native_builds()]
    return here + [pytest.param(cpu, id=cpu.name, marks=needs_aarch64) for cpu in emulated_targets()]


Kind = tuple[torch.dtype, Any]
"""A type of numbers and what their codes are: a kernel of its own, which takes seconds to compile for each build."""


def on_builds(kinds: Iterable[Kind], few: Callable[[int], Collection[Kind]]) -> pytest.MarkDecorator:
    """Parameters `library` (the build and the kind, for a fixture), `dtype` and `codes` of a test.

    The best build has every kind, each other one those that ``few`` gives for its place, and the rest in a sweep.
    """
    found = []
    for place, build in enumerate(build_params()):
        for kind in kinds:
            rare = place > 0 and kind not in few(place)
            marks = [*build.marks, *([pytest.mark.sweep(only=True)] if rare else ())]
            name = "-".join(name_of(x) if isinstance(x, torch.dtype) else str(x) for x in kind)
            found.append(pytest.param((*build.values, *kind), *kind, id=f"{build.id}-{name}", marks=marks))
    return pytest.mark.parametrize(("library", "dtype", "codes"), found, indirect=["library"])
