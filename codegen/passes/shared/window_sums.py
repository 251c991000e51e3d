"""Sums of the codes in each window of a convolution, as ops: what a filter's zero point is multiplied by."""

from __future__ import annotations

import itertools

from hardtack.codegen.ir.expr import ONE, const, int_value
from hardtack.codegen.ir.graph import Lit, Op, make_attrs
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.convolution import geometry
from hardtack.codegen.passes.shared.code_values import Edit


def window_sums(edit: Edit, conv: Op, x: str) -> str:
    """Of int8 codes x [N, C, *S] the int32 sums [N, O, *P] over the windows of `conv`, all channels of a group; [N, 1,
    *P] where there is one group. Channels are summed once, and then taps, each a slice; padding adds the conv's fill.
    """
    given, filters = geometry(conv), edit.types[conv.value(1)].shape
    n, _, *space = edit.types[x].shape
    outputs, depth, *kernel = (int_value(size) or 0 for size in filters)
    apart = edit.emit(conv, "reshape", x, shape=(n, const(given.groups), const(depth), *space))
    attrs = make_attrs(kind="sum", dims=(2,), keepdim=False, dtype=DType.I32)
    sums = edit.emit(conv, "reduce", apart, attrs=attrs)
    if any(side for pair in given.padding for side in pair):
        lo, hi = ((0, 0, *(pair[k] for pair in given.padding)) for k in (0, 1))
        fill = Lit(given.fill * depth, DType.I32)
        sums = edit.emit(conv, "pad", sums, fill, attrs=make_attrs(lo=lo, hi=hi, mode="constant"))
    found = _taps(edit, conv, sums, tuple(kernel))
    if given.groups == 1:
        return found
    points = edit.types[found].shape[2:]
    one_each = edit.emit(conv, "reshape", found, shape=(n, const(given.groups), ONE, *points))
    each = const(outputs // given.groups)
    spread = edit.emit(conv, "expand", one_each, shape=(n, const(given.groups), each, *points))
    return edit.emit(conv, "reshape", spread, shape=(n, const(outputs), *points))


def _taps(edit: Edit, conv: Op, sums: str, kernel: tuple[int, ...]) -> str:
    """The sums at all taps of each window of sums [N, G, *S]."""
    given = geometry(conv)
    points = edit.types[conv.outputs[0]].shape[2:]
    total = ""
    for tap in itertools.product(*map(range, kernel)):
        found = sums
        for d, (k, step, spread) in enumerate(zip(tap, given.stride, given.dilation, strict=True)):
            shape = list(edit.types[found].shape)
            shape[d + 2] = points[d]
            attrs = make_attrs(dim=d + 2, start=k * spread, step=step)
            found = edit.emit(conv, "slice", found, attrs=attrs, shape=shape)
        total = edit.emit(conv, "add", total, found) if total else found
    return total
