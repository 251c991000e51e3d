"""Options.weights, embeddings and activations: layers whose numbers have few bits, and how accurate the result is at
the calibration data or the example inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from hardtack.calibration import Calibration, Example, calibration_of
from hardtack.codegen.notes import ours
from hardtack.exporter import CaptureError, Exported, ExportError, InputSpecError, to_graphs
from hardtack.exporter.extensions import Extensions
from hardtack.exporter.precision import Accuracy, AccuracyMeter
from hardtack.extending import extensions_of
from hardtack.gptq import result_errors
from hardtack.model_copies import OWN_WAY, copied, outputs_of_copy
from hardtack.narrowing import example
from hardtack.observation import Observed, observed, portions
from hardtack.options import Options
from hardtack.perplexity import Perplexity, PerplexityMeter, perplexity_meter
from hardtack.quantised_layers import EMBEDDING, KeptLayer, Kind, Layer, chosen_layers, layer_name, schemes_of
from hardtack.schemes import Scheme
from hardtack.torchao_layers import check_torchao, method_of, numbers_of, quantise_layer

_UNKNOWN_OP = re.compile(
    r"Tensor dispatch: attempting to run unimplemented operator/function: func=<OpOverload\(op='([^']*)'"
)
"""In an error of torchao for a tensor of its own."""


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer with weights of few bits: "linear layer" or "embedding". Sizes in bytes: of its weights as they were, and
    of codes and scales, as they are without what kernels pad. method: how its integers were chosen. error:
    ||W - quantised W|| / ||W||. output_error: the same of the results at the calibration data,
    ||X (W - quantised W)ᵀ|| / ||X Wᵀ||, X being the rows that it was given, each scaled to length 1; None without.
    activations: what X is rounded to, such as "int8:static"; None: it stays as it is. activation_scale: the static one.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    nbytes: int
    stored_nbytes: int
    method: str
    error: float
    output_error: float | None = None
    activations: str | None = None
    activation_scale: float | None = None


@dataclass(frozen=True)
class Quantised:
    """What Options.weights, embeddings and activations did, layers in the order of named_modules(); those of several
    entry points have the entry's name in front. scheme: of linear layers; embeddings: that of embeddings; activations:
    that of the activations of linear layers; None where theirs stay as they are. nbytes and stored_nbytes: of all
    layers. num_examples: of calibration data; 0 without. accuracy: of each output at these, else at the example
    inputs, by entry point; of none where there are none. perplexity: of language models, by entry point."""

    scheme: str | None
    embeddings: str | None
    activations: str | None
    method: str
    layers: tuple[QuantisedLayer, ...]
    kept: tuple[KeptLayer, ...]
    nbytes: int
    stored_nbytes: int
    num_examples: int
    accuracy: Mapping[str, tuple[Accuracy, ...]]
    perplexity: Mapping[str, Perplexity]


@dataclass(frozen=True)
class Quantisation:
    """A model whose layers are quantised, or the model itself where nothing is asked for; what became of each layer,
    without the accuracy, or None; and the calibration data, or None."""

    model: Any
    report: Quantised | None = None
    calibration: Calibration | None = None


def quantise(
    module: Any, options: Options, args: Any = (), kwargs: Any = None, dynamic_shapes: Any = None
) -> Quantisation:
    """The model with weights and activations as Options has them. args, kwargs, dynamic_shapes: of the export, which
    calibration data are compared with. The model that is given is not changed: the other shares all weights with it
    that stay as they are. Raises InputSpecError for a model or data that this cannot be done with, ExportError without
    torchao.
    """
    schemes = schemes_of(options)
    if not schemes:
        return Quantisation(module, calibration=_data(options, module, args, kwargs, dynamic_shapes))
    with ours("the quantisation of the model", ExportError), torch.no_grad():
        check_torchao(next(iter(schemes.values())))
        several = isinstance(module, Mapping)
        roots: dict[str, Any] = dict(module) if isinstance(module, Mapping) else {"": module}
        for entry, root in roots.items():
            _check_module(root, entry if several else None, schemes)
        choice = chosen_layers(roots, options)
    data = _data(options, module, args, kwargs, dynamic_shapes)  # what an iterable of the user's raises is the user's
    with ours("the quantisation of the model", ExportError), torch.no_grad():
        made, prefix = copied(roots), len(roots) > 1
        done: dict[int, QuantisedLayer] = {}
        for part in portions(choice.chosen):
            seen = {} if data is None else observed(roots, part, data)
            for x in part:
                copy = made[x.entry].get_submodule(x.paths[0])
                done[id(x.module)] = _quantised(x, copy, options.weights_method, seen.get(id(x.module)), prefix)
        layers = tuple(done[id(x.module)] for x in choice.chosen)
        report = _report(options, layers, choice.kept, 0 if data is None else data.count)
        return Quantisation(made if several else made[""], report, data)


def _data(options: Options, module: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Calibration | None:
    """The calibration data; None without. Raises InputSpecError for data that the model does not take."""
    if options.calibration is None:
        return None
    for root in module.values() if isinstance(module, Mapping) else (module,):
        if not isinstance(root, nn.Module):
            raise InputSpecError(
                f"there are calibration data, and what is to be exported is {_kind(root)}, which is not run on them",
                fix="pass the nn.Module, or leave the data out: the example inputs are measured at then",
            )
    return calibration_of(options.calibration, module, args, kwargs, dynamic_shapes)


def _report(
    options: Options, layers: tuple[QuantisedLayer, ...], kept: tuple[KeptLayer, ...], num_examples: int
) -> Quantised:
    """Without the accuracy."""
    asked = (options.scheme, options.embeddings_scheme, options.activation_scheme)
    scheme, embeddings, activations = (None if s is None else str(s) for s in asked)
    return Quantised(
        scheme=scheme,
        embeddings=embeddings,
        activations=activations,
        method=options.weights_method,
        layers=layers,
        kept=kept,
        nbytes=sum(x.nbytes for x in layers),
        stored_nbytes=sum(x.stored_nbytes for x in layers),
        num_examples=num_examples,
        accuracy={},
        perplexity={},
    )


def graphs_of(
    made: Any,
    options: Options,
    args: Any,
    kwargs: Any,
    dynamic_shapes: Any,
    strict: bool = False,
    extensions: Extensions | None = None,
) -> Exported:
    """to_graphs of what `quantise` gives. extensions: None: those that the options name. Raises InputSpecError, too,
    where the model reads a weight that is quantised in another way than torchao knows."""
    brought = extensions_of(options) if extensions is None else extensions
    try:
        return to_graphs(
            made, args, kwargs, dynamic_shapes, strict=strict, extensions=brought, written=options.written_inputs
        )
    except CaptureError as error:
        found = _UNKNOWN_OP.search(str(error))
        kinds = schemes_of(options)
        if found is None or not kinds:
            raise
        layer = " or ".join(("an " if k is EMBEDDING else "a ") + k.one for k in kinds)
        raise InputSpecError(
            f"the model reads the weights of {layer} itself, by {found[1]}, and not as that layer does",
            fix="name the layer in keep_weights",
        ) from error


def with_accuracy(found: Quantisation, exported: Exported, module: Any, args: Any, kwargs: Any) -> Quantised:
    """The report with the outputs of both models compared, which are run in eager PyTorch on the calibration data, or
    on the example inputs without, each run with states of its own. module: the model as it was; exported: of either.
    Raises InternalError for what is a bug of Hardtack.
    """
    assert found.report is not None
    accuracy: dict[str, tuple[Accuracy, ...]] = {}
    perplexity: dict[str, Perplexity] = {}
    with ours("the measurement of the accuracy", ExportError):
        for name, entry in exported.entries.items():
            one, given, named = example(module, args, kwargs, name)
            made = found.model[name] if isinstance(found.model, Mapping) else found.model
            examples = found.calibration.of(name) if found.calibration is not None else ()
            examples = examples or ((Example(given, named),) if given or named else ())
            if examples:
                accuracy[name], language = _measured(one, made, examples, entry.graph.output_names)
                perplexity |= {} if language is None else {name: language}
    return replace(found.report, accuracy=accuracy, perplexity=perplexity)


def _measured(
    module: nn.Module, made: nn.Module, examples: Sequence[Example], names: Sequence[str]
) -> tuple[tuple[Accuracy, ...], Perplexity | None]:
    """Of the outputs of a model at all examples together."""
    meters: list[AccuracyMeter] = []
    language: PerplexityMeter | None = None
    for number, x in enumerate(examples):
        exact, got = (outputs_of_copy(m, x.args, x.kwargs) for m in (module, made))
        if number == 0:
            named = names if len(names) == len(exact) else [f"output {k}" for k in range(len(exact))]
            meters = [AccuracyMeter(n) for n in named]
            language = perplexity_meter(module, x, named, exact)
        for meter, a, b in zip(meters, got, exact, strict=True):
            meter.add(a, b)
        if language is not None:
            language.add(x, got, exact)
    return tuple(m.result() for m in meters), None if language is None else language.result()


def _kind(root: Any) -> str:
    """What is to be exported, in words, where it is no nn.Module."""
    kinds = {ExportedProgram: "an ExportedProgram", torch.jit.ScriptModule: "a TorchScript module"}
    kind = next((said for cls, said in kinds.items() if isinstance(root, cls)), None)
    return kind or ("a function" if callable(root) else f"a {type(root).__name__}")


def _check_module(root: Any, entry: str | None, schemes: Mapping[Kind, Scheme]) -> None:
    """InputSpecError for a model that has no layers any more."""
    if isinstance(root, nn.Module) and not isinstance(root, torch.jit.ScriptModule):
        return
    kind = _kind(root)
    what = "what is to be exported" if entry is None else f"entry {entry}"
    several, named = " and ".join(k.several for k in schemes), " or ".join(dict.fromkeys(map(str, schemes.values())))
    raise InputSpecError(
        f"{what} is {kind}, whose weights cannot be made {named}: its {several} cannot be told any more",
        fix=f"pass the nn.Module, {OWN_WAY}",
    )


def _quantised(layer: Layer, made: nn.Module, method: str, seen: Observed | None, prefix: bool) -> QuantisedLayer:
    """Quantises the copy of a layer."""
    wide = layer.weight
    found = quantise_layer(layer, made, method, seen)
    lost = wide.double() - numbers_of(found)
    norm = float(torch.linalg.vector_norm(wide, dtype=torch.float64))
    scale = getattr(found, "act_quant_scale", None)
    return QuantisedLayer(
        name=layer_name(layer, prefix),
        kind=layer.kind.one,
        shape=tuple(wide.shape),
        nbytes=wide.numel() * wide.element_size(),
        stored_nbytes=-(-wide.numel() * layer.scheme.bits // 8) + found.scale.numel() * found.scale.element_size(),
        method=method_of(layer, method, seen),
        error=float(torch.linalg.vector_norm(lost)) / norm if norm else 0.0,
        output_error=None if seen is None else _output_error(lost, wide, seen),
        activations=None if layer.activations is None else str(layer.activations),
        activation_scale=None if scale is None else float(scale),
    )


def _output_error(lost: torch.Tensor, wide: torch.Tensor, seen: Observed) -> float:
    """||X lostᵀ|| / ||X wideᵀ||, X being rows of length 1 like those that a layer was given."""
    noise, signal = (float(result_errors(x, seen.moments.sums).sum()) for x in (lost, wide))
    return math.sqrt(noise / signal) if signal else 0.0
