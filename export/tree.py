"""torch's pytrees as plain data, so that loading a bundle needs no torch.

    tree ::= {"kind": "leaf", "index": i} | {"kind": "none"} | {"kind": "const", "value": scalar or string}
           | {"kind": "tuple" | "list", "items": [tree, ...]}
           | {"kind": "dict", "keys": [str or int, ...], "items": [tree, ...]}
           | {"kind": "namedtuple", "name": type name, "fields": [str, ...], "items": [tree, ...]}

`index` counts tensors in flattened order, which is the order of a Graph's inputs or outputs. Classes with named fields
(registered dataclasses, the outputs of transformers) become "dict" with the names of their fields in order.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from hardtack.exporter.errors import InputSpecError

Tree = dict[str, Any]
LEAF: Tree = {"kind": "leaf", "index": -1}


def describe(spec: pytree.TreeSpec, leaves: Sequence[Tree], what: str) -> Tree:
    """`spec` with its i-th leaf described by leaves[i]. `what`, "inputs" or "outputs", is for the error's text."""
    rest = list(leaves)

    def go(s: pytree.TreeSpec) -> Tree:
        if s.is_leaf():
            return rest.pop(0)
        items = [go(child) for child in s.children()]
        return _container(s, items, what)

    tree = go(spec)
    assert not rest, "more leaves than the tree has"
    return tree


def _container(spec: pytree.TreeSpec, items: list[Tree], what: str) -> Tree:
    kind = spec.type
    if kind in (tuple, list, torch.Size):
        return {"kind": "list" if kind is list else "tuple", "items": items}
    if kind in (dict, OrderedDict):
        return {"kind": "dict", "keys": _plain(spec.context, what), "items": items}
    if kind is defaultdict:
        return {"kind": "dict", "keys": _plain(spec.context[1], what), "items": items}
    if kind is namedtuple:  # torch's name for all of them
        kind = spec.context
    if pytree.is_namedtuple_class(kind):
        return {"kind": "namedtuple", "name": kind.__name__, "fields": list(kind._fields), "items": items}
    if kind.__module__ == "torch.return_types":
        fields = list(getattr(kind, "__match_args__", ())) or _structseq_fields(kind)
        return {"kind": "namedtuple", "name": kind.__name__, "fields": fields, "items": items}
    keys = _string_keys(spec.context)
    if keys is not None and len(keys) == len(items):
        return {"kind": "dict", "keys": keys, "items": items}
    name = getattr(kind, "__qualname__", str(kind))
    raise InputSpecError(
        f"the {what} contain a {name}, which cannot be described without its Python class",
        fix=f"wrap the module so that its {what} are tensors in tuples, lists and dicts",
    )


def _structseq_fields(kind: type) -> list[str]:
    """The field names of torch.return_types.max and the like."""
    return [name for name, member in vars(kind).items() if type(member).__name__ == "member_descriptor"]


def _plain(keys: Any, what: str) -> list[str | int]:
    bad = [k for k in keys if not isinstance(k, (str, int))]
    if bad:
        raise InputSpecError(f"the {what} contain a dict with the key {bad[0]!r}", fix="use strings or ints as keys")
    return list(keys)


def _string_keys(context: Any) -> list[str] | None:
    """The field names that registered containers keep in their context: a list, or the list first in a pair."""
    pair = isinstance(context, (tuple, list)) and bool(context) and isinstance(context[0], (tuple, list))
    found = context[0] if pair or (isinstance(context, tuple) and context) else context
    ok = isinstance(found, (list, tuple)) and all(isinstance(k, str) for k in found)
    return list(found) if ok else None


def const_leaf(value: object, what: str) -> Tree:
    """The tree of a leaf that is no tensor."""
    if value is None:
        return {"kind": "none"}
    if isinstance(value, (bool, int, float, str)):
        return {"kind": "const", "value": value}
    raise InputSpecError(
        f"the {what} contain a {type(value).__name__}, which is neither a tensor nor a plain value",
        fix="pass tensors, numbers, strings or None",
    )


def leaf_names(tree: Tree, root: str) -> list[str]:
    """A readable name for every tensor leaf, in index order: dict keys and positions joined by dots.

    A lone leaf is called `root`, an item of an outer tuple `root_0`.
    """
    names: dict[int, str] = {}

    def go(t: Tree, path: str, name: Callable[[str, object], str]) -> None:
        if t["kind"] == "leaf":
            names[t["index"]] = path
        for position, item in enumerate(t.get("items", ())):
            key = t["keys"][position] if "keys" in t else t["fields"][position] if "fields" in t else position
            go(item, name(path, key), lambda p, k: f"{p}.{k}")

    go(tree, root, lambda p, k: str(k) if isinstance(k, str) else f"{p}_{k}")
    return [names[i] for i in range(len(names))]
