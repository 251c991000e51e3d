"""Options.weights: linear layers whose weights have few bits, and how accurate the result is at the example inputs."""

from __future__ import annotations

import contextlib
import copy
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from hardtack.codegen.notes import ours
from hardtack.exporter import CaptureError, Exported, ExportError, InputSpecError, to_graphs
from hardtack.exporter.precision import Accuracy, compare_tensors, matching
from hardtack.narrowing import eager_outputs, example
from hardtack.options import GROUPS, Options, Scheme

_NAMED = 5
"""The most layers that an error names."""
_OWN_WAY = "or quantise it before it is captured, with torchao's quantize_, and leave Options.weights out"

_UNKNOWN_OP = re.compile(
    r"Tensor dispatch: attempting to run unimplemented operator/function: func=<OpOverload\(op='([^']*)'"
)
"""In an error of torchao for a tensor of its own."""


@dataclass(frozen=True)
class QuantisedLayer:
    """A linear layer with weights of few bits. Sizes in bytes: of its float32 weights, and of codes and scales, as they
    are without what kernels pad. error: ||W - quantised W|| / ||W||."""

    name: str
    shape: tuple[int, ...]
    nbytes: int
    stored_nbytes: int
    error: float


@dataclass(frozen=True)
class KeptLayer:
    """A layer whose weights stay as they are, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Quantised:
    """What Options.weights did, layers in the order of named_modules(); those of several entry points have the entry's
    name in front. accuracy: of each output, by entry point; of none where there are no example inputs."""

    scheme: str
    method: str
    layers: tuple[QuantisedLayer, ...]
    kept: tuple[KeptLayer, ...]
    accuracy: Mapping[str, tuple[Accuracy, ...]]


@dataclass
class _Linear:
    """A linear layer: the entry point that it was first found in, its paths in all of them, the first one first."""

    entry: str
    module: nn.Linear
    paths: list[str] = field(default_factory=list)
    in_attention: bool = False

    def __str__(self) -> str:
        path = self.paths[0]
        return f"the linear layer {path!r}" if path else "the module, a linear layer,"


def quantise(module: Any, options: Options) -> tuple[Any, Quantised | None]:
    """The model with weights as Options has them, and what became of each layer, without its accuracy; the model itself
    and None where nothing is asked for. The one that is given is not changed: the other shares all weights with it that
    stay as they are. Raises InputSpecError for a model that this cannot be done to, ExportError without torchao.
    """
    scheme = options.scheme
    if scheme is None:
        return module, None
    with ours("the quantisation of weights", ExportError), torch.no_grad():
        config = _config(scheme, options.weights_method)
        several = isinstance(module, Mapping)
        roots: dict[str, Any] = dict(module) if isinstance(module, Mapping) else {"": module}
        for entry, root in roots.items():
            _check_module(root, entry if several else None, scheme)
        linears = _linears(roots)
        _check_patterns(linears, options.keep_weights)
        reasons = [(x, _why_kept(x, options.keep_weights)) for x in linears]
        chosen = [x for x, why in reasons if why is None]
        prefix = len(roots) > 1
        kept = [KeptLayer(_name(x.entry, x.paths[0], prefix), why) for x, why in reasons if why is not None]
        _check_any(chosen, kept, scheme)
        _check_layers(chosen, scheme)
        made = _copied(roots)
        layers = tuple(_quantised(x, made[x.entry].get_submodule(x.paths[0]), config, scheme, prefix) for x in chosen)
        kept += _others(roots, prefix)
        report = Quantised(str(scheme), options.weights_method, layers, tuple(kept), {})
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
        if found is None or options.weights is None:
            raise
        raise InputSpecError(
            f"the model reads the weights of a linear layer itself, by {found[1]}, and not as that layer does",
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


def reasons_text(kept: Iterable[KeptLayer]) -> str:
    """How many layers are kept for each reason, in words."""
    return "; ".join(f"{n} kept: {reason}" for reason, n in sorted(Counter(k.reason for k in kept).items()))


def _config(scheme: Scheme, method: str) -> Any:
    """torchao's. Raises ExportError without it."""
    try:
        with _quiet("torchao", "torch.utils._pytree"):
            from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerAxis, PerGroup
            from torchao.quantization.quantize_.workflows import IntxChooseQParamsAlgorithm as Algorithm
    except ImportError as error:
        what = f"weights of {scheme} need the package torchao, from 0.18 on and before 0.19"
        raise ExportError(what, fix="pip install 'hardtack[quantize]'") from error
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


def _check_module(root: Any, entry: str | None, scheme: Scheme) -> None:
    """InputSpecError for a model that has no layers any more."""
    if isinstance(root, nn.Module) and not isinstance(root, torch.jit.ScriptModule):
        return
    kinds = {ExportedProgram: "an ExportedProgram", torch.jit.ScriptModule: "a TorchScript module"}
    kind = next((said for cls, said in kinds.items() if isinstance(root, cls)), None)
    kind = kind or ("a function" if callable(root) else f"a {type(root).__name__}")
    what = "what is to be exported" if entry is None else f"entry {entry}"
    raise InputSpecError(
        f"{what} is {kind}, whose weights cannot be made {scheme}: its linear layers cannot be told any more",
        fix=f"pass the nn.Module, {_OWN_WAY}",
    )


def _linears(roots: Mapping[str, nn.Module]) -> list[_Linear]:
    """Each linear layer once."""
    found: dict[int, _Linear] = {}
    for entry, root in roots.items():
        attentions: list[str] = []
        for path, m in root.named_modules(remove_duplicate=False):
            if isinstance(m, nn.MultiheadAttention):
                attentions.append(f"{path}." if path else "")
            if isinstance(m, nn.Linear):
                linear = found.setdefault(id(m), _Linear(entry, m))
                linear.paths.append(path)
                linear.in_attention |= any(path.startswith(a) for a in attentions)
    return list(found.values())


