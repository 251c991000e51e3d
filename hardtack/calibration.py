"""Options.calibration: inputs like those that a model will see, checked against the example inputs of the export."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from hardtack.calibration_files import read_examples
from hardtack.exporter import InputSpecError
from hardtack.narrowing import example

_LIKE_EXAMPLE = "give it as the example inputs are; only sizes that dynamic_shapes names may differ"


@dataclass(frozen=True)
class Example:
    """What a model is called with once."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Calibration:
    """The examples of each entry point that has some, in the order in which they were given."""

    examples: Mapping[str, tuple[Example, ...]]

    def of(self, entry: str) -> tuple[Example, ...]:
        """Those of an entry point; the only one of a single module may have any name."""
        return self.examples.get(entry, self.examples.get("", ()))

    @property
    def count(self) -> int:
        """Of all entry points together."""
        return sum(map(len, self.examples.values()))


def calibration_of(given: Any, module: Any, args: Any, kwargs: Any, dynamic_shapes: Any) -> Calibration:
    """The examples that Options.calibration gives. module: an nn.Module, or a dict of these by entry point; args,
    kwargs, dynamic_shapes: of the export.

    Raises InputSpecError for data without examples, and for an example that has other inputs than the export's, of
    another dtype, number of dimensions or size where no size is dynamic, or NaN.
    """
    if isinstance(given, (str, os.PathLike)):
        given = read_examples(given)
    roots = dict(module) if isinstance(module, Mapping) else {"": module}
    found: dict[str, tuple[Example, ...]] = {}
    for entry, data in _by_entry(given, roots, several=isinstance(module, Mapping)).items():
        examples = tuple(_example(n, x, entry) for n, x in enumerate(data))
        if not examples:
            raise InputSpecError(
                f"the calibration{_of(entry)} has no examples",
                fix="give a few inputs that are like those the model will see",
            )
        _, given_args, given_kwargs = example(module, args, kwargs, entry)
        dynamic = dynamic_shapes.get(entry) if entry and isinstance(dynamic_shapes, Mapping) else dynamic_shapes
        wanted = leaves_of(roots[entry], Example(given_args, given_kwargs))
        for number, x in enumerate(examples):
            _check(_said(number, entry), _bound(roots[entry], x, number, entry), wanted, sizes_too=dynamic is None)
        found[entry] = examples
    return Calibration(found)


def _by_entry(given: Any, roots: Mapping[str, nn.Module], several: bool) -> dict[str, Iterable[Any]]:
    if several:
        if not isinstance(given, Mapping) or not given.keys() <= roots.keys():
            unknown = f", not with {min(given.keys() - roots.keys())!r}" if isinstance(given, Mapping) else ""
            raise InputSpecError(
                f"the calibration of several entry points is a dict by entry point{unknown}",
                fix=f"name any of {', '.join(roots)}, each with an iterable of inputs",
            )
        return dict(given)
    if isinstance(given, (Mapping, torch.Tensor)):
        raise InputSpecError(
            f"the calibration is a {'dict' if isinstance(given, Mapping) else 'tensor'}, not an iterable of inputs",
            fix="put it into a list, as one example",
        )
    return {"": given}


def _of(entry: str) -> str:
    return f" of {entry}" if entry else ""


def _said(number: int, entry: str) -> str:
    return f"calibration example {number}{_of(entry)}"


def _example(number: int, x: Any, entry: str) -> Example:
    """A tensor is the only arg, a tuple or list all args, a dict all kwargs."""
    if isinstance(x, torch.Tensor):
        return Example((x,), {})
    if isinstance(x, Mapping):
        return Example((), dict(x))
    if isinstance(x, (tuple, list)):
        return Example(tuple(x), {})
    raise InputSpecError(
        f"{_said(number, entry)} is of type {type(x).__name__}",
        fix="make it a tensor, a tuple of args or a dict of kwargs",
    )


def _bound(root: nn.Module, x: Example, number: int, entry: str) -> dict[str, Any]:
    """leaves_of, with an InputSpecError for what the model does not take."""
    try:
        return leaves_of(root, x)
    except TypeError as error:
        raise InputSpecError(
            f"{_said(number, entry)} is not what the model takes: {error}", fix=_LIKE_EXAMPLE
        ) from None


def leaves_of(root: nn.Module, x: Example) -> dict[str, Any]:
    """What an example has, by the names of forward's parameters and the places in them, as in "x" and "pair[0]"."""
    bound = inspect.signature(root.forward).bind(*x.args, **x.kwargs).arguments
    out: dict[str, Any] = {}
    for name, value in bound.items():
        for path, leaf in pytree.tree_flatten_with_path(value)[0]:
            if leaf is not None:
                out[f"{name}{pytree.keystr(path)}"] = leaf
    return out


def _check(said: str, found: Mapping[str, Any], wanted: Mapping[str, Any], sizes_too: bool) -> None:
    """InputSpecError for inputs of an example that are not like those of the export, or have NaN."""
    for name in wanted.keys() - found.keys():
        raise InputSpecError(f"{said} has no {name!r}", fix=_LIKE_EXAMPLE)
    for name, leaf in found.items():
        if name not in wanted:
            raise InputSpecError(f"{said} has {name!r}, which the example inputs have not", fix=_LIKE_EXAMPLE)
        if _kind(leaf, sizes_too) != _kind(wanted[name], sizes_too):
            raise InputSpecError(
                f"{said} has {name!r} as {_text(leaf)}, where the example inputs have {_text(wanted[name])}",
                fix=_LIKE_EXAMPLE,
            )
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.isnan().any():
            raise InputSpecError(
                f"{said} has NaN in {name!r}", fix="look for what made it so, or leave the example out"
            )


def _kind(leaf: Any, sizes_too: bool) -> tuple[Any, ...]:
    """What is alike in leaves of one input."""
    if not isinstance(leaf, torch.Tensor):
        return (type(leaf),)
    return (leaf.dtype, tuple(leaf.shape) if sizes_too else leaf.dim())


def _text(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return f"{leaf!r} ({type(leaf).__name__})"
    return f"{str(leaf.dtype).removeprefix('torch.')} [{', '.join(map(str, leaf.shape))}]"
