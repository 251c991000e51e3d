"""dynamic_shapes: the user's declaration read, example sizes of 0 and 1 made usable, and the same said to torch in
hints.

torch specialises a dimension whose example has size 0 or 1. Where such a dimension is declared dynamic, the example
is made again with size 2, by repeating its only element or with zeros.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import Dim
from torch.export.dynamic_shapes import _DerivedDim, _DimHint, _DimHintType

from hardtack.exporter.errors import InputSpecError
from hardtack.exporter.sizes.ranges import DimRange
from hardtack.exporter.sizes.shapes import LARGEST_INT


@dataclass
class Prepared:
    """Example inputs and hints for torch, and the declared dimensions by (argument name, leaf of it, dim)."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    hints: Any
    dims: dict[tuple[str, int, int | None], DimRange] = field(default_factory=dict)


def prepare(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> Prepared:
    """Read the declaration. InputSpecError for one that does not fit the inputs."""
    names, variadic = argument_names(forward, args, kwargs)
    if dynamic_shapes is None:
        return Prepared(args, dict(kwargs), None)
    specs = _by_name(dynamic_shapes, names, variadic, args, kwargs)
    out = Prepared((), {}, {})
    hints: dict[str, Any] = {}
    values: list[Any] = []
    for name, value in zip(names, [*args, *kwargs.values()], strict=True):
        reader = _Reader(name, out.dims)
        new_value, hint = reader.read(value, specs.get(name))
        values.append(new_value)
        hints[name] = hint
    out.args = tuple(values[: len(args)])
    out.kwargs = dict(zip(kwargs, values[len(args) :], strict=True))
    out.hints = _in_torch_form(hints, names, variadic, len(args), kwargs)
    return out


def argument_names(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """A name an argument, in call order, and for *args and **kwargs the parameter that takes it."""
    signature = inspect.signature(forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise InputSpecError(
            f"the example inputs do not fit forward{signature}: {error}",
            fix="pass args and kwargs as the model takes them",
        ) from error
    positional = [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL), "")
    stars = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD), "")
    names = [p.name for p in positional[: len(args)]]
    variadic: dict[str, str] = {}
    for i in range(len(args) - len(names)):
        names.append(f"{star}_{i}")
        variadic[names[-1]] = star
    for key in kwargs:
        if key not in signature.parameters:
            variadic[key] = stars
        names.append(key)
    return names, variadic


def _by_name(spec: Any, names: Sequence[str], variadic: Mapping[str, str], args: Any, kwargs: Any) -> dict[str, Any]:
    """The declaration as argument name -> spec."""
    if hasattr(spec, "dynamic_shapes"):
        raise InputSpecError(
            f"dynamic_shapes is a {type(spec).__name__}",
            fix="pass what its dynamic_shapes(module, args, kwargs) gives",
        )
    if isinstance(spec, (tuple, list)):
        spec = _flattened(spec, names, variadic, len(args))
        if len(spec) != len(names):
            raise InputSpecError(
                f"dynamic_shapes has {len(spec)} entries for {len(names)} inputs ({', '.join(names)})",
                fix="give one entry an input, None for a static one",
            )
        return dict(zip(names, spec, strict=True))
    if not isinstance(spec, Mapping):
        raise InputSpecError(
            f"dynamic_shapes is a {type(spec).__name__}", fix="pass a dict by argument name, or a tuple"
        )
    flat = dict(spec)
    for parameter in set(variadic.values()):
        nested = flat.pop(parameter, None)
        if isinstance(nested, Mapping):
            flat.update(nested)
        elif isinstance(nested, (tuple, list)):
            flat.update({f"{parameter}_{i}": s for i, s in enumerate(nested)})
    unknown = sorted(map(str, set(flat) - set(names)))
    if unknown:
        raise InputSpecError(
            f"dynamic_shapes names {', '.join(unknown)}, the inputs are {', '.join(names)}",
            fix="use the names of forward's parameters that have example inputs",
        )
    return flat


