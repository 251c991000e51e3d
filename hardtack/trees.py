"""Pytrees as data (docs/package.md): arguments to the tensors of an entry point, its tensors to a result."""

from __future__ import annotations

import dataclasses
import math
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hardtack.errors import InputError

Tree = Mapping[str, Any]
Flatten = Callable[[tuple[Any, ...], Mapping[str, Any]], Sequence[Any]]
Unflatten = Callable[[tuple[Any, ...]], Any]


def flattener(in_tree: Tree, entry: str) -> Flatten:
    """A function from (args, kwargs) to the leaves in order. It raises InputError for another structure."""
    args_tree, kwargs_tree = in_tree["items"]
    count = len(args_tree["items"])
    keys = set(kwargs_tree["keys"])
    plain = [t.get("index") for t in args_tree["items"]] == list(range(count)) and not keys

    def flatten(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        if len(args) != count or kwargs.keys() != keys:
            raise InputError(_call_problem(entry, count, sorted(keys), len(args), sorted(kwargs)))
        if plain:
            return args
        leaves: dict[int, Any] = {}
        _flatten(args_tree, tuple(args), "args", leaves)
        _flatten(kwargs_tree, dict(kwargs), "kwargs", leaves)
        return [leaves[i] for i in range(len(leaves))]

    return flatten


def _call_problem(entry: str, count: int, keys: list[str], given: int, given_keys: list[str]) -> str:
    def say(n: int, names: list[str]) -> str:
        positional = f"{n} positional argument{'' if n == 1 else 's'}"
        return positional + (f" and the keywords {', '.join(names)}" if names else "")

    return f"{entry} takes {say(count, keys)}, as it was exported; it was given {say(given, given_keys)}"


def _flatten(tree: Tree, value: Any, path: str, leaves: dict[int, Any]) -> None:
    kind = tree["kind"]
    if kind == "leaf":
        leaves[tree["index"]] = value
    elif kind == "none":
        if value is not None:
            raise InputError(f"{path} was None when the model was exported; it is a {type(value).__name__}")
    elif kind in ("const", "float"):
        wanted = tree["value"] if kind == "const" else float(tree["text"])
        if type(value) is not type(wanted) or not _is_constant(value, wanted):
            raise InputError(f"{path} was {wanted!r} when the model was exported and cannot change; it is {value!r}")
    else:
        for key, item, child in _children(tree, value, path):
            _flatten(item, child, f"{path}[{key!r}]" if kind != "namedtuple" else f"{path}.{key}", leaves)


def _is_constant(value: Any, wanted: Any) -> bool:
    """Equal as the model sees it: a NaN is like another, and a zero unlike that of the other sign."""
    if not isinstance(wanted, float):
        return bool(value == wanted)
    return bool(value == wanted and math.copysign(1, value) == math.copysign(1, wanted)) or (
        math.isnan(value) and math.isnan(wanted)
    )


def _children(tree: Tree, value: Any, path: str) -> list[tuple[Any, Tree, Any]]:
    """(key, subtree, value) of every item."""
    kind, items = tree["kind"], tree["items"]
    if kind == "dict":
        if dataclasses.is_dataclass(value) and not isinstance(value, Mapping):
            named = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            value = {k: v for k, v in named.items() if v is not None}  # as torch registers dataclasses
        value = _parts_of_sparse(value, tree["keys"])
        if not isinstance(value, Mapping):
            raise InputError(f"{path} must be a dict, as it was exported; it is a {type(value).__name__}")
        if set(value) != set(tree["keys"]):
            raise InputError(f"{path} must have the keys {sorted(tree['keys'])}; it has {sorted(value, key=str)}")
        return [(k, t, value[k]) for k, t in zip(tree["keys"], items, strict=True)]
    wanted = {"tuple": tuple, "list": list, "namedtuple": tuple}[kind]
    if not isinstance(value, wanted):
        raise InputError(f"{path} must be a {wanted.__name__}, as it was exported; it is a {type(value).__name__}")
    if len(value) != len(items):
        raise InputError(f"{path} must have {len(items)} items, as it was exported; it has {len(value)}")
    keys = tree["fields"] if kind == "namedtuple" else range(len(items))
    return list(zip(keys, items, value, strict=True))


_SPARSE: dict[str, dict[str, str]] = {
    "torch.sparse_coo": {"indices": "_indices", "values": "_values"},
    "torch.sparse_csr": {name: name for name in ("crow_indices", "col_indices", "values")},
    "torch.sparse_csc": {name: name for name in ("ccol_indices", "row_indices", "values")},
}
"""Layout -> the part of an input, and the method of torch's tensor that gives it (ADR 0075)."""


def _parts_of_sparse(value: Any, keys: Sequence[Any]) -> Any:
    """A sparse tensor of torch's as the parts that a bundle takes; whatever else there is stays as it is."""
    parts = _SPARSE.get(str(getattr(value, "layout", "")))
    if parts is None:
        return value
    found = {name: getattr(value.detach(), method)().contiguous() for name, method in parts.items()}
    return found | {f"size_{d}": n for d, n in enumerate(value.shape) if f"size_{d}" in keys}


def unflattener(tree: Tree) -> Unflatten:
    """A function from the leaves, a tuple, to the structure that `tree` describes."""
    kind = tree["kind"]
    if kind == "leaf":
        index: int = tree["index"]
        return lambda leaves: leaves[index]
    if kind in ("none", "const", "float"):
        value = None if kind == "none" else tree["value"] if kind == "const" else float(tree["text"])
        return lambda leaves: value
    parts = [unflattener(t) for t in tree["items"]]
    if kind == "dict":
        keys = list(tree["keys"])
        return lambda leaves: {k: part(leaves) for k, part in zip(keys, parts, strict=True)}
    if kind == "list":
        return lambda leaves: [part(leaves) for part in parts]
    if kind == "tuple":
        return lambda leaves: tuple(part(leaves) for part in parts)
    made = namedtuple(tree["name"], tree["fields"])  # type: ignore[misc]
    return lambda leaves: made(*(part(leaves) for part in parts))
