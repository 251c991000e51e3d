"""What linear layers are given while a model runs on calibration data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from hardtack.calibration import Calibration
from hardtack.exporter import ExportError, InputSpecError
from hardtack.model_copies import copied, outputs_of
from hardtack.moments import Moments
from hardtack.quantised_layers import LINEAR, Layer
from hardtack.smoothing import MOST_ROWS, Sample

_NAMED = 5
"""The most layers that an error names."""
_MOST_NBYTES = 2 << 30
"""Of moments and rows that are held at once; for those of more layers the model runs once more."""


@dataclass
class Observed:
    """The inputs of a linear layer, as rows of K numbers: how many, the largest magnitude of each channel, (K,), with
    how many dimensions they came; and, of all layers with its weight together, their moments and some of them."""

    moments: Moments
    sample: Sample
    largest: torch.Tensor
    num_rows: int = 0
    ranks: set[int] = field(default_factory=set)


def portions(layers: Sequence[Layer]) -> Iterator[tuple[Layer, ...]]:
    """The layers in parts whose moments and rows fit in memory; those with one weight in one part."""
    by_weight: dict[tuple[int, bool], list[Layer]] = {}
    for layer in layers:
        by_weight.setdefault(layer.weight_key, []).append(layer)
    part: list[Layer] = []
    held = 0
    for sharing in by_weight.values():
        depth = sharing[0].weight.shape[1]
        nbytes = 4 * depth * (depth + MOST_ROWS) if sharing[0].kind is LINEAR else 0
        if part and held + nbytes > _MOST_NBYTES:
            yield tuple(part)
            part, held = [], 0
        part += sharing
        held += nbytes
    if part:
        yield tuple(part)


def observed(roots: Mapping[str, nn.Module], layers: Sequence[Layer], calibration: Calibration) -> dict[int, Observed]:
    """What the linear layers among them were given, by the id of the module. The models run in eager PyTorch, each
    example on a copy, so that states start as in a new session. Raises InputSpecError for an example that the model
    cannot run, a layer that is given NaN or infinite numbers, and layers that no example reaches."""
    linear = [x for x in layers if x.kind is LINEAR]
    shared = {x.weight_key: (_no_moments(x.weight), _no_sample(x.weight)) for x in linear}
    found = {id(x.module): Observed(*shared[x.weight_key], _no_sample(x.weight).largest) for x in linear}
    said = {id(x.module): str(x) for x in linear}
    for entry, root in roots.items():
        paths = {path: id(m) for path, m in root.named_modules() if id(m) in found}
        for number, example in enumerate(calibration.of(entry)):
            where = f"calibration example {number}" + (f" of {entry}" if entry else "")
            made = copied({"": root})[""]
            for path, key in paths.items():
                hook = _Watch(found[key], f"{said[key]} is given", f"by {where}")
                made.get_submodule(path).register_forward_pre_hook(hook, with_kwargs=True)
            try:
                outputs_of(made, example.args, example.kwargs)
            except ExportError:
                raise
            except Exception as error:
                raise InputSpecError(
                    f"the model cannot run {where}: {error}", fix="give inputs that the model takes"
                ) from error
    _check_reached(linear, found)
    return found


def _no_moments(weight: torch.Tensor) -> Moments:
    return Moments(torch.zeros(weight.shape[1], weight.shape[1], device=weight.device))


def _no_sample(weight: torch.Tensor) -> Sample:
    none = torch.zeros(0, weight.shape[1], device=weight.device)
    return Sample(none.new_zeros(weight.shape[1]), none)


@dataclass(frozen=True)
class _Watch:
    """A hook that adds what a layer is given to what was observed; what it says of wrong numbers begins and ends so."""

    observed: Observed
    said: str
    where: str

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given: torch.Tensor = args[0] if args else next(iter(kwargs.values()))
        if given.shape[-1:] != self.observed.moments.sums.shape[:1]:
            return  # the layer refuses it itself
        rows = given.detach().reshape(-1, given.shape[-1]).float()
        for word, wrong in (("NaN", rows.isnan()), ("infinite numbers", rows.isinf())):
            if wrong.any():
                raise InputSpecError(
                    f"{self.said} {word} {self.where}", fix="look for what made it so, or leave the example out"
                )
        if rows.numel():
            self.observed.num_rows += len(rows)
            self.observed.largest = torch.maximum(self.observed.largest, rows.abs().amax(0))
            self.observed.ranks.add(given.dim())
            self.observed.moments.add(rows)
            self.observed.sample.add(rows)


def _check_reached(layers: Sequence[Layer], found: Mapping[int, Observed]) -> None:
    missed = [x for x in layers if not found[id(x.module)].num_rows]
    if missed:
        named = ", ".join(repr(x.paths[0]) for x in missed[:_NAMED])
        more = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
        raise InputSpecError(
            f"no calibration example reaches the linear layer{'s' if len(missed) > 1 else ''} {named}{more}",
            fix="add examples for which the model calls them, or name them in keep_weights",
        )