def _check_patterns(linears: Sequence[_Linear], keep: tuple[str, ...]) -> None:
    """InputSpecError for a pattern that fits no linear layer."""
    for pattern in keep:
        if not any(matching(path, (pattern,)) for x in linears for path in x.paths):
            raise InputSpecError(
                f"keep_weights has {pattern!r}, but no linear layer of the model is, or stands in, such a module",
                fix="name a module as named_modules() does; * stands for any part of a path",
            )


def _why_kept(linear: _Linear, keep: tuple[str, ...]) -> str | None:
    """Why the weights of a linear layer stay as they are; None for one that is quantised. Raises InputSpecError for
    weights of 16 bits."""
    module, weight = linear.module, linear.module._parameters.get("weight")
    pattern = next((p for p in (matching(path, keep) for path in linear.paths) if p is not None), None)
    if pattern is not None:
        return f"keep_weights has {pattern!r}"
    if linear.in_attention:
        return "nn.MultiheadAttention reads its weights itself"
    if type(module).forward is not nn.Linear.forward or "forward" in vars(module):
        return f"{type(module).__name__} has a forward of its own"
    if weight is None:
        return "its weights are computed, as by weight_norm"
    if type(weight) is not nn.Parameter:
        return f"its weights are a {type(weight).__name__}"
    if weight.dtype in (torch.bfloat16, torch.float16):
        raise InputSpecError(
            f"{linear} has weights of {_dtype(weight)}; weights of few bits are for float32 models so far",
            fix="call .float() on the model, or name the layer in keep_weights",
        )
    if weight.dtype != torch.float32:
        return f"its weights are {_dtype(weight)}"
    return None if weight.numel() else "it has no weights"


def _dtype(weight: torch.Tensor) -> str:
    return str(weight.dtype).removeprefix("torch.")


def _check_any(chosen: Sequence[_Linear], kept: Sequence[KeptLayer], scheme: Scheme) -> None:
    """InputSpecError where nothing is left to quantise."""
    if not chosen:
        raise InputSpecError(
            f"the model has no linear layer whose weights could be {scheme}"
            + (f"; {reasons_text(kept)}" if kept else ""),
            fix="export it without Options.weights",
        )


def _check_layers(chosen: Sequence[_Linear], scheme: Scheme) -> None:
    """InputSpecError for layers that a group does not divide, or whose weights are not finite."""
    odd = [x for x in chosen if scheme.group is not None and x.module.weight.shape[1] % scheme.group]
    if odd:
        said = ", ".join(f"{x.paths[0]} ({x.module.weight.shape[1]})" for x in odd[:_NAMED])
        more = f" and {len(odd) - _NAMED} more" if len(odd) > _NAMED else ""
        fitting = [f"int4:{g}" for g in GROUPS if not any(x.module.weight.shape[1] % g for x in chosen)]
        raise InputSpecError(
            f"groups of {scheme.group} do not divide the inputs of the linear layers {said}{more}",
            fix=f"choose {' or '.join((*fitting, 'int8'))}, or name the layers in keep_weights",
        )
    for x in chosen:
        if not x.module.weight.isfinite().all():
            raise InputSpecError(
                f"{x} has weights that are infinite or NaN",
                fix="look for what made them so, or name the layer in keep_weights",
            )


def _others(roots: Mapping[str, nn.Module], prefix: bool) -> Iterator[KeptLayer]:
    """The layers with weights that are no linear ones, each once."""
    seen: set[int] = set()
    for entry, root in roots.items():
        for path, m in root.named_modules():
            if id(m) not in seen and not isinstance(m, nn.Linear | parametrize.ParametrizationList) and _has_weights(m):
                seen.add(id(m))
                yield KeptLayer(_name(entry, path, prefix), f"{type(m).__name__} is no linear layer")


def _has_weights(module: nn.Module) -> bool:
    """True for a parameter of its own with two dimensions or more, or one that it is computed from."""
    own = list(module.parameters(recurse=False))
    if parametrize.is_parametrized(module):
        own += module.parametrizations.parameters()  # type: ignore[union-attr]
    return any(not is_lazy(p) and p.dim() > 1 for p in own)


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


def _quantised(linear: _Linear, made: nn.Module, config: Any, scheme: Scheme, prefix: bool) -> QuantisedLayer:
    """Quantises the copy of a layer."""
    from torchao.quantization import quantize_

    wide = linear.module.weight.detach()
    quantize_(made, config, lambda *_: True)
    found: Any = made.weight
    scales = found.scale
    norm = float(torch.linalg.vector_norm(wide, dtype=torch.float64))
    error = float(torch.linalg.vector_norm(wide - found.dequantize(), dtype=torch.float64))
    return QuantisedLayer(
        name=_name(linear.entry, linear.paths[0], prefix),
        shape=tuple(wide.shape),
        nbytes=wide.numel() * wide.element_size(),
        stored_nbytes=-(-wide.numel() * scheme.bits // 8) + scales.numel() * scales.element_size(),
        error=error / norm if norm else 0.0,
    )


def _name(entry: str, path: str, prefix: bool) -> str:
    return f"{entry} {path}".strip() if prefix else path


def _run(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The outputs of a copy, so that no state changes; what is drawn at random is the same for all."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return eager_outputs(_copied({"": module})[""], args, kwargs)
