"""What the attention templates of CPUs and GPUs have in common: operands, results, and how heads share keys."""

from __future__ import annotations

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.nests import Template, TemplateNest
from hardtack.codegen.ir.roles import Memory, Role, Sizes, need, summed
from hardtack.codegen.ir.types import DType


def mask_dtypes(first: DType) -> tuple[DType, ...]:
    """Of what says which keys a query sees, or of what is added to the scores."""
    return (DType.BOOL, *summed(first))


class AnyAttention(Template):
    """q [B, H, T, D], k [B, G, S, D] and v [B, G, S, E], dense in their last dimension, and perhaps a mask
    [B, H, T, S], broadcast by strides. The result is [B, H, T, E], its heads' elements side by side."""

    roles = (
        Role("q", "B H T D", memory=Memory.ROWS),
        Role("k", "B G S D", memory=Memory.ROWS),
        Role("v", "B G S E", memory=Memory.ROWS),
        Role("mask", "B H T S", mask_dtypes, optional=True, broadcast=True),
    )
    results = (Role("result", "B H T E", summed),)

    def verify_order(self, order: tuple[int, ...]) -> None:
        verify_heads_inside(order)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        heads, groups = int_value(sizes["H"]), int_value(sizes["G"])
        if heads is not None and groups is not None:
            need(groups > 0 and heads % groups == 0, f"its {heads} heads do not share {groups} heads of keys evenly")


def verify_heads_inside(order: tuple[int, ...]) -> None:
    """Raise LoopError unless the elements of a head lie side by side."""
    need(order[-1:] == (len(order) - 1,), f"its result is in the order {order}, expected the last dimension inside")
