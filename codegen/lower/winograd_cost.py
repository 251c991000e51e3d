"""When a convolution of f32 on a CPU is worth Winograd's filtering (templates/cpp/winograd.h): a count of cycles."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, ExprLike, as_expr
from hardtack.codegen.lower.cpu_workspace import POSITIONS
from hardtack.codegen.machine.machine import Cpu

_TAPS = 9
_EDGE = 2
"""Outputs of a tile in each direction."""
_FMA_RATE = 2
"""Products of vectors that a core does in a cycle."""
_TILE_CYCLES = 64
"""For a vector of channels of a tile to be transformed, into it or back: 16 loads, 32 or 24 additions, and stores, of
which 16 leave the first-level cache."""
_FILTER_CYCLES = 90
"""For a vector of filters: 24 loads and 16 stores that leave the first-level cache."""
_LEAST_GAIN = 1.1
"""What the direct kernel must take more, for the count is rough."""


@dataclass(frozen=True)
class WinogradCost:
    """Cycles of one core for a convolution, and whether Winograd's way is taken."""

    winograd: float
    direct: float

    @property
    def pays(self) -> bool:
        """True if it is taken."""
        return self.winograd * _LEAST_GAIN <= self.direct

    @property
    def reason(self) -> str:
        """The two counts."""
        return f"{self.winograd:.3g} cycles by Winograd's filtering, {self.direct:.3g} directly"


def tiles_of(n: ExprLike, height: ExprLike, width: ExprLike) -> Expr:
    """Tiles of n results of height times width."""
    return as_expr(n) * ((as_expr(height) + (_EDGE - 1)) // _EDGE) * ((as_expr(width) + (_EDGE - 1)) // _EDGE)


def winograd_cost(machine: Cpu, results: tuple[int, int, int], channels: int, outputs: int) -> WinogradCost:
    """Of `outputs` filters of 3 x 3 over `channels`, with n results of height times width."""
    n, height, width = results
    tiles = n * -(-height // _EDGE) * -(-width // _EDGE)
    lanes = machine.vector_nbytes // 4
    vectors_in, vectors_out = -(-channels // lanes), -(-outputs // lanes)
    products = channels * vectors_out / _FMA_RATE
    transforms = tiles * (vectors_in + vectors_out) * _TILE_CYCLES + channels * vectors_out * _FILTER_CYCLES
    waking = machine.wake_products / (_FMA_RATE * lanes)  # the transforms are a parallel step of their own
    return WinogradCost(
        winograd=POSITIONS * tiles * products + transforms + waking,
        direct=_TAPS * n * height * width * products,
    )
