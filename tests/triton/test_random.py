"""Random numbers in Triton's kernels: the words, bit by bit, of the CPU's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from null_driver import NullDriver

from hardtack.exporter import to_graphs
from hardtack.exporter.reference import results_and_states
from tests.triton.driven import Driven


class Draws(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.rand(37) + x[0, 0] * 0,
            torch.randint(-5, 1000, (9,)),
            F.dropout(x, 0.4, True),
            torch.bernoulli(x.sigmoid()),
            torch.randn_like(x),
        )


@pytest.mark.parametrize("seed", [0, -(2**40) - 3])
def test_the_same_numbers_as_on_a_cpu(driver: NullDriver, tmp_path: Path, seed: int) -> None:
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    session = Driven(driver).export(Draws().eval(), (x,), tmp_path / "m.pkg").session()
    exported = to_graphs(Draws().eval(), (x,))
    graph, states = exported.entries["forward"].graph, {"hardtack.rng": torch.tensor([seed, 0])}
    session.seed(seed)
    for _ in range(3):  # plain, recorded, replayed
        want, states = results_and_states(graph, exported.store, {"x": x}, states)
        found = session(x)
        for ours, other in zip(found[:4], want[:4], strict=True):
            assert torch.equal(ours, other)
        torch.testing.assert_close(found[4], want[4], rtol=1e-5, atol=1e-5)
