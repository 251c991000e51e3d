"""Packing of constants at export, in numpy: what a template reads is laid out once, not at every load.

`made(request, content)` gives the constant for a request of the lowering: a packed one, whose layouts are those that
templates/cpp/gemm.h, conv.h and depthwise.h name, or one that is joined of several.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from hardtack.codegen.ir.constants import COMPUTED, View
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.builder import Join, Made, Prepack
from hardtack.codegen.lower.cpu_workspace import PANEL

Array = npt.NDArray[np.generic]


def sources_of(request: Made) -> tuple[str, ...]:
    """The constants of the graph that a request reads."""
    return tuple(dict.fromkeys(p.source for p in request.parts)) if isinstance(request, Join) else (request.source,)


def made(request: Made, content: Callable[[str], Array]) -> Array:
    """The constant that the request asks for. `content`: name -> a constant of the graph, of any shape."""
    if isinstance(request, Prepack):
        return pack(request, content(request.source))
    out = np.zeros(request.shape, content(request.parts[0].source).dtype)
    for part in request.parts:
        values = viewed(content(part.source), part.view)
        place(
            out, part.into, values if part.packing is None else PACKINGS[part.packing.kind](values, part.packing.params)
        )
    return out


def dtype_made(request: Made, source: DType) -> DType:
    """Of the constant that the request makes of one of dtype `source`."""
    return COMPUTED.get(request.kind, source) if isinstance(request, Prepack) else source


def pack(request: Prepack, source: Array) -> Array:
    """The packed constant. `source`: the constant that the request names, of any shape."""
    view = viewed(source, View(request.offset, request.shape, request.strides))
    return PACKINGS[request.kind](view, request.params)


def viewed(array: Array, view: View) -> Array:
    """The elements that a view picks of an array that is seen flat and row-major. It must lie inside."""
    return _strided(np.ascontiguousarray(array).reshape(-1), view, writeable=False)


def place(out: Array, into: View, values: Array) -> None:
    """Writes values, as many as the view has, row-major, where the view of the contiguous `out` says."""
    _strided(out.reshape(-1), into, writeable=True)[...] = values.reshape(into.shape)


def _strided(flat: Array, view: View, writeable: bool) -> Array:
    if 0 in view.shape:
        return np.empty(view.shape, flat.dtype)
    strides = tuple(s * flat.itemsize for s in view.strides)
    return as_strided(flat[view.offset :], view.shape, strides, writeable=writeable)


def _to_panels(columns_last: Array) -> Array:
    """[..., N] -> [ceil(N/32), ..., 32], zeros in the columns that do not exist."""
    n = columns_last.shape[-1]
    count = -(-n // PANEL)
    padded = np.zeros((*columns_last.shape[:-1], count * PANEL), columns_last.dtype)
    padded[..., :n] = columns_last
    split = padded.reshape(*columns_last.shape[:-1], count, PANEL)
    return np.ascontiguousarray(np.moveaxis(split, -2, 0))


def _matrix(view: Array, params: tuple[int, ...]) -> Array:
    """[.., N] -> [ceil(N/32), K, 32], where K has all dimensions but the last."""
    return _to_panels(view.reshape(math.prod(view.shape[:-1]), view.shape[-1]))


def _block_panels(view: Array, params: tuple[int, ...]) -> Array:
    """The same of [.., blocks of N, columns of a block]."""
    return _matrix(view.reshape(*view.shape[:-2], view.shape[-2] * view.shape[-1]), params)


class CodesError(ValueError):
    """Codes do not fit in the bits that they have."""


def _nibble_pairs(view: Array, params: tuple[int, ...]) -> Array:
    """[K, N] of codes of 4 bits -> [ceil(N/32), ceil(K/2), 32]: of two rows of a panel, the first is in the low halves
    of bytes, the second in the high ones."""
    return _paired(_from_zero(view)).view(view.dtype)


def _float4_pairs(view: Array, params: tuple[int, ...]) -> Array:
    """The same of codes of f8e4m3fn that are numbers of float4_e2m1."""
    return _paired(_float4_of(view))


def _paired(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    panels = _to_panels(codes).astype(np.uint8)
    out = np.ascontiguousarray(panels[:, ::2])
    out[:, : panels.shape[1] // 2] |= panels[:, 1::2] << 4
    return out


def _halves(view: Array, params: tuple[int, ...]) -> Array:
    """[.., N] of codes of 4 bits -> [.., ceil(N/2)]: element j is in byte j // 2, an even one in its low half."""
    return _halved(_from_zero(view)).view(view.dtype)


