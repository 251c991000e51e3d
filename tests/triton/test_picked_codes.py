"""Embeddings of few bits in GPU kernels, through Triton's interpreter: bit by bit what floats give."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.codegen.compare import assert_same
from tests.front.test_quantised_embeddings import MADE, ROWS, Rows, Spelled
from tests.triton.test_loops import on_gpu


def picks(seed: int) -> torch.Tensor:
    return torch.randint(0, ROWS, (3, 8), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_rows_of_codes(made: Callable[[], Rows]) -> None:
    torch.manual_seed(0)
    module = made().eval()
    compiled = on_gpu(module, (picks(0),))
    assert any(".codes." in name for name in compiled.entry.prepacks)
    for seed in (1, 2):
        (found,) = compiled(picks(seed))
        assert torch.equal(found, module(picks(seed)))


@pytest.mark.parametrize("bits", [4, 8])
def test_other_ways_to_pick(bits: int) -> None:
    torch.manual_seed(0)
    module = Spelled(64, bits=bits, group=16).eval()
    assert_same(on_gpu(module, (picks(0),))(picks(1)), list(module(picks(1))))
