"""Random programs of pointwise ops, views, reductions and products equal eager: fusion, tiling and memory together.

Programs come from fixed seeds rather than from hypothesis, so that their kernels are found in the cache.
"""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.codegen.compare import compile_module, differences

LARGEST = 6000
"""Elements that a value of a program may have."""


class Program(nn.Module):
    """`steps` random operations; about a third of the values, and the last, are outputs."""

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__()
        self.seed, self.steps = seed, steps
        self.weights = nn.ParameterDict({str(n): nn.Parameter(torch.randn(n, 24) / 5) for n in (8, 12, 24, 4, 6, 32)})

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        r = random.Random(self.seed)
        values, out = [x, y], []
        while len(values) < self.steps + 2:
            # recent values more often: chains are what fusion is about
            a = values[-1 - min(int(r.expovariate(0.4)), len(values) - 1)]
            found = self.step(r, a, values)
            if found is None or found.numel() > LARGEST or found.dim() > 4:
                continue
            values.append(found)
            if r.random() < 0.3:
                out.append(found)
        return [*out, values[-1]]

    def step(self, r: random.Random, a: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor | None:
        kind = r.choice(
            ["point", "point", "point", "pair", "pair", "view", "view", "reduce", "reduce", "norm", "join", "product"]
        )
        d = r.randrange(a.dim()) if a.dim() else 0
        if kind == "point":
            f = r.choice(
                [
                    torch.relu,
                    torch.sigmoid,
                    torch.tanh,
                    torch.abs,
                    lambda t: t * 0.5 + 1,
                    lambda t: t - t.detach() * 0.25,
                    F.gelu,
                ]
            )
            return f(a)
        if kind == "pair":
            return self.pair(r, a, values)
        if not a.dim():
            return None
        if kind == "view":
            return self.view(r, a, d)
        if kind == "reduce":
            keep = r.random() < 0.5
            f = r.choice([torch.sum, torch.mean, torch.amax, torch.amin])
            return f(a, d, keep) * 0.5
        if kind == "norm":
            return r.choice(
                [lambda: a.softmax(d), lambda: F.layer_norm(a, a.shape[-1:]), lambda: a - a.mean(d, keepdim=True)]
            )()
        if kind == "join":
            return r.choice(
                [lambda: torch.cat([a, a * 2], d), lambda: F.pad(a, (1, 2)), lambda: torch.stack([a, a + 1], d)]
            )()
        weight = self.weights.get(str(a.shape[-1]), None)
        if weight is None or a.dim() < 2:
            return None
        return a @ weight if r.random() < 0.7 else (a @ a.transpose(-1, -2)) * 0.05

    def pair(self, r: random.Random, a: torch.Tensor, values: list[torch.Tensor]) -> torch.Tensor | None:
        for b in r.sample(values, len(values)):
            try:
                shape = torch.broadcast_shapes(a.shape, b.shape)
            except RuntimeError:
                continue
            if max(len(shape), 1) <= 4:
                f = r.choice(
                    [torch.add, torch.mul, torch.sub, torch.maximum, lambda p, q: torch.where(p > q, p, q * 0.5)]
                )
                return f(a, b).clamp(-50, 50)
        return None

    def view(self, r: random.Random, a: torch.Tensor, d: int) -> torch.Tensor | None:
        size = a.shape[d]
        choices = [
            lambda: a.transpose(0, d),
            lambda: a.flip(d),
            lambda: a.unsqueeze(d),
            lambda: a.flatten(d),
            lambda: a[:, ::2] if a.dim() > 1 and a.shape[1] > 2 else None,
            lambda: a.narrow(d, 1, 2) if size > 3 else None,
            lambda: a.unflatten(d, (2, size // 2)) if size % 2 == 0 else None,
            lambda: a.transpose(-1, d).contiguous(),
        ]
        return r.choice(choices)()


def inputs(seed: int) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 8, 12, generator=g), torch.randn(12, generator=g)]


def check(seed: int, steps: int) -> None:
    torch.manual_seed(seed)
    module = Program(seed, steps).eval()
    compiled = compile_module(module, inputs(seed))
    with torch.no_grad():
        want = module(*inputs(seed))
    # the programs amplify rounding; a wrong index gives errors of the size of the values
    found = differences(compiled(*inputs(seed)), want, 500)
    assert not found, f"seed {seed}: " + "\n".join(found)


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_equal_eager(seed: int) -> None:
    check(seed, 45)
