"""Options.compute: a model's products in 16 bits, and how accurate the result is at the example inputs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from hardtack.codegen.notes import ours
from hardtack.errors import InputError
from hardtack.exporter import EntryGraph, Exported, ExportError, narrowed
from hardtack.exporter.precision import DTYPES, Accuracy, Precision, Report, compare_outputs
from hardtack.options import Options
from hardtack.schemes import BY_DATA
from hardtack.trees import flattener


@dataclass(frozen=True)
class Narrowed:
    """What Options.compute did. num_products: that take operands of `dtype`; num_kept: products that stay f32, by
    reason. accuracy: of each output, by entry point; of none where there are no example inputs."""

    dtype: str
    num_products: int
    num_kept: Mapping[str, int]
    accuracy: Mapping[str, tuple[Accuracy, ...]]


def narrow_products(exported: Exported, compute: str, keep_f32: tuple[str, ...]) -> tuple[Exported, Report | None]:
    """The model as Options has it: itself for "f32". Raises InputSpecError for a pattern that fits no product."""
    if compute == "f32":
        return exported, None
    return narrowed(exported, Precision(DTYPES[compute], keep_f32))


def measured(
    wide: Exported, chosen: Exported, report: Report, dtype: str, module: Any, args: Any, kwargs: Any
) -> Narrowed:
    """The report of an export: both models are run on the example inputs by the graph's reference. Raises
    InternalError for what is a bug of Hardtack."""
    accuracy: dict[str, tuple[Accuracy, ...]] = {}
    with ours("the measurement of the accuracy", ExportError, InputError):
        for name, entry in wide.entries.items():
            _, given, named = example(module, args, kwargs, name)
            if given or named:
                inputs = input_tensors(entry, given, named)
                accuracy[name] = compare_outputs(entry.graph, chosen.entries[name].graph, wide.store, inputs)
    return Narrowed(dtype, report.num_narrowed, dict(Counter(k.reason for k in report.kept)), accuracy)


def numerics_of(options: Options) -> dict[str, str]:
    """What a bundle's manifest says of them under `numerics`: nothing for f32 with weights as they are."""
    out: dict[str, str] = {}
    if options.compute != "f32":
        out |= {"compute": options.compute, **_patterns("keep_f32", options.keep_f32)}
    schemes = {"weights": options.scheme, "embeddings": options.embeddings_scheme}
    if any(schemes.values()):
        out |= {name: str(scheme) for name, scheme in schemes.items() if scheme is not None}
        if options.activation_scheme is not None:
            out["activations"] = str(options.activation_scheme)
            out |= _patterns("keep_activations", options.keep_activations)
        out |= {"weights_method": options.weights_method, **_patterns("keep_weights", options.keep_weights)}
    if options.cache is not None:
        out |= {"cache": options.cache, **_patterns("keep_cache", options.keep_cache)}
    return out


def choice_of(numerics: Mapping[str, str], calibration: Any = None) -> Options:
    """What decides over the numbers of a bundle whose manifest has these numerics. calibration: as in Options. Raises
    InputError where the bundle was made with such data and there are none."""
    if calibration is None:
        for name, text in (("activations", "int8:static"), ("weights_method", BY_DATA)):
            if numerics.get(name) == text:
                raise InputError(
                    f"the bundle was exported with calibration data, which its {name} of {text} come from: give the "
                    "same by calibration=, or by --calibration"
                )
    return Options(
        compute=numerics.get("compute", "f32"),
        keep_f32=tuple(json.loads(numerics.get("keep_f32", "[]"))),
        weights=numerics.get("weights"),
        embeddings=numerics.get("embeddings"),
        keep_weights=tuple(json.loads(numerics.get("keep_weights", "[]"))),
        weights_method=numerics.get("weights_method", "nearest"),
        activations=numerics.get("activations"),
        keep_activations=tuple(json.loads(numerics.get("keep_activations", "[]"))),
        cache=numerics.get("cache"),
        keep_cache=tuple(json.loads(numerics.get("keep_cache", "[]"))),
        calibration=calibration if "weights" in numerics or "embeddings" in numerics else None,
    )


def _patterns(name: str, patterns: tuple[str, ...]) -> dict[str, str]:
    return {name: json.dumps(patterns)} if patterns else {}


def example(module: Any, args: Any, kwargs: Any, name: str) -> tuple[Any, tuple[Any, ...], Mapping[str, Any]]:
    """(module, args, kwargs) of one entry point."""
    if isinstance(module, Mapping):
        module, args = module[name], (args or {}).get(name, ())
        kwargs = (kwargs or {}).get(name, {})
    if isinstance(module, ExportedProgram):
        args, kwargs = module.example_inputs or ((), {})
    return module, tuple(args or ()), kwargs or {}


def eager_outputs(module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that the model itself gives, in flattened order. It may change copies of its inputs in place."""
    return eager_run(module, args, kwargs)[0]


def eager_run(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], tuple[tuple[Any, ...], dict[str, Any]]]:
    """The same, and the copies of args and kwargs that the model has left behind."""
    call = module.module() if isinstance(module, ExportedProgram) else module
    copies = pytree.tree_map_only(torch.Tensor, torch.clone, (args, dict(kwargs)))
    leaves: Sequence[Any] = pytree.tree_leaves(call(*copies[0], **copies[1]))
    return [x for x in leaves if isinstance(x, torch.Tensor)], copies


def input_tensors(entry: EntryGraph, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The inputs of an entry point by name. InputError for arguments of another structure."""
    leaves = flattener(entry.in_tree, entry.graph.name)(args, kwargs)
    return {i.name: _tensor(leaf) for i, leaf in zip(entry.graph.inputs, leaves, strict=True)}


def _tensor(leaf: Any) -> torch.Tensor:
    return leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
