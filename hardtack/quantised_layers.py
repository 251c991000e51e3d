"""Which layers of a model get weights of few bits, which keep theirs, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from hardtack.exporter import InputSpecError
from hardtack.exporter.precision import matching
from hardtack.linear_forms import OF_TORCH, LinearForm, linear_form
from hardtack.options import Options
from hardtack.schemes import GROUPS, ActivationScheme, Scheme

_NAMED = 5
"""The most layers that an error names."""


@dataclass(frozen=True)
class KeptLayer:
    """A layer whose weights stay as they are, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Kind:
    """A class of layers whose weights can have few bits: what an error calls one, several and the numbers of a row, and
    the option that asks for it."""

    module: type[nn.Module]
    one: str
    several: str
    row: str
    option: str


_FLOAT8_UNIT = 16
"""What has to divide the sizes of floats of 8 bits that torch._scaled_mm multiplies on a GPU."""
LINEAR = Kind(nn.Linear, "linear layer", "linear layers", "inputs", "weights")
EMBEDDING = Kind(nn.Embedding, "embedding", "embeddings", "columns", "embeddings")


@dataclass
class Layer:
    """A layer of a kind that is asked for: the entry point that it was first found in, its paths in all of them, the
    first one first. form: where its weight is. is_other: its class says so, and it computes something else.
    activations: what it rounds its inputs to; None: nothing."""

    entry: str
    module: nn.Module
    kind: Kind
    scheme: Scheme
    form: LinearForm = OF_TORCH
    paths: list[str] = field(default_factory=list)
    in_attention: bool = False
    is_other: bool = False
    activations: ActivationScheme | None = None

    @property
    def parameter(self) -> torch.Tensor | None:
        """The weight as the module has it; None where it is computed."""
        return self.module._parameters.get(self.form.weight)

    @property
    def weight(self) -> torch.Tensor:
        """The weight of a layer that is quantised, (N, K): of a linear layer (outputs, inputs)."""
        own = self.parameter
        assert own is not None
        return own.detach().t() if self.form.is_transposed else own.detach()

    @property
    def weight_key(self) -> tuple[int, bool]:
        """The same for layers that share a weight and read it alike."""
        return id(self.parameter), self.form.is_transposed

    def __str__(self) -> str:
        path = self.paths[0]
        article = "an" if self.kind is EMBEDDING else "a"
        return f"the {self.kind.one} {path!r}" if path else f"the module, {article} {self.kind.one},"


@dataclass(frozen=True)
class Choice:
    """Layers that are quantised, and all others with weights."""

    chosen: tuple[Layer, ...]
    kept: tuple[KeptLayer, ...]


def schemes_of(options: Options) -> dict[Kind, Scheme]:
    """The kinds of layers that are quantised, and how."""
    found = ((LINEAR, options.scheme), (EMBEDDING, options.embeddings_scheme))
    return {kind: scheme for kind, scheme in found if scheme is not None}


def chosen_layers(roots: Mapping[str, nn.Module], options: Options) -> Choice:
    """What options ask for of the models of all entry points. Raises InputSpecError where that cannot be done."""
    schemes, prefix = schemes_of(options), len(roots) > 1
    layers = _layers(roots, schemes)
    _check_patterns("keep_weights", layers, options.keep_weights, schemes)
    reasons = [(x, _why_kept(x, options.keep_weights)) for x in layers]
    chosen = tuple(x for x, why in reasons if why is None)
    kept = [KeptLayer(layer_name(x, prefix), why) for x, why in reasons if why is not None]
    for kind, scheme in schemes.items():
        of_kind = [x for x in chosen if x.kind is kind]
        _check_any(kind, of_kind, kept, scheme)
        _check_layers(kind, of_kind, scheme)
    if options.activation_scheme is not None:
        _choose_activations([x for x in chosen if x.kind is LINEAR], options.activation_scheme, options)
    return Choice(chosen, (*kept, *_others(roots, schemes, prefix, {id(x.module) for x in layers})))


def layer_name(layer: Layer, prefix: bool) -> str:
    """A layer's path; prefix: behind its entry point's name."""
    return _name(layer.entry, layer.paths[0], prefix)


def reasons_text(kept: Iterable[KeptLayer]) -> str:
    """How many layers are kept for each reason, in words."""
    return "; ".join(f"{n} kept: {reason}" for reason, n in sorted(Counter(k.reason for k in kept).items()))


def _layers(roots: Mapping[str, nn.Module], schemes: Mapping[Kind, Scheme]) -> list[Layer]:
    """Each layer of the kinds once."""
    found: dict[int, Layer] = {}
    known: set[int] = set()
    for entry, root in roots.items():
        attentions: list[str] = []
        for path, m in root.named_modules(remove_duplicate=False):
            if isinstance(m, nn.MultiheadAttention):
                attentions.append(f"{path}." if path else "")
            if id(m) not in known:
                known.add(id(m))
                layer = _layer(entry, m, schemes)
                found |= {} if layer is None else {id(m): layer}
            if id(m) in found:
                found[id(m)].paths.append(path)
                found[id(m)].in_attention |= any(path.startswith(a) for a in attentions)
    return list(found.values())


def _layer(entry: str, module: nn.Module, schemes: Mapping[Kind, Scheme]) -> Layer | None:
    """A module as a layer of one of the kinds, by its class, or by what it computes; None for any other."""
    kind = next((k for k in schemes if isinstance(module, k.module)), None)
    if kind is not None and not (kind is LINEAR and _has_own_forward(module, kind)):
        return Layer(entry, module, kind, schemes[kind])
    form = linear_form(module) if LINEAR in schemes else None
    if form is not None:
        return Layer(entry, module, LINEAR, schemes[LINEAR], form)
    return None if kind is None else Layer(entry, module, kind, schemes[kind], is_other=True)