def _flattened(spec: Sequence[Any], names: Sequence[str], variadic: Mapping[str, str], count: int) -> Sequence[Any]:
    """One entry an input, where the entry of *args is given as one tuple."""
    star = [n for n in names[:count] if n in variadic]
    plain = count - len(star)
    nested = len(spec) > plain and isinstance(spec[plain], (tuple, list)) and not _is_tensor_spec(spec[plain])
    return [*spec[:plain], *spec[plain], *spec[plain + 1 :]] if star and nested else spec


def _in_torch_form(
    hints: dict[str, Any], names: Sequence[str], variadic: Mapping[str, str], count: int, kwargs: Any
) -> Any:
    """Hints by parameter name, those of *args and **kwargs under the parameter that takes them."""
    out: dict[str, Any] = {}
    for i, name in enumerate(names):
        parameter = variadic.get(name)
        if parameter is None:
            out[name] = hints[name]
        elif i < count:
            out[parameter] = (*out.get(parameter, ()), hints[name])
        else:
            out.setdefault(parameter, {})[name] = hints[name]
    return out


class _Reader:
    """Walks one argument and its spec side by side."""

    def __init__(self, name: str, dims: dict[tuple[str, int, int | None], DimRange]) -> None:
        self.name, self.dims, self.leaf = name, dims, 0

    def read(self, value: Any, spec: Any) -> tuple[Any, Any]:
        """(the example to trace with, the hint for torch)."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value, spec)
        if isinstance(value, int) and not isinstance(value, bool) and isinstance(spec, (Dim, _DimHint)):
            return self._integer(value, spec)
        if isinstance(spec, (Dim, _DimHint)) and not _is_static(spec):
            raise self._constant(value, spec)
        if spec is None or _is_static(spec) or not isinstance(value, (tuple, list, dict)):
            return self._opaque(value, None if _is_static(spec) else spec)
        if isinstance(value, dict):
            if not isinstance(spec, Mapping):
                raise self._mismatch(value, spec)
            pairs = {k: self.read(v, spec.get(k)) for k, v in value.items()}
            return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}
        if not isinstance(spec, (tuple, list)) or len(spec) != len(value):
            raise self._mismatch(value, spec)
        items = [self.read(v, s) for v, s in zip(value, spec, strict=True)]
        rebuilt = type(value)(*(i[0] for i in items)) if hasattr(value, "_fields") else type(value)(i[0] for i in items)
        return rebuilt, type(spec)(i[1] for i in items)

    def _constant(self, value: Any, spec: Any) -> InputSpecError:
        kind = type(value).__name__
        return InputSpecError(
            f"dynamic_shapes of {self.name} is one dimension, the example a {kind}",
            fix="say a dict or tuple of dims for a tensor, None for a value that stays as it is; "
            "a number other than an int that changes must be a tensor of rank 0",
        )

    def _mismatch(self, value: Any, spec: Any) -> InputSpecError:
        return InputSpecError(
            f"dynamic_shapes of {self.name}: {spec!r} is not built like the example, a {type(value).__name__}",
            fix="nest the declaration as the input is nested",
        )

    def _opaque(self, value: Any, spec: Any) -> tuple[Any, Any]:
        """A container whose sizes stay as they are, or a registered class with a flat declaration of its tensors."""
        leaves, tree = pytree.tree_flatten(value)
        if spec is None:
            self.leaf += len(leaves)
            plain = isinstance(value, (tuple, list, dict))
            return value, pytree.tree_map(lambda _: None, value) if plain else None
        flat = pytree.tree_leaves(spec, is_leaf=_is_tensor_spec)
        if len(flat) != len(leaves):
            raise self._mismatch(value, spec)
        read = [self.read(v, s) for v, s in zip(leaves, flat, strict=True)]
        hints = pytree.tree_unflatten([r[1] for r in read], pytree.tree_flatten(spec, is_leaf=_is_tensor_spec)[1])
        return pytree.tree_unflatten([r[0] for r in read], tree), hints

    def _integer(self, value: int, spec: Any) -> tuple[Any, Any]:
        found = _range(spec)
        if found is not None:
            self._within(self.name, value, found)
            self._small_enough(value, found)
            self.dims[self.name, self.leaf, None] = replace(found, example=value)
        self.leaf += 1
        return max(value, 2) if found is not None else value, _hint(found)

    def _small_enough(self, value: int, found: DimRange) -> None:
        """InputSpecError for an int that is, or was declared to be, larger than an int input may be."""
        most = max(value, found.hi or 0)
        if most > LARGEST_INT:
            raise InputSpecError(
                f"{self.name} may be {most}, and a dynamic int is at most 2**53",
                fix="give it as a tensor of rank 0, or as a constant: leave it out of dynamic_shapes",
            )

    def _within(self, place: str, size: int, found: DimRange) -> None:
        """InputSpecError for an example outside of the declared range."""
        lo, hi = found.lo or 0, found.hi
        if found.formula is None and (size < lo or (hi is not None and size > hi)):
            raise InputSpecError(
                f"{place} is {size} in the example and was declared {found.text}",
                fix="declare a range that holds the example, or give another example",
            )

    def _tensor(self, value: torch.Tensor, spec: Any) -> tuple[torch.Tensor, Any]:
        if spec is None:
            self.leaf += 1
            return value, None
        entries = (
            dict(enumerate(spec))
            if isinstance(spec, (tuple, list))
            else dict(spec)
            if isinstance(spec, Mapping)
            else None
        )
        if entries is None or (isinstance(spec, (tuple, list)) and len(spec) != value.dim()):
            raise self._mismatch(value, spec)
        hints: dict[int, Any] = {}
        for dim, entry in entries.items():
            if not isinstance(dim, int) or not -value.dim() <= dim < value.dim():
                raise InputSpecError(
                    f"dynamic_shapes of {self.name} names dim {dim!r}, the example has {value.dim()} dims"
                )
            at, found = dim % value.dim(), _range(entry)
            if found is None:
                continue
            self._within(f"dimension {at} of {self.name}", value.shape[at], found)
            self.dims[self.name, self.leaf, at] = replace(found, example=value.shape[at])
            hints[at] = _hint(found)
            value = _at_least_two(value, at)
        self.leaf += 1
        return value, hints or None


def _is_tensor_spec(s: Any) -> bool:
    plain = isinstance(s, Mapping) and all(isinstance(k, int) for k in s)
    return s is None or plain or (isinstance(s, (tuple, list)) and all(_is_dim(x) for x in s))


def _is_static(spec: Any) -> bool:
    return isinstance(spec, _DimHint) and spec.type is _DimHintType.STATIC


def _is_dim(x: Any) -> bool:
    return x is None or isinstance(x, (int, Dim, _DimHint))


def _range(entry: Any) -> DimRange | None:
    """One dimension's declaration; None for a static one."""
    if entry is None or isinstance(entry, int):
        return None
    if isinstance(entry, _DimHint):
        if entry.type is _DimHintType.STATIC:
            return None
        return DimRange("auto" if entry.type is _DimHintType.AUTO else "dynamic", "", entry.min, entry.max)
    if isinstance(entry, Dim):
        root = entry.root if isinstance(entry, _DerivedDim) else entry
        hi = root.max if isinstance(root.max, int) else None
        formula = entry.fn if isinstance(entry, _DerivedDim) else None
        return DimRange("named", root.__name__, root.min or None, hi, formula)
    raise InputSpecError(
        f"dynamic_shapes holds {entry!r}", fix="use torch.export.Dim, Dim.DYNAMIC, Dim.AUTO, Dim.STATIC or None"
    )


def _hint(found: DimRange | None) -> Any:
    if found is None:
        return None
    if found.formula is not None or (found.lo is None and found.hi is None):
        return Dim.AUTO
    return Dim.AUTO(min=found.lo, max=None if found.hi is None else max(found.hi, 2))


def _at_least_two(value: torch.Tensor, dim: int) -> torch.Tensor:
    """An example of size 2 where it has 0 or 1."""
    size = value.shape[dim]
    if size >= 2:
        return value
    if size == 1:
        return torch.cat([value, value], dim)
    shape = list(value.shape)
    shape[dim] = 2
    return value.new_zeros(shape)
