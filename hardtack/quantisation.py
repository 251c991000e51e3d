"""Options.weights and Options.embeddings: layers whose weights have few bits, and how accurate the result is at the
example inputs."""

from __future__ import annotations

import contextlib
import copy
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from hardtack.codegen.notes import ours
from hardtack.exporter import CaptureError, Exported, ExportError, InputSpecError, to_graphs
from hardtack.exporter.precision import Accuracy, compare_tensors
from hardtack.narrowing import eager_outputs, example
from hardtack.options import Options, Scheme
from hardtack.quantised_layers import EMBEDDING, KeptLayer, Kind, Layer, chosen_layers, layer_name, schemes_of

_OWN_WAY = "or quantise it before it is captured, with torchao's quantize_, and leave the option out"

_UNKNOWN_OP = re.compile(
    r"Tensor dispatch: attempting to run unimplemented operator/function: func=<OpOverload\(op='([^']*)'"
)
"""In an error of torchao for a tensor of its own."""


@dataclass(frozen=True)
class QuantisedLayer:
    """A layer with weights of few bits: "linear layer" or "embedding". Sizes in bytes: of its weights as they were, and
    of codes and scales, as they are without what kernels pad. error: ||W - quantised W|| / ||W||."""

    name: str
    kind: str
    shape: tuple[int, ...]
    nbytes: int
    stored_nbytes: int
    error: float


@dataclass(frozen=True)
class Quantised:
    """What Options.weights and Options.embeddings did, layers in the order of named_modules(); those of several entry
    points have the entry's name in front. scheme: of linear layers; embeddings: that of embeddings; None where theirs
    stay as they are. accuracy: of each output, by entry point; of none where there are no example inputs."""

    scheme: str | None
    embeddings: str | None
    method: str
    layers: tuple[QuantisedLayer, ...]
    kept: tuple[KeptLayer, ...]
    accuracy: Mapping[str, tuple[Accuracy, ...]]


def quantise(module: Any, options: Options) -> tuple[Any, Quantised | None]:
    """The model with weights as Options has them, and what became of each layer, without its accuracy; the model itself
    and None where nothing is asked for. The one that is given is not changed: the other shares all weights with it that
    stay as they are. Raises InputSpecError for a model that this cannot be done to, ExportError without torchao.
    """
    schemes = schemes_of(options)
    if not schemes:
        return module, None
    with ours("the quantisation of weights", ExportError), torch.no_grad():
        configs = {kind: _config(scheme, options.weights_method) for kind, scheme in schemes.items()}
        several = isinstance(module, Mapping)
        roots: dict[str, Any] = dict(module) if isinstance(module, Mapping) else {"": module}
        for entry, root in roots.items():
            _check_module(root, entry if several else None, schemes)
        choice = chosen_layers(roots, options)
        made, prefix = _copied(roots), len(roots) > 1
        layers = tuple(
            _quantised(x, made[x.entry].get_submodule(x.paths[0]), configs[x.kind], prefix) for x in choice.chosen
        )
        named = [None if s is None else str(s) for s in (options.scheme, options.embeddings_scheme)]
        report = Quantised(named[0], named[1], options.weights_method, layers, choice.kept, {})
        return made if several else made[""], report


def graphs_of(
    made: Any, options: Options, args: Any, kwargs: Any, dynamic_shapes: Any, strict: bool = False
) -> Exported:
    """to_graphs of what `quantise` gives. Raises InputSpecError, too, where the model reads a weight that is quantised
    in another way than torchao knows."""
    try:
        return to_graphs(made, args, kwargs, dynamic_shapes, strict=strict)
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


def with_accuracy(
    report: Quantised, exported: Exported, module: Any, quantised: Any, args: Any, kwargs: Any
) -> Quantised:
    """The report with the outputs of both models compared, which are run in eager PyTorch on the example inputs, each
    with states of its own. exported: of either. Raises InternalError for what is a bug of Hardtack.
    """
    accuracy: dict[str, tuple[Accuracy, ...]] = {}
    with ours("the measurement of the accuracy", ExportError):
        for name, entry in exported.entries.items():
            one, given, named = example(module, args, kwargs, name)
            if given or named:
                exact, found = (_run(m, given, named) for m in (one, example(quantised, args, kwargs, name)[0]))
                names = entry.graph.output_names
                names = names if len(names) == len(exact) else tuple(f"output {k}" for k in range(len(exact)))
                pairs = zip(names, found, exact, strict=True)
                accuracy[name] = tuple(compare_tensors(n, x, y) for n, x, y in pairs)
    return replace(report, accuracy=accuracy)


