"""Every model of the zoo: its Graph run by the reference interpreter equals eager, for all declared dynamic dims."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.export.checks import assert_same, eager, entry, feed
from tests.models import zoo

torch = pytest.importorskip("torch")

from hardtack.export import to_graphs  # noqa: E402
from hardtack.export.reference import outputs, run  # noqa: E402

HEAVY = {"craft_text_detector", "rxnmapper"}


def _load(name: str) -> Any:
    try:
        return zoo.load(name)
    except (ModuleNotFoundError, FileNotFoundError) as missing:
        pytest.skip(f"{name}: {missing}")


@pytest.mark.parametrize("name", zoo.NAMES)
def test_reference_equals_eager(name: str) -> None:
    """With the first declaration of dynamic dims; models with state are run from their initial state."""
    model = _load(name)
    spec = model.dynamic[0] if model.dynamic else None
    fresh = copy.deepcopy(model.module)
    exported = to_graphs(model.module, model.args, dynamic_shapes=spec, strict=model.strict)
    graph = entry(exported).graph
    for args in (model.args, *model.others):
        values = run(graph, exported.store, feed(graph, args))
        assert_same(outputs(graph, values), eager(copy.deepcopy(fresh), args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [n for n in zoo.TRAINED if n not in HEAVY])
def test_static_reference_equals_eager(name: str) -> None:
    model = _load(name)
    exported = to_graphs(model.module, model.args)
    graph = entry(exported).graph
    assert not graph.syms
    values = run(graph, exported.store, feed(graph, model.args))
    assert_same(outputs(graph, values), eager(model.module, model.args), rtol=1e-4, atol=1e-4)
