"""Comparing a bundle with eager PyTorch: every output with the module, every step with the reference of its graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from hardtack.caches import cache_states
from hardtack.codegen.package.bundle import open_bundle
from hardtack.errors import InputError
from hardtack.exporter import EntryGraph, Exported
from hardtack.exporter.constants import parts_of
from hardtack.exporter.dtypes import from_torch, part_dtype
from hardtack.exporter.reference import run as run_reference
from hardtack.exporter.sizes.strides import contract_order, laid_out
from hardtack.extending import extensions_of
from hardtack.kernels import Kernel
from hardtack.narrowing import choice_of, eager_run, example, input_tensors, narrow_products
from hardtack.plugins import GraphPass, Plugin
from hardtack.quantisation import graphs_of, quantise
from hardtack.runtime import RNG_STATE, Model, Step

_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.float8_e4m3fn: 2**-3,
    torch.float8_e5m2: 2**-2,
    torch.float8_e8m0fnu: 1.0,
}
"""Largest |difference| / largest |eager| by dtype: rounding in another order, a few hundred ulps; of 8 bits one. Floats
of a bundle whose products take 16 bits (Options.compute) may differ by as much as that type's."""

_COMPUTED = {"bf16": torch.bfloat16, "f16": torch.float16}
_ROUNDED = {"int8:dynamic": 2**-5, "int8:static": 2**-5, "int8": 2**-5, "fp8": 2**-3}
"""The least tolerance of floats where activations or caches are rounded: one between two codes may get the other one,
since sums before it are added in another order. Ten layers were 0.009 apart in int8, 0.028 in fp8. Of caches eager has
the numbers, and they lie between codes."""


