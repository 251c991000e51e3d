"""Codes that products of int8 and something else read: in memory once, as int8."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.ir.types import DType
from tests.codegen.compare import to_numpy
from tests.codegen.test_integer_products import U8, codes, products, runner_of, whatever_it_costs

__all__ = ["whatever_it_costs"]


class ReadTwice(nn.Module):
    """Codes of uint8 that a convolution reads, and something else, in front of it or behind."""

    def __init__(self) -> None:
        super().__init__()
        self.taps = nn.Buffer(codes(20, 20, 3, 3, seed=4))

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """image [2, 20, 9, 8], of float32: whole numbers."""

        def convolve(given: torch.Tensor, zero: int) -> torch.Tensor:
            return F.conv2d(given.float() - zero, self.taps.float(), padding=1)

        wide, narrow = image.clamp(0, 255).to(U8), (image + 9).clamp(0, 127).to(U8)
        behind, twice = (image * 2).clamp(0, 255).to(U8), (image - 30).clamp(0, 255).to(U8)
        return {
            "of eight bits": convolve(wide, 3) + (wide.float() - 3),
            "of seven": convolve(narrow, 0).relu() + narrow.flip(3).float() * 4,
            "behind others": (behind.float() + 7) - convolve(behind, 128),
            "twice": convolve(twice, 128) + convolve(twice.flip(2), 5) + twice.float(),
            "given to the caller": convolve((image + 50).clamp(0, 255).to(U8), 1),
            "as it is": (image + 50).clamp(0, 255).to(U8),
        }


def test_codes_that_something_else_reads_are_in_memory_once(whatever_it_costs: None) -> None:
    inputs = (codes(2, 20, 9, 8).float() * 3,)
    runner, want = runner_of(ReadTwice().eval(), inputs), ReadTwice()(*inputs)
    assert [d.accepted for d in products(runner.compiled)] == [True] * 6
    for (name, y), found in zip(want.items(), runner(*map(to_numpy, inputs)), strict=True):
        assert torch.equal(torch.from_numpy(found), y), name
    stored = [v.storage[0] for v in runner.compiled.plan.values if v.dtype is DType.U8]
    assert stored == ["output"], "codes of a product are in memory as int8"
