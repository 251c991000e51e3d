"""Models of the serving benchmarks, their bundles and cases: a small perceptron, and MiniLM for sentences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.export import Dim

import hardtack
from bench.serving_cases import Case
from examples.embed.demo import load_model

MAX_BATCH = 64
MAX_LENGTH = 128


class Mlp(nn.Module):
    """f32[batch, sizes[0]] to f32[batch, sizes[-1]]"""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def export_mlp(path: Path, sizes: Sequence[int]) -> nn.Module:
    module = Mlp(sizes).eval()
    batch = Dim("batch", min=1, max=MAX_BATCH)
    hardtack.export(module, (torch.randn(2, sizes[0]),), path=path, dynamic_shapes={"x": {0: batch}})
    return module


def mlp_cases(module: nn.Module, num_features: int, rows: Sequence[int]) -> list[Case]:
    """One for each number of rows."""
    generator = np.random.default_rng(0)
    cases = []
    for count in rows:
        x = generator.standard_normal((count, num_features), dtype=np.float32)
        with torch.inference_mode():
            cases.append(Case({"x": x}, module(torch.from_numpy(x)).numpy()))
    return cases


def export_sentences(path: Path) -> nn.Module:
    """MiniLM: ids and mask, i64[n, length], to embeddings f32[n, 384]."""
    module = load_model()
    ids, mask = torch.randint(1000, 2000, (4, 16)), torch.ones(4, 16, dtype=torch.int64)
    sizes = {0: Dim("sentences", max=MAX_BATCH), 1: Dim("length", max=MAX_LENGTH)}
    hardtack.export(module, (ids, mask), path=path, dynamic_shapes=(sizes, sizes), targets=("cpu:native",))
    return module


def sentence_cases(module: nn.Module, length: int) -> list[Case]:
    """One sentence a request, of a quarter to three quarters of `length` tokens, padded to that."""
    generator = np.random.default_rng(length)
    cases = []
    for tokens in range(length // 4, 3 * length // 4 + 1, max(length // 16, 1)):
        mask = (np.arange(length) < tokens).astype(np.int64)[None]
        ids = generator.integers(1000, 20000, (1, length)) * mask
        with torch.inference_mode():
            expected = module(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
        cases.append(Case({"ids": ids, "mask": mask}, expected))
    return cases