@dataclass(frozen=True)
class Difference:
    """One value: `absolute` is the largest |ours - eager|, `relative` that over the largest |eager|."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    absolute: float
    relative: float
    allowed: float
    where: str = ""

    @property
    def good(self) -> bool:
        return self.relative <= self.allowed

    def document(self) -> dict[str, Any]:
        """For JSON, which has no infinity: that is given as text."""
        out = {k: str(v) if v in (math.inf, -math.inf) else v for k, v in asdict(self).items()}
        return {**out, "good": self.good}


@dataclass(frozen=True)
class Comparison:
    outputs: tuple[Difference, ...]
    steps: tuple[Difference, ...]


def difference(
    name: str,
    ours: torch.Tensor,
    eager: torch.Tensor,
    tolerance: float | None,
    where: str = "",
    compute: str = "f32",
    rounded: Sequence[str] = (),
) -> Difference:
    """How far two tensors are apart. NaN equals NaN here; another dtype or shape is infinitely far. tolerance: of
    `relative`; None: by dtype, and by what the bundle's products are computed in and what is rounded to."""
    allowed = _allowed(eager.dtype, compute, rounded) if tolerance is None else tolerance
    type_ = str(eager.dtype).removeprefix("torch.")
    shape = tuple(eager.shape)
    if ours.dtype != eager.dtype or ours.shape != eager.shape:
        found = f"{where} (ours is {ours.dtype} {list(ours.shape)})".strip()
        return Difference(name, type_, shape, float("inf"), float("inf"), allowed, found)
    if eager.is_complex():
        ours, eager = parts_of(ours), parts_of(eager)
    a, b = ours.double(), eager.double()
    same = (a == b) | (a.isnan() & b.isnan())
    distance = torch.where(same, torch.zeros_like(a), (a - b).abs())
    absolute = float(distance.max()) if distance.numel() else 0.0
    finite = b[b.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    if absolute != absolute:
        absolute = float("inf")
    relative = 0.0 if absolute == 0 else absolute / scale if scale else float("inf")
    return Difference(name, type_, shape, absolute, relative, allowed, where)


def compare(
    model: Model,
    module: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    entry: str | None = None,
    steps: bool = False,
    tolerance: float | None = None,
    calibration: Any = None,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    kernels: Mapping[Any, Kernel] | None = None,
    passes: tuple[GraphPass, ...] = (),
    plugins: tuple[Plugin | str, ...] | None = None,
) -> Comparison:
    """Runs both on the example inputs. With `steps`, the graph is captured again and each value that the bundle's plan
    writes is compared with the graph's value of the same name, in the order of the run; products take as many bits
    there as in the bundle. Outputs, and inputs that the bundle writes to, are compared with eager as it is; where the
    bundle has weights of few bits (Options.weights), with eager whose weights and activations have been made so; caches
    keep their type there.
    calibration, decompositions, kernels, passes, plugins: what the bundle was exported with.

    Raises InputError where the bundle has another contract than the model, was made with data and there are none, or
    draws random numbers, and ExportError as hardtack.export does.
    """
    name = entry or _only(model)
    with open_bundle(model.path) as bundle:
        chosen = choice_of(bundle.manifest.numerics, calibration)
        written = {t.name: None for e in bundle.manifest.entries for t in e.inputs if t.written}
    chosen = replace(chosen, written_inputs=tuple(written))
    brought = extensions_of(replace(chosen, passes=passes, plugins=plugins), decompositions, kernels)
    if not model.target.startswith("cpu"):
        brought = brought.for_gpus()
    compute, rounded = chosen.compute, [str(x) for x in (chosen.activation_scheme, chosen.cache) if x is not None]
    module = quantise(module, chosen, args, kwargs, dynamic_shapes).model
    exported = graphs_of(module, chosen, args, kwargs, dynamic_shapes, extensions=brought)
    exported, _ = narrow_products(exported, compute, chosen.keep_f32)
    exported, _ = cache_states(exported, chosen)
    if name not in exported.entries:
        raise InputError(f"the model has no entry point {name!r}; it has: {', '.join(exported.entries)}")
    one, given, named = example(module, args, kwargs, name)
    graph = exported.entries[name]
    if any(s.name == RNG_STATE for s in graph.graph.states):
        raise InputError(
            f"{name} draws random numbers, and eager draws others: there is nothing to compare; compare the parts of "
            "the model that draw none, or pass the numbers in as an input"
        )
    inputs = input_tensors(graph, given, named)
    session = model.session(name)
    seen: list[Step] = []
    if steps:
        session.observe(seen.append)
    # clones: eager may change its inputs in place
    own = {k: laid_out(v, contract_order(v)) for k, v in inputs.items()}
    results = session.run_tensors(own)
    session.observe(None)
    # before eager runs: it changes the module's buffers, whose memory the graph's constants share
    found = _steps(exported, graph, inputs, seen, tolerance, compute, rounded) if steps else ()
    with torch.no_grad():
        eager, left = eager_run(one, given, named)
    ours = list(results.items())
    if len(eager) != len(ours):
        raise InputError(f"the bundle gives {len(ours)} tensors, the model {len(eager)}: they are of different models")
    behind = input_tensors(graph, *left)
    changed = [i.name for i in graph.graph.inputs if i.final is not None]
    ours += [(f"{name} behind the run", own[name]) for name in changed]
    pairs = zip(ours, [*eager, *(behind[name] for name in changed)], strict=True)
    outputs = tuple(
        difference(n, torch.as_tensor(x), y, tolerance, compute=compute, rounded=rounded) for (n, x), y in pairs
    )
    return Comparison(outputs, found)


def _allowed(dtype: torch.dtype, compute: str, rounded: Sequence[str]) -> float:
    dtype = part_dtype(dtype)
    own = _TOLERANCE.get(dtype, 0.0)
    if dtype.is_floating_point:
        own = max(own, *(_ROUNDED[x] for x in rounded), 0.0)
    narrowed = compute != "f32" and dtype.is_floating_point
    return max(own, _TOLERANCE[_COMPUTED[compute]]) if narrowed else own


def _only(model: Model) -> str:
    if len(model.entries) == 1:
        return next(iter(model.entries))
    raise InputError(f"the bundle has several entry points, name one: {', '.join(model.entries)}")


def _steps(
    exported: Exported,
    entry: EntryGraph,
    inputs: Mapping[str, torch.Tensor],
    seen: Sequence[Step],
    tolerance: float | None,
    compute: str,
    rounded: Sequence[str],
) -> tuple[Difference, ...]:
    """Values that both the graph and the plan have; what only the plan has has no counterpart. Of steps that write one
    value, part by part as a cache of all layers, the last one leaves it."""
    wanted = run_reference(entry.graph, exported.store, inputs)
    # what a step writes to a state or an input is its new value
    finals = entry.graph.finals()
    last = {name: k for k, step in enumerate(seen) for name in step["values"]}
    out: list[Difference] = []
    for k, step in enumerate(seen):
        where = " ".join(x for x in (step["source_op"], f"{step['file']}:{step['line']}" if step["file"] else "") if x)
        for name, array in step["values"].items():
            eager = wanted.get(finals.get(name, name))
            if eager is None or last[name] != k:
                continue
            ours = torch.from_numpy(array)
            if eager.dtype is torch.bfloat16 or from_torch(eager.dtype).is_float8:
                ours = ours.view(eager.dtype)
            out.append(difference(name, ours, eager, tolerance, where, compute, rounded))
    return tuple(out)
