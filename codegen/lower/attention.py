"""What the attention templates of CPUs and GPUs have in common: operands, results, and how heads share keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.expr import ONE, int_value
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.ir.graph_infer_nn import CODES, AttentionOperands, attention_operands
from hardtack.codegen.ir.nests import Operand, Template, TemplateNest
from hardtack.codegen.ir.roles import Memory, Role, Sizes, need, only, summed
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.lower.operands import copied, operand, try_once, try_operand


def mask_dtypes(first: DType) -> tuple[DType, ...]:
    """Of what says which keys a query sees, or of what is added to the scores."""
    return (DType.BOOL, *summed(first))


_Q = Role("q", "B H T D", memory=Memory.ROWS)
_MASK = Role("mask", "B H T S", mask_dtypes, optional=True, broadcast=True)


@dataclass(frozen=True)
class AnyAttention(Template):
    """q [B, H, T, D], k [B, G, S, D] and v [B, G, S, E], dense in their last dimension, and perhaps a mask
    [B, H, T, S], broadcast by strides. The result is [B, H, T, E], its heads' elements side by side.

    codes: k and v are codes, as the Graph op has them, with a scale for each of their rows [B, G, S] in front of the
    mask; no numbers of them are in memory.
    """

    codes: bool

    roles = (
        _Q,
        Role("k", "B G S D", memory=Memory.ROWS),
        Role("v", "B G S E", memory=Memory.ROWS),
        _MASK,
    )
    code_roles = (
        _Q,
        Role("k", "B G S D", only(*CODES), memory=Memory.ROWS),
        Role("v", "B G S E", only(*CODES), memory=Memory.ROWS),
        Role("k_scales", "B G S", only(DType.F32)),
        Role("v_scales", "B G S", only(DType.F32)),
        _MASK,
    )
    results = (Role("result", "B H T E", summed),)

    def operand_roles(self) -> tuple[Role, ...]:
        return self.code_roles if self.codes else self.roles

    def operands_of(self, nest: TemplateNest) -> AttentionOperands[Operand]:
        """A nest's operands by what they are."""
        return attention_operands(self.codes, nest.operands)

    def pointers_of(self, pointers: Sequence[str]) -> AttentionOperands[str]:
        """Texts, one of each operand, by what they are of."""
        return attention_operands(self.codes, pointers)

    def verify_order(self, order: tuple[int, ...]) -> None:
        verify_heads_inside(order)

    def verify_sizes(self, nest: TemplateNest, sizes: Sizes) -> None:
        heads, groups = int_value(sizes["H"]), int_value(sizes["G"])
        if heads is not None and groups is not None:
            need(groups > 0 and heads % groups == 0, f"its {heads} heads do not share {groups} heads of keys evenly")
        x = self.operands_of(nest)
        need(x.k.dtype is x.v.dtype, f"its keys are {x.k.dtype} and its values {x.v.dtype}")


def verify_heads_inside(order: tuple[int, ...]) -> None:
    """Raise LoopError unless the elements of a head lie side by side."""
    need(order[-1:] == (len(order) - 1,), f"its result is in the order {order}, expected the last dimension inside")


def attention_views(low: Lowering, op: Op) -> tuple[Operand, ...]:
    """The operands of an attention as its templates take them: rows of q, k and v are copied where they have gaps."""
    given = attention_operands(has_codes(op), op.inputs)
    of_heads = (given.k, given.v, *given.scales)
    mask = () if given.mask is None else (given.mask,)
    views = [_rows(low, given.q, op)]
    views += _once_each_group(low, [str(x) for x in of_heads]) or [
        *(_rows(low, x, op) for x in (given.k, given.v)),
        *(operand(low, str(x), op) for x in given.scales),
    ]
    return (*views, *(operand(low, str(x), op) for x in mask))


def _rows(low: Lowering, value: object, op: Op) -> Operand:
    """A view without gaps in its rows."""
    view = operand(low, str(value), op)
    gaps = view.strides[-1] is not ONE and view.shape[-1] is not ONE
    return copied(low, str(value), op, None) if gaps else view


def _once_each_group(low: Lowering, values: Sequence[str]) -> list[Operand]:
    """Views [B, G, ..] of keys, values and perhaps their scales [B, H, ..] of which as many neighbouring heads are one,
    as models repeat them for queries that share them: they are read where they lie. None where the views of all heads
    have strides themselves, and where the heads differ."""
    heads = int_value(low.graph.types[values[0]].shape[1]) or 0
    if all(try_operand(low, v) is not None for v in values):
        return []
    for repeats in range(heads, 1, -1):
        views = [try_once(low, v, 1, repeats) for v in values] if heads % repeats == 0 else []
        found = [v for v in views if v is not None]
        if len(found) == len(values) and all(v.strides[-1] is ONE for v in found[:2]):
            return found
    return []


def has_codes(op: Op) -> bool:
    """True for an attention whose keys and values are codes."""
    return "codes" in dict(op.attrs)