def _has_own_forward(module: nn.Module, kind: Kind) -> bool:
    return type(module).forward is not kind.module.forward or "forward" in vars(module)


def _either(kinds: Iterable[Kind]) -> str:
    return " or ".join(k.one for k in kinds)


def _choose_activations(layers: Sequence[Layer], scheme: ActivationScheme, options: Options) -> None:
    """Says of each linear layer that is quantised what it rounds its inputs to. Raises InputSpecError for a pattern of
    keep_activations that fits none, where all of them are named, and where torch can multiply the codes of none."""
    _check_patterns("keep_activations", layers, options.keep_activations, (LINEAR,))
    able = [x for x in layers if _can_multiply(x, scheme)]
    if not able:
        raise InputSpecError(
            f"torch multiplies float8 where {_FLOAT8_UNIT} divides inputs and outputs on a GPU: none is so",
            fix="move the model to the CPU before it is exported, or take activations of int8",
        )
    for x in able:
        if not any(matching(path, options.keep_activations) for path in x.paths):
            x.activations = scheme
    if not any(x.activations for x in layers):
        raise InputSpecError(
            f"keep_activations names every linear layer, so that none has activations of {scheme}",
            fix="export it without Options.activations",
        )


def _can_multiply(layer: Layer, scheme: ActivationScheme) -> bool:
    """True if torch can multiply the codes where the layer is."""
    weight = layer.weight
    return not (scheme.is_float and weight.is_cuda) or all(n % _FLOAT8_UNIT == 0 for n in weight.shape)


def _check_patterns(option: str, layers: Sequence[Layer], keep: tuple[str, ...], kinds: Iterable[Kind]) -> None:
    """InputSpecError for a pattern that fits no layer of the kinds."""
    what = " of the model" if option == "keep_weights" else " that is quantised"
    for pattern in keep:
        if not any(matching(path, (pattern,)) for x in layers for path in x.paths):
            raise InputSpecError(
                f"{option} has {pattern!r}, but no {_either(kinds)}{what} is, or stands in, such a module",
                fix="name a module as named_modules() does; * stands for any part of a path",
            )


def _why_kept(layer: Layer, keep: tuple[str, ...]) -> str | None:
    """Why the weights of a layer stay as they are; None for one that is quantised."""
    module, weight = layer.module, layer.parameter
    pattern = next((p for p in (matching(path, keep) for path in layer.paths) if p is not None), None)
    if pattern is not None:
        return f"keep_weights has {pattern!r}"
    if layer.in_attention:
        return "nn.MultiheadAttention reads its weights itself"
    if layer.is_other:
        return f"{type(module).__name__} has a forward of its own"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm changes its weights as they are read"
    if weight is None:
        return "its weights are computed, as by weight_norm"
    if type(weight) is not nn.Parameter:
        return f"its weights are a {type(weight).__name__}"
    if weight.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"its weights are {_dtype(weight)}"
    return None if weight.numel() else "it has no weights"


def _dtype(weight: torch.Tensor) -> str:
    return str(weight.dtype).removeprefix("torch.")


def _check_any(kind: Kind, chosen: Sequence[Layer], kept: Sequence[KeptLayer], scheme: Scheme) -> None:
    """InputSpecError where nothing of a kind is left to quantise."""
    if not chosen:
        raise InputSpecError(
            f"the model has no {kind.one} whose weights could be {scheme}"
            + (f"; {reasons_text(kept)}" if kept else ""),
            fix=f"export it without Options.{kind.option}",
        )


def _check_layers(kind: Kind, chosen: Sequence[Layer], scheme: Scheme) -> None:
    """InputSpecError for layers that a group does not divide, or whose weights are not finite."""
    odd = [x for x in chosen if scheme.group is not None and x.weight.shape[1] % scheme.group]
    if odd:
        said = ", ".join(f"{x.paths[0]} ({x.weight.shape[1]})" for x in odd[:_NAMED])
        more = f" and {len(odd) - _NAMED} more" if len(odd) > _NAMED else ""
        fitting = [f"int4:{g}" for g in GROUPS if not any(x.weight.shape[1] % g for x in chosen)]
        raise InputSpecError(
            f"groups of {scheme.group} do not divide the {kind.row} of the {kind.several} {said}{more}",
            fix=f"choose {' or '.join((*fitting, 'int8'))}, or name the layers in keep_weights",
        )
    for x in chosen:
        if not x.weight.isfinite().all():
            raise InputSpecError(
                f"{x} has weights that are infinite or NaN",
                fix="look for what made them so, or name the layer in keep_weights",
            )


def _others(
    roots: Mapping[str, nn.Module], kinds: Mapping[Kind, Scheme], prefix: bool, known: set[int]
) -> Iterator[KeptLayer]:
    """The layers with weights that are of no kind that is asked for, each once. known: those that are, by id."""
    seen = set(known)
    what = "no " + _either(kinds) if len(kinds) == 1 else "neither a linear layer nor an embedding"
    for entry, root in roots.items():
        for path, m in root.named_modules():
            if id(m) not in seen and not isinstance(m, parametrize.ParametrizationList) and _has_weights(m):
                seen.add(id(m))
                yield KeptLayer(_name(entry, path, prefix), f"{type(m).__name__} is {what}")


def _has_weights(module: nn.Module) -> bool:
    """True for a parameter of its own with two dimensions or more, or one that it is computed from."""
    own = list(module.parameters(recurse=False))
    if parametrize.is_parametrized(module):
        own += module.parametrizations.parameters()  # type: ignore[union-attr]
    return any(not is_lazy(p) and p.dim() > 1 for p in own)


def _name(entry: str, path: str, prefix: bool) -> str:
    return f"{entry} {path}".strip() if prefix else path
