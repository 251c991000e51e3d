"""Packing of constants at export, in numpy: what a template reads is laid out once, not at every load.

`pack(request, array)` gives the packed array for a Prepack request of the lowering; the layouts are those that
templates/cpp/gemm.h, conv.h and depthwise.h name.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from hardtack.codegen.lower.builder import Prepack
from hardtack.codegen.lower.matrix import PANEL

Array = npt.NDArray[np.generic]


def pack(request: Prepack, source: Array) -> Array:
    """The packed constant. `source`: the constant that the request names, of any shape."""
    flat = np.ascontiguousarray(source).reshape(-1)[request.offset :]
    strides = tuple(s * flat.itemsize for s in request.strides)
    view = as_strided(flat, request.shape, strides, writeable=False)
    return PACKINGS[request.kind](view, request.params)


def _to_panels(columns_last: Array) -> Array:
    """[..., N] -> [ceil(N/32), ..., 32], zeros in the columns that do not exist."""
    n = columns_last.shape[-1]
    count = -(-n // PANEL)
    padded = np.zeros((*columns_last.shape[:-1], count * PANEL), columns_last.dtype)
    padded[..., :n] = columns_last
    split = padded.reshape(*columns_last.shape[:-1], count, PANEL)
    return np.ascontiguousarray(np.moveaxis(split, -2, 0))


def _matrix(view: Array, params: tuple[int, ...]) -> Array:
    """[K, N] -> [ceil(N/32), K, 32]."""
    return _to_panels(view)


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


PACKINGS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "panels": _matrix,
    "conv": _conv,
    "conv_transposed": _conv_transposed,
    "depthwise": _depthwise,
    "recurrent": _recurrent,
    "columns": _columns,
    "taps_conv": _taps_conv,
    "taps_transposed": _taps_transposed,
}
"""Prepack kind -> its function."""
