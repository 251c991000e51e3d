"""Pytrees: arguments to leaves, leaves to results, and what is said of arguments of another structure."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardtack.errors import InputError
from hardtack.trees import flattener, unflattener

Pair = namedtuple("Pair", ["first", "second"])


def tree_of(value: Any, leaves: list[Any]) -> dict[str, Any]:
    """The tree of a structure whose leaves are objects of the class Leaf; they are appended to `leaves`."""
    if isinstance(value, Leaf):
        leaves.append(value)
        return {"kind": "leaf", "index": len(leaves) - 1}
    if value is None:
        return {"kind": "none"}
    if isinstance(value, float):
        return {"kind": "float", "text": repr(value)}
    if isinstance(value, (bool, int, str)):
        return {"kind": "const", "value": value}
    if isinstance(value, dict):
        items = [tree_of(v, leaves) for v in value.values()]
        return {"kind": "dict", "keys": list(value), "items": items}
    items = [tree_of(v, leaves) for v in value]
    if isinstance(value, Pair):
        return {"kind": "namedtuple", "name": "Pair", "fields": ["first", "second"], "items": items}
    return {"kind": type(value).__name__, "items": items}


class Leaf:
    pass


VALUES = st.recursive(
    st.one_of(st.builds(Leaf), st.none(), st.booleans(), st.integers(-9, 9), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.builds(Pair, inner, inner),
        st.dictionaries(st.one_of(st.text("ab", max_size=2), st.integers(0, 3)), inner, max_size=3),
    ),
    max_leaves=8,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float):
        return isinstance(b, float) and repr(a) == repr(b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a).__name__ == type(b).__name__ and len(a) == len(b) and all(map(same, a, b))
    return a is b if isinstance(a, Leaf) else (type(a), a) == (type(b), b)


@given(st.lists(VALUES, max_size=3), st.dictionaries(st.text("xyz", min_size=1, max_size=2), VALUES, max_size=2))
def test_what_is_flattened_comes_back(args: list[Any], kwargs: dict[str, Any]) -> None:
    leaves: list[Any] = []
    tree = {"kind": "tuple", "items": [tree_of(tuple(args), leaves), tree_of(kwargs, leaves)]}
    found = flattener(tree, "f")(tuple(args), kwargs)
    assert list(found) == leaves
    assert same(unflattener(tree)(tuple(found)), (tuple(args), kwargs))


def flat(example: tuple[Any, ...], given_args: tuple[Any, ...], **kwargs: Any) -> str:
    """The error for arguments that do not fit the example's."""
    leaves: list[Any] = []
    tree = {"kind": "tuple", "items": [tree_of(example, leaves), tree_of({"mask": Leaf()}, leaves)]}
    with pytest.raises(InputError) as caught:
        flattener(tree, "forward")(given_args, kwargs)
    return str(caught.value)


@pytest.mark.parametrize(
    ("example", "given_args", "message"),
    [
        ((None,), (3,), "args[0] was None when the model was exported; it is a int"),
        ((2,), (3,), "args[0] was 2 when the model was exported and cannot change; it is 3"),
        ((2,), (2.0,), "args[0] was 2 when the model was exported and cannot change; it is 2.0"),
        ((0.0,), (-0.0,), "args[0] was 0.0 when the model was exported and cannot change; it is -0.0"),
        ((True,), (1,), "args[0] was True when the model was exported and cannot change; it is 1"),
        (([1, 2],), ([1],), "args[0] must have 2 items, as it was exported; it has 1"),
        (([1],), ((1,),), "args[0] must be a list, as it was exported; it is a tuple"),
        (({"a": 1},), ({"b": 1},), "args[0] must have the keys ['a']; it has ['b']"),
        (({"a": [None]},), ({"a": [0]},), "args[0]['a'][0] was None when the model was exported; it is a int"),
        ((Pair(1, 2),), ((1, 3),), "args[0].second was 2 when the model was exported and cannot change; it is 3"),
    ],
)
def test_other_structures_are_refused(example: tuple[Any, ...], given_args: tuple[Any, ...], message: str) -> None:
    assert flat(example, given_args, mask=Leaf()) == message


def test_wrong_number_of_arguments() -> None:
    assert flat((Leaf(),), (), mask=Leaf()) == (
        "forward takes 1 positional argument and the keywords mask, as it was exported; "
        "it was given 0 positional arguments and the keywords mask"
    )
    assert flat((Leaf(),), (Leaf(),)) == (
        "forward takes 1 positional argument and the keywords mask, as it was exported; "
        "it was given 1 positional argument"
    )


@dataclass
class Named:
    a: Any
    b: Any = None


def test_a_dataclass_stands_for_a_dict_of_its_fields() -> None:
    one, leaves = Leaf(), list[Any]()
    tree = {"kind": "tuple", "items": [tree_of(({"a": one},), leaves), tree_of({}, leaves)]}
    assert list(flattener(tree, "forward")((Named(one),), {})) == [one]
    with pytest.raises(InputError, match=r"^args\[0\] must have the keys \['a'\]; it has \['a', 'b'\]$"):
        flattener(tree, "forward")((Named(one, one),), {})