def _float4_halves(view: Array, params: tuple[int, ...]) -> Array:
    """The same of codes of f8e4m3fn that are numbers of float4_e2m1."""
    return _halved(_float4_of(view))


def _halved(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    out = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // 2)), np.uint8)
    out |= codes[..., ::2]
    out[..., : codes.shape[-1] // 2] |= codes[..., 1::2] << 4
    return out


def _from_zero(view: Array) -> npt.NDArray[np.uint8]:
    """Codes of 4 bits as 0..15: those that have a sign, -8..7, as 8 more."""
    least = -8 if view.dtype == np.int8 else 0
    if view.size and (view.min() < least or view.max() > least + 15):
        raise CodesError(
            f"numbers from {view.min()} to {view.max()}, which do not fit in 4 bits, {least} to {least + 15}"
        )
    return (view.astype(np.int16) - least).astype(np.uint8)


_FLOAT4 = (0x00, 0x30, 0x38, 0x3C, 0x40, 0x44, 0x48, 0x4C)
"""0, 0.5, 1, 1.5, 2, 3, 4 and 6 in f8e4m3fn, by their codes in float4_e2m1."""


def _float4_of(view: Array) -> npt.NDArray[np.uint8]:
    """Codes of float4_e2m1, sign first, of those of f8e4m3fn."""
    known = np.full(256, 255, np.uint8)
    for code, wide in enumerate(_FLOAT4):
        known[[wide, wide | 0x80]] = code, code | 8
    found = known[view.astype(np.uint8)]
    if found.size and found.max() > 15:
        raise CodesError("floats of 8 bits that float4_e2m1 does not have")
    return found


def _conv(view: Array, params: tuple[int, ...]) -> Array:
    """[O, Cg, *taps] -> [groups, ceil(Og/32), *taps, Cg, 32]."""
    (groups,) = params
    per_group = view.reshape(groups, view.shape[0] // groups, *view.shape[1:])
    # taps, then input channels, then output channels
    moved = [np.moveaxis(g, (0, 1), (-1, -2)) for g in per_group]
    return np.stack([_to_panels(g) for g in moved])


def _conv_transposed(view: Array, params: tuple[int, ...]) -> Array:
    """[C, Og, *taps] -> [groups, ceil(Og/32), *taps, C/groups, 32]."""
    (groups,) = params
    per_group = view.reshape(groups, view.shape[0] // groups, *view.shape[1:])
    moved = [np.moveaxis(g, (0, 1), (-2, -1)) for g in per_group]
    return np.stack([_to_panels(g) for g in moved])


def _side_by_side(panels: Array, count: int) -> Array:
    """[.., K, 32] -> [.., ceil(K/count), 32, count], zeros behind the last row."""
    *outer, rows, columns = panels.shape
    groups = -(-rows // count)
    padded = np.zeros((*outer, groups * count, columns), panels.dtype)
    padded[..., :rows, :] = panels
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*outer, groups, count, columns), -2, -1))


def _pairs(view: Array, params: tuple[int, ...]) -> Array:
    """[K, N] -> [ceil(N/32), ceil(K/2), 32, 2]."""
    return _side_by_side(_to_panels(view), 2)


def _quads(view: Array, params: tuple[int, ...]) -> Array:
    """[K, N] -> [ceil(N/32), ceil(K/4), 32, 4]."""
    return _side_by_side(_to_panels(view), 4)


def _conv_pairs(view: Array, params: tuple[int, ...]) -> Array:
    """[O, Cg, *taps] -> [groups, ceil(Og/32), *taps, ceil(Cg/2), 32, 2]; where `merged` is 1, the taps of a filter row
    and their channels are the rows that pairs are made of."""
    return _side_by_side(_with_merged(view, *params), 2)


def _conv_quads(view: Array, params: tuple[int, ...]) -> Array:
    """[O, Cg, *taps] -> [groups, ceil(Og/32), *taps, ceil(Cg/4), 32, 4], merged as pairs are."""
    return _side_by_side(_with_merged(view, *params), 4)


def _with_merged(view: Array, groups: int, merged: int) -> Array:
    panels = _conv(view, (groups,))
    if merged:
        return panels.reshape(*panels.shape[:-3], panels.shape[-3] * panels.shape[-2], PANEL)
    return panels


def _conv_transposed_pairs(view: Array, params: tuple[int, ...]) -> Array:
    """[C, Og, *taps] -> [groups, ceil(Og/32), *taps, ceil(C/groups/2), 32, 2]."""
    return _side_by_side(_conv_transposed(view, params), 2)


def _depthwise(view: Array, params: tuple[int, ...]) -> Array:
    """[C, 1, *taps] -> [*taps, C]."""
    return np.ascontiguousarray(np.moveaxis(view[:, 0], 0, -1))


def _recurrent(view: Array, params: tuple[int, ...]) -> Array:
    """[gates * H, H] -> [ceil(H/32), gates, H, 32]: a panel has one gate of 32 hidden units."""
    (gates,) = params
    hidden = view.shape[1]
    per_gate = view.reshape(gates, hidden, hidden)  # [gate, unit, k]
    panels = [_to_panels(np.swapaxes(g, 0, 1)) for g in per_gate]  # [blocks, k, 32] each
    return np.ascontiguousarray(np.stack(panels, axis=1))


def _columns(view: Array, params: tuple[int, ...]) -> Array:
    """[K, N] -> [N, K]: what a column takes part in lies side by side, as in the weight of a linear layer."""
    return np.ascontiguousarray(view.T)


def _taps_conv(view: Array, params: tuple[int, ...]) -> Array:
    """[O, Cg, *taps] -> [groups, Og, taps, Cg]."""
    (groups,) = params
    out, channels = view.shape[:2]
    return np.ascontiguousarray(np.moveaxis(view.reshape(groups, out // groups, channels, -1), 2, 3))


def _taps_transposed(view: Array, params: tuple[int, ...]) -> Array:
    """[C, Og, *taps] -> [groups, Og, taps, C/groups]."""
    (groups,) = params
    channels, out = view.shape[:2]
    return np.ascontiguousarray(np.moveaxis(view.reshape(groups, channels // groups, out, -1), 1, 3))


def _filters(view: Array, params: tuple[int, ...]) -> Array:
    """[O, C, *taps] -> [O, C * taps]."""
    return np.ascontiguousarray(view).reshape(view.shape[0], -1)


def _windows(view: Array, params: tuple[int, ...]) -> Array:
    """[O, C, *taps] -> [1, O, all taps but those of the last dimension, run]: a run has the taps of the last dimension,
    `wide` channels each, and zeros where there are none."""
    wide, run = params
    moved = np.moveaxis(view, 1, -1)  # [O, *taps, C]
    padded = np.zeros((*moved.shape[:-1], wide), view.dtype)
    padded[..., : moved.shape[-1]] = moved
    rows = padded.reshape(view.shape[0], -1, moved.shape[-2] * wide)
    out = np.zeros((1, *rows.shape[:2], run), view.dtype)
    out[0, :, :, : rows.shape[2]] = rows
    return out


def _sums(view: Array, params: tuple[int, ...]) -> Array:
    """Integers [*kept, *summed] -> [*kept], in int32."""
    (kept,) = params
    return np.asarray(view.sum(axis=tuple(range(kept, view.ndim)), dtype=np.int32))


def _whole(view: Array, params: tuple[int, ...]) -> Array:
    """The view as it is, row-major."""
    return np.ascontiguousarray(view)


PACKINGS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "whole": _whole,
    "panels": _matrix,
    "block_panels": _block_panels,
    "nibble_pairs": _nibble_pairs,
    "float4_pairs": _float4_pairs,
    "halves": _halves,
    "float4_halves": _float4_halves,
    "pairs": _pairs,
    "quads": _quads,
    "conv": _conv,
    "conv_pairs": _conv_pairs,
    "conv_quads": _conv_quads,
    "conv_transposed_pairs": _conv_transposed_pairs,
    "conv_transposed": _conv_transposed,
    "depthwise": _depthwise,
    "recurrent": _recurrent,
    "columns": _columns,
    "taps_conv": _taps_conv,
    "taps_transposed": _taps_transposed,
    "filters": _filters,
    "windows": _windows,
    "sums": _sums,
}
"""Prepack kind -> its function."""
