"""The report's perplexity: of models that give logits for the next token, and of no others."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.cli import main
from hardtack.quantisation import Quantised, quantise

TARGETS = ("cpu:x86-64-v3",)
MODEL = """
import torch
from torch import nn

class Language(nn.Module):
    '''Each place sees the mean of its tokens and those before it, or of all.'''

    def __init__(self, rows=40, is_causal=True, classes=40):
        super().__init__()
        self.words, self.middle, self.head = nn.Embedding(rows, 32), nn.Linear(32, 64), nn.Linear(64, classes)
        self.is_causal = is_causal

    def forward(self, mask, ids):
        x = self.words(ids) * mask[..., None]
        x = x.cumsum(1) if self.is_causal else x.cumsum(1) + x.sum(1, keepdim=True)
        return x.mean(1), self.head(torch.relu(self.middle(x)))

def small():
    torch.manual_seed(0)
    ids = torch.randint(0, 40, (2, 9))
    return Language().eval(), (torch.ones_like(ids), ids)
"""
SPACE: dict[str, type[nn.Module]] = {}
exec(MODEL, SPACE)


def language(**options: object) -> nn.Module:
    torch.manual_seed(0)
    return SPACE["Language"](**options).eval()


def ids(*shape: int, below: int = 40) -> torch.Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(shape[-1]))


def report(module: nn.Module, path: Path, *examples: torch.Tensor) -> Quantised:
    given = [(torch.ones_like(x), x) for x in examples]
    options = hardtack.Options(weights="int4:32", calibration=given if len(given) > 1 else None)
    shapes = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},) * 2 if len(given) > 1 else None
    found = hardtack.export(
        module, given[0], path=path / "m.pkg", targets=TARGETS, options=options, dynamic_shapes=shapes
    ).quantised
    assert found is not None
    return found


def perplexity(module: nn.Module, *examples: torch.Tensor) -> float:
    with torch.no_grad():
        losses = [
            F.cross_entropy(
                module(torch.ones_like(x), x)[1][:, :-1].flatten(0, 1), x[:, 1:].flatten(), reduction="none"
            )
            for x in examples
        ]
    return math.exp(float(torch.cat(losses).mean()))


def test_of_the_example_inputs_and_of_data(tmp_path: Path) -> None:
    module = language()
    for examples in ((ids(2, 9),), (ids(2, 9), ids(3, 5), ids(1, 12))):
        found = report(module, tmp_path, *examples)
        (figures,) = found.perplexity.values()
        made = quantise(module, hardtack.Options(weights="int4:32")).model
        assert figures.output == "output_1"
        assert figures.num_tokens == sum(x[:, 1:].numel() for x in examples)
        assert figures.exact == pytest.approx(perplexity(module, *examples), rel=1e-5)
        assert figures.found == pytest.approx(perplexity(made, *examples), rel=1e-5)
        assert figures.exact != figures.found


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"is_causal": False}, (2, 9)),  # a place sees the tokens behind it
        ({"classes": 24}, (2, 9)),  # no logits of the embedding's tokens
        ({"rows": 50}, (2, 9)),
        ({}, (2, 1)),  # no next token
    ],
    ids=str,
)
def test_of_no_other_models(options: dict[str, int], shape: tuple[int, int], tmp_path: Path) -> None:
    found = report(language(**options), tmp_path, ids(*shape))
    assert found.perplexity == {}
    assert len(found.accuracy["forward"]) == 2


def test_the_command_says_it(tmp_path: Path) -> None:
    model = tmp_path / "language_here.py"
    model.write_text(MODEL)
    arguments = [
        "export",
        f"{model}:small",
        "-o",
        str(tmp_path / "m.pkg"),
        "--target",
        *TARGETS,
        "--weights",
        "int4:32",
    ]
    said = json.loads(CliRunner().invoke(main, [*arguments, "--json"], prog_name="hardtack").stdout)
    figures = said["quantised"]["perplexity"]["forward"]
    assert set(figures) == {"output", "num_tokens", "exact", "found"}
    text = CliRunner().invoke(main, arguments, prog_name="hardtack").stdout
    assert f"perplexity by output_1: {figures['exact']:.4g} -> {figures['found']:.4g}, of 16 tokens\n" in text
    assert "layers that stay as they are\n" in text
    assert "words  Embedding is no linear layer\n" in text