def _config(scheme: Scheme, method: str) -> Any:
    """torchao's. Raises ExportError without it."""
    try:
        with _quiet("torchao", "torch.utils._pytree"):
            from torchao.quantization import (
                Float8WeightOnlyConfig,
                Int8WeightOnlyConfig,
                IntxWeightOnlyConfig,
                PerAxis,
                PerGroup,
            )
            from torchao.quantization.quantize_.workflows import IntxChooseQParamsAlgorithm as Algorithm
    except ImportError as error:
        what = f"weights of {scheme} need the package torchao, from 0.18 on and before 0.19"
        raise ExportError(what, fix="pip install 'hardtack[quantize]'") from error
    if scheme.is_float:
        return Float8WeightOnlyConfig(set_inductor_config=False)
    if scheme.group is None and method == "nearest":
        return Int8WeightOnlyConfig(set_inductor_config=False)  # else it changes settings of torch's own
    return IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{scheme.bits}"),
        granularity=PerAxis(0) if scheme.group is None else PerGroup(scheme.group),
        intx_choose_qparams_algorithm=Algorithm.HQQ_SCALE_ONLY if method == "hqq" else Algorithm.AFFINE,
    )


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Inside, loggers say errors only: torchao tells of each of its libraries for GPUs that is not for this torch."""
    loggers = [logging.getLogger(n) for n in names]
    levels = [x.level for x in loggers]
    for x in loggers:
        x.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for x, level in zip(loggers, levels, strict=True):
            x.setLevel(level)


def _check_module(root: Any, entry: str | None, schemes: Mapping[Kind, Scheme]) -> None:
    """InputSpecError for a model that has no layers any more."""
    if isinstance(root, nn.Module) and not isinstance(root, torch.jit.ScriptModule):
        return
    kinds = {ExportedProgram: "an ExportedProgram", torch.jit.ScriptModule: "a TorchScript module"}
    kind = next((said for cls, said in kinds.items() if isinstance(root, cls)), None)
    kind = kind or ("a function" if callable(root) else f"a {type(root).__name__}")
    what = "what is to be exported" if entry is None else f"entry {entry}"
    several, named = " and ".join(k.several for k in schemes), " or ".join(dict.fromkeys(map(str, schemes.values())))
    raise InputSpecError(
        f"{what} is {kind}, whose weights cannot be made {named}: its {several} cannot be told any more",
        fix=f"pass the nn.Module, {_OWN_WAY}",
    )


def _copied(roots: Mapping[str, nn.Module]) -> dict[str, Any]:
    """Copies that share their parameters with the originals, and modules with each other as these do. Raises
    InputSpecError for what cannot be copied."""
    memo: dict[int, Any] = {}
    for root in roots.values():
        for m in root.modules():
            memo |= {id(p): p for p in m.parameters(recurse=False)}
            computed = (*vars(m).values(), *m._buffers.values())  # torch copies no tensor that autograd has made
            memo |= {id(t): t.detach().clone() for t in computed if isinstance(t, torch.Tensor) and not t.is_leaf}
    try:
        return copy.deepcopy(dict(roots), memo)
    except Exception as error:
        raise InputSpecError(
            f"the model cannot be copied, which quantising it takes: {error}",
            fix=f"let copy.deepcopy take it, {_OWN_WAY}",
        ) from error


def _quantised(layer: Layer, made: nn.Module, config: Any, prefix: bool) -> QuantisedLayer:
    """Quantises the copy of a layer."""
    from torchao.quantization import quantize_

    wide = layer.module.weight.detach()
    quantize_(made, config, lambda *_: True)
    found: Any = made.weight
    scales = found.scale
    if layer.scheme.is_float:
        _make_zeros(found.qdata, scales)
    norm = float(torch.linalg.vector_norm(wide, dtype=torch.float64))
    error = float(torch.linalg.vector_norm(wide.double() - found.dequantize().double()))
    return QuantisedLayer(
        name=layer_name(layer, prefix),
        kind=layer.kind.one,
        shape=tuple(wide.shape),
        nbytes=wide.numel() * wide.element_size(),
        stored_nbytes=-(-wide.numel() * layer.scheme.bits // 8) + scales.numel() * scales.element_size(),
        error=error / norm if norm else 0.0,
    )


def _make_zeros(codes: torch.Tensor, scales: torch.Tensor) -> None:
    """Zeros of rows that torchao 0.18 divides by a scale of zero, as those of padding in an embedding are."""
    empty = scales == 0
    codes.view(torch.uint8).masked_fill_(empty, 0)
    scales.masked_fill_(empty, 1)


def _run(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The outputs of a copy, so that no state changes; what is drawn at random is the same for all."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return eager_outputs(_copied({"": module})[""], args, kwargs)
