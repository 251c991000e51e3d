"""Every model of the zoo: its Graph run by the reference interpreter equals eager, for all declared dynamic dims."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from hardtack.exporter import to_graphs
from hardtack.exporter.reference import outputs, run
from tests.export.checks import assert_same, eager, entry, feed
from tests.models import media, trained_vision, zoo

LARGE = ("efficientnet_lite0", "easyocr_crnn", "minilm")
"""Models that take half a minute each."""
STATIC = ("efficientnet_lite0", "silero_vad", "mtcnn_onet", "easyocr_crnn")


def _load(name: str) -> Any:
    try:
        return zoo.load(name)
    except (ModuleNotFoundError, FileNotFoundError) as missing:
        pytest.skip(f"{name}: {missing}")


RARE = pytest.mark.sweep(only=True)


@pytest.mark.sweep(share=3)
@pytest.mark.parametrize("name", [pytest.param(n, marks=RARE) if n in LARGE else n for n in zoo.NAMES])
def test_reference_equals_eager(name: str) -> None:
    """With the first declaration of dynamic dims; models with state are run from their initial state.

    Each of them runs compiled, and equals eager, in tests/models/test_bundles.py.
    """
    model = _load(name)
    spec = model.dynamic[0] if model.dynamic else None
    fresh = copy.deepcopy(model.module)
    exported = to_graphs(model.module, model.args, dynamic_shapes=spec, strict=model.strict)
    graph = entry(exported).graph
    for args in (model.args, *model.others):
        values = run(graph, exported.store, feed(graph, args))
        assert_same(outputs(graph, values), eager(copy.deepcopy(fresh), args), rtol=1e-4, atol=1e-4)


@pytest.mark.sweep(over="name")
@pytest.mark.parametrize("name", [pytest.param(n, marks=RARE) if n in LARGE else n for n in STATIC])
def test_static_reference_equals_eager(name: str) -> None:
    model = _load(name)
    exported = to_graphs(model.module, model.args)
    graph = entry(exported).graph
    assert not graph.syms
    values = run(graph, exported.store, feed(graph, model.args))
    assert_same(outputs(graph, values), eager(model.module, model.args), rtol=1e-4, atol=1e-4)


def test_recogniser_reads_lines_of_any_width() -> None:
    """The length of the LSTMs' sequence follows the picture's width, without a guard."""
    model = _load("easyocr_crnn")
    exported = to_graphs(model.module, model.args, dynamic_shapes=model.dynamic[1])
    graph = entry(exported).graph
    assert not graph.guards
    wide = media.text_line("Hello World 42", 400)
    (scores,) = outputs(graph, run(graph, exported.store, feed(graph, (wide,))))
    assert trained_vision.ctc_text(scores[0]) == "Hello World 42"


def test_prefill_and_decode_share_a_cache() -> None:
    """Token by token from the states that a run leaves equals the whole sequence at once."""
    model = _load("llama_static_cache")
    exported = to_graphs(model.module, model.args, dynamic_shapes=model.dynamic[0], strict=True)
    graph, ids = entry(exported).graph, torch.tensor([[5, 9, 2, 7, 31, 4]])

    def step(tokens: Any, at: int, states: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        inputs = feed(graph, (tokens, torch.arange(at, at + tokens.shape[1])))
        values = run(graph, exported.store, inputs, states)
        return outputs(graph, values)[0], {s.name: values[s.final or s.name] for s in graph.states}

    whole, _ = step(ids, 0, {})
    found, states = step(ids[:, :3], 0, {})
    parts = [found]
    for i in range(3, 6):
        found, states = step(ids[:, i : i + 1], i, states)
        parts.append(found)
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=1e-4, atol=1e-5)
