"""Products with weights of 4 bits as torch packs them for CPUs: aten._weight_int4pack_mm_for_cpu taken apart.

Where a code of the weight (N, K) lies depends on the CPU that torch runs on. In blocks of columns one byte for each k
and two columns follow each other; the two are j and j + block / 2, or neighbours, as in a last block that is not full.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hardtack.exporter.errors import CaptureError


class _Layout(NamedTuple):
    """block: columns. apart: the two columns of a byte are half a block apart, in blocks that are full."""

    block: int
    apart: bool

    def codes(self, packed: Tensor) -> Tensor:
        """(N, K) from 0 to 15, of bytes (N, K / 2)."""
        n, k = packed.shape[0], 2 * packed.shape[1]
        whole = n // self.block * self.block
        full = packed[:whole].reshape(-1, k, self.block // 2)
        parts = [self._columns(full, self.apart)] if whole else []
        if whole < n:
            parts.append(self._columns(packed[whole:].reshape(1, k, -1), apart=False))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @staticmethod
    def _columns(packed: Tensor, apart: bool) -> Tensor:
        """(blocks * columns, k) of (blocks, k, columns / 2)."""
        pairs = torch.stack([packed & 15, packed >> 4], 2 if apart else 3)
        return pairs.reshape(packed.shape[0], packed.shape[1], -1).mT.reshape(-1, packed.shape[1])


@functools.cache
def _layout() -> _Layout | None:
    """That of this CPU, which torch tells by packing a weight; None for one that is not known here."""
    codes = torch.arange(208 * 6, device="cpu").mul(7).remainder(16).reshape(208, 6).int()
    try:
        packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
    except RuntimeError:  # a torch that has no such kernel must still export all else
        return None
    known = itertools.starmap(_Layout, itertools.product((64, 32, 16), (True, False)))
    return next((x for x in known if torch.equal(x.codes(packed).int(), codes)), None)


def rules() -> dict[Any, Callable[..., Any]]:
    """By op. Made outside of any tracing, since torch packs a weight for it."""
    layout = _layout()

    def product(x: Tensor, packed: Tensor, group: int, scales_and_zeros: Tensor) -> Tensor:
        """x (M, K) times the transpose of (code - 8) * scale + zero, which neighbours along K share: scales_and_zeros
        (K / group, N, 2). In f32, rounded once."""
        if layout is None:
            raise CaptureError(
                "_weight_int4pack_mm_for_cpu: how torch packs weights of 4 bits on this CPU is not known",
                fix="keep codes, scales and zero points, and write the weight as (codes - 8) * scales + zeros",
            )
        codes = layout.codes(packed)
        scales, zeros = (
            scales_and_zeros[..., i].float().mT[:, :, None].expand(-1, -1, group).reshape(codes.shape) for i in (0, 1)
        )
        weight = (codes.float() - 8) * scales + zeros
        return (x.float() @ weight.mT).to(x.dtype)

    return {torch.ops.aten._weight_int4pack_mm_for_cpu.default: product}
