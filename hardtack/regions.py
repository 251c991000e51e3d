"""hardtack.export_region: submodules of a model become entry points of a bundle; the rest of it stays eager."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import nn

from hardtack.api import ExportInfo, export
from hardtack.baked_module import BakedBundle, BakedModule
from hardtack.exporter import InputSpecError, MutationError, TrainingModeError
from hardtack.kernels import Kernel
from hardtack.model_copies import copied
from hardtack.options import Options
from hardtack.region_calls import LEAVE_OUT, Call, Calls, calls_of_region

ROUNDS = 5
"""Times that a call is timed, eager and baked in turn, after one of each that is not."""


@dataclass(frozen=True)
class RegionPart:
    """A submodule that runs from the bundle, under its own name as the entry point.

    num_calls: in a run of the first example. eager_seconds, baked_seconds: of these calls together, medians, on this
    machine. farthest: the largest difference of an element from eager's, relative to eager's largest, in any example.
    """

    name: str
    num_calls: int
    eager_seconds: float
    baked_seconds: float
    farthest: float


@dataclass(frozen=True)
class Region:
    """What export_region made. module: the model with the submodules in the bundle; it shares all other parameters with
    the one that was given, which stays as it was. export_seconds: what the export took, capture to file."""

    module: nn.Module
    parts: tuple[RegionPart, ...]
    info: ExportInfo
    export_seconds: float

    @property
    def saved_seconds(self) -> float:
        """In a run of the first example; negative where the bundle is slower."""
        return sum(p.eager_seconds - p.baked_seconds for p in self.parts)

    @property
    def break_even_runs(self) -> int | None:
        """After how many runs of the first example the export has paid; None: it never does."""
        return math.ceil(self.export_seconds / self.saved_seconds) if self.saved_seconds > 0 else None

    def __str__(self) -> str:
        lines = [f"{'part':<40} {'calls':>5} {'eager ms':>9} {'baked ms':>9} {'farthest':>9}"]
        lines += [
            f"{p.name:<40} {p.num_calls:>5} "
            f"{p.eager_seconds * 1e3:>9.3f} {p.baked_seconds * 1e3:>9.3f} {p.farthest:>9.1e}"
            for p in self.parts
        ]
        runs = self.break_even_runs
        paid = f"which pays after {runs:,} runs" if runs is not None else "and the bundle is no faster: it never pays"
        return "\n".join((*lines, f"{self.info.path}: exported in {self.export_seconds:.1f} s, {paid}"))


def export_region(
    module: nn.Module,
    patterns: str | Sequence[str],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    path: str | os.PathLike[str] = "region.pkg",
    more_args: Sequence[tuple[Any, ...]] = (),
    more_kwargs: Sequence[Mapping[str, Any]] = (),
    targets: Sequence[str] | None = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    kernels: Mapping[Any, Kernel] | None = None,
    options: Options | None = None,
    progress: bool | None = None,
) -> Region:
    """Bakes the submodules that `patterns` name into one bundle, and gives the model with them in it.

    patterns: names as of module.named_modules(), where * stands for any part of a path ("encoder.layers.*"); of
    modules in each other the outermost one that is called becomes an entry point.
    args, kwargs: an example of the whole model's inputs. more_args, more_kwargs: further ones. The model runs on all of
    them, which shows how its submodules are called: a size that is the same in all calls stays as it is, one that
    differs is dynamic.
    targets: as for `export`; None: this machine's CPU, or the GPU that the parameters are on. The others are as for
    `export`. Options that quantise take their examples from calls of the submodules, too.

    Raises InputSpecError for a pattern that names nothing which is called and for calls that differ in more than sizes,
    MutationError for a submodule that keeps a state, and what `export` and `hardtack.load` raise.
    """
    names = [patterns] if isinstance(patterns, str) else list(patterns)
    if module.training:
        raise TrainingModeError("the module is in training mode", fix="call module.eval() before exporting")
    examples = _examples(args, kwargs, more_args, more_kwargs)
    region = calls_of_region(copied({"": module})[""], names, examples)
    _check_results(region)
    parts = {c.name: module.get_submodule(c.name) for c in region}
    begun = time.perf_counter()
    info = export(
        parts,
        {c.name: c.calls[0].args for c in region},
        {c.name: c.calls[0].kwargs for c in region},
        path=path,
        dynamic_shapes={c.name: c.dynamic_shapes for c in region},
        targets=targets if targets is not None else (_own_target(module),),
        decompositions=decompositions,
        kernels=kernels,
        options=options,
        progress=progress,
    )
    seconds = time.perf_counter() - begun
    bundle = BakedBundle(os.fspath(info.path), str(_device(module)), torch.get_num_threads())
    _check_states(bundle, region, info)
    baked = {c.name: BakedModule(bundle, c.name, c.calls[0].result, parts[c.name]) for c in region}
    measured = tuple(_measured(c, copied({"": parts[c.name]})[""], baked[c.name]) for c in region)
    return Region(_with_parts(module, baked), measured, info, seconds)


def _examples(args: Any, kwargs: Any, more_args: Sequence[Any], more_kwargs: Sequence[Any]) -> list[Any]:
    if more_args and more_kwargs and len(more_args) != len(more_kwargs):
        raise InputSpecError(
            f"more_args has {len(more_args)} examples and more_kwargs {len(more_kwargs)}",
            fix="give both for each example, or leave one of them out",
        )
    count = max(len(more_args), len(more_kwargs))
    given = zip(more_args or [()] * count, more_kwargs or [{}] * count, strict=True)
    return [(args, kwargs or {}), *given]


def _device(module: nn.Module) -> torch.device:
    tensors = (*module.parameters(), *module.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def _own_target(module: nn.Module) -> str:
    device = _device(module)
    if device.type == "cpu":
        return "cpu:native"
    major, minor = torch.cuda.get_device_capability(device)
    return f"cuda:sm_{major}{minor}"


def _check_states(bundle: BakedBundle, region: Sequence[Calls], info: ExportInfo) -> None:
    """MutationError, without a file, for a region with states: each thread would have its own, out of reach of the
    eager rest."""
    states = bundle.model().states
    if states:
        for written in filter(None, (info.path, info.weights_path)):
            written.unlink()
        raise MutationError(
            f"the region {', '.join(c.name for c in region)} keeps states between calls: {', '.join(states)}",
            fix="leave out of it what writes to buffers or draws random numbers",
        )


def _check_results(region: Sequence[Calls]) -> None:
    for calls in region:
        first, *others = (pytree.tree_structure(c.result) for c in calls.calls)
        if any(other != first for other in others):
            raise InputSpecError(f"{calls.name} gives results of different structure", fix=LEAVE_OUT)


def _with_parts(module: nn.Module, baked: Mapping[str, BakedModule]) -> nn.Module:
    """A copy that shares the parameters, with the parts in place of the submodules, under each of their names."""
    whole: nn.Module = copied({"": module})[""]
    by_module = {id(module.get_submodule(name)): part for name, part in baked.items()}
    for name, child in module.named_modules(remove_duplicate=False):
        parent, _, last = name.rpartition(".")
        place = whole.get_submodule(parent)
        if id(child) in by_module and last in place._modules:  # else it lies in a part, which keeps the rest to itself
            place._modules[last] = by_module[id(child)]
    return whole


def _measured(calls: Calls, eager: nn.Module, baked: BakedModule) -> RegionPart:
    with torch.no_grad():
        apart = [_apart(c, baked) for c in calls.calls]
        seconds = [_seconds(c, eager, baked) for c in calls.calls[: calls.of_first]]
    eager_seconds, baked_seconds = (sum(column) for column in zip(*seconds, strict=True))
    return RegionPart(calls.name, calls.of_first, eager_seconds, baked_seconds, max(apart))


def _apart(call: Call, baked: BakedModule) -> float:
    got, want = (
        [_real(x) for x in pytree.tree_leaves(found) if isinstance(x, torch.Tensor)]
        for found in (baked(*call.args, **call.kwargs), call.result)
    )
    return max((_relative(g, w) for g, w in zip(got, want, strict=True)), default=0.0)


def _real(x: torch.Tensor) -> torch.Tensor:
    """In float64; of complex numbers the parts."""
    return torch.view_as_real(x.resolve_conj()).double() if x.is_complex() else x.double()


def _relative(got: torch.Tensor, want: torch.Tensor) -> float:
    """NaN and infinity are apart from all but themselves."""
    if torch.allclose(got, want, rtol=0, atol=0, equal_nan=True):
        return 0.0
    found = float((got - want).abs().max() / want.abs().max().clamp(min=1e-30))
    return found if math.isfinite(found) else math.inf


def _seconds(call: Call, *modules: nn.Module) -> list[float]:
    """Of a call of each module, the median."""
    taken: list[list[float]] = [[] for _ in modules]
    for turn in range(ROUNDS + 1):
        for of_module, module in zip(taken, modules, strict=True):
            _synchronize(call)
            begin = time.perf_counter()
            module(*call.args, **call.kwargs)
            _synchronize(call)
            if turn:
                of_module.append(time.perf_counter() - begin)
    return [statistics.median(t) for t in taken]


def _synchronize(call: Call) -> None:
    if any(isinstance(x, torch.Tensor) and x.is_cuda for x in pytree.tree_leaves((call.args, call.kwargs))):
        torch.cuda.synchronize()
