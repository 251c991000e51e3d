"""Packed weights as the templates' headers document them, written again here in Python so that the tests hold the
headers to their word; and the workspaces that plans give the templates, which tests surround by guards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from hardtack.codegen.ir.expr import Expr, int_value
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower import cpu_workspace
from tests.templates.cpu_kernels import Workspace

PANEL = cpu_workspace.number("kPanel")


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def pack_gemm(b: torch.Tensor) -> torch.Tensor:
    """[k, n] float to [ceil(n / 32), k, 32], zero-padded."""
    k, n = b.shape
    padded = torch.zeros(k, ceil_div(n, PANEL) * PANEL)
    padded[:, :n] = b
    return padded.reshape(k, ceil_div(n, PANEL), PANEL).permute(1, 0, 2).contiguous()


def pack_columns(x: torch.Tensor, fill: float) -> torch.Tensor:
    """[rows, n] to [ceil(n / 32), rows, 32] of the same type, ``fill`` in the columns that there are not."""
    rows, n = x.shape
    padded = torch.full((rows, ceil_div(n, PANEL) * PANEL), fill, dtype=x.dtype)
    padded[:, :n] = x
    return padded.reshape(rows, ceil_div(n, PANEL), PANEL).permute(1, 0, 2).contiguous()


def pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """[k, n] of 0 to 15 to [ceil(n / 32), ceil(k / 2), 32] bytes: even k in low halves, odd ones in high halves."""
    packed = torch.nn.functional.pad(pack_columns(codes.to(torch.uint8), 5), (0, 0, 0, len(codes) % 2), value=5)
    return (packed[:, ::2] | packed[:, 1::2] << 4).contiguous()


def pack_conv(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """torch's [oc, c / groups, kh, kw] to [groups, ceil(oc / groups / 32), kh, kw, c / groups, 32]."""
    oc, c, kh, kw = weight.shape
    parts = [
        pack_gemm(part.permute(2, 3, 1, 0).reshape(kh * kw * c, oc // groups))
        for part in weight.reshape(groups, oc // groups, c, kh, kw)
    ]
    return torch.stack(parts)


def pack_conv_transposed(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """torch's [c, oc / groups, kh, kw] of a transposed convolution, to the same."""
    c, oc, kh, kw = weight.shape
    swapped = weight.reshape(groups, c // groups, oc, kh, kw).transpose(1, 2).reshape(groups * oc, c // groups, kh, kw)
    return pack_conv(swapped, groups)


def nbytes(size: Expr) -> int:
    """A workspace by numbers that are all known."""
    found = int_value(size)
    assert found is not None
    return found


def gemm_packed_workspace(m: int, n: int, dtype: DType = DType.F32, *, dequantises: bool = False) -> Workspace:
    """gemm.h; with weights that are made float quantized.h."""
    return Workspace(0, nbytes(cpu_workspace.gemm_nbytes(m, n, dtype, dequantises=dequantises)))


def gemm_dynamic_workspace(m: int, n: int, k: int, dtype: DType = DType.F32) -> Workspace:
    """gemm.h."""
    return Workspace(0, nbytes(cpu_workspace.gemm_dynamic_nbytes(m, n, k, dtype)))


@dataclass(frozen=True)
class Conv:
    """A convolution by torch's parameters, square brackets in torch's order (h, w); ``size`` is the input's."""

    n: int
    c: int
    size: tuple[int, int]
    oc: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    extra: tuple[int, int] = (0, 0)  # padding at the bottom and right only; output_padding when transposed
    channels_last: bool = True

    def out_size(self) -> tuple[int, int]:
        """Output height and width of the forward convolution."""
        h, w = (
            (self.size[i] + 2 * self.padding[i] + self.extra[i] - self.dilation[i] * (self.kernel[i] - 1) - 1)
            // self.stride[i]
            + 1
            for i in (0, 1)
        )
        return h, w

    def transposed_out_size(self) -> tuple[int, int]:
        """Output height and width of the transposed convolution."""
        h, w = (
            (self.size[i] - 1) * self.stride[i]
            - 2 * self.padding[i]
            + self.dilation[i] * (self.kernel[i] - 1)
            + self.extra[i]
            + 1
            for i in (0, 1)
        )
        return h, w

    def ints(self, x: torch.Tensor, out: tuple[int, int]) -> list[int]:
        """ConvShape's members in order, for an input [n, c, h, w] of any strides."""
        sn, sc, sh, sw = x.stride()
        shape = [self.n, *self.size, self.c, *out, self.oc, *self.kernel, *self.stride, *self.padding, *self.dilation]
        return [*shape, self.groups, sn, sh, sw, sc]

    def merges_taps(self, dtype: DType = DType.F32) -> bool:
        """conv.h."""
        at_once = {DType.BF16: 2, DType.I8: 4}.get(dtype, 1)
        short = self.c < cpu_workspace.number("kShortTap") or self.c % at_once != 0
        return self.groups == 1 and self.dilation[1] == 1 and self.kernel[1] > 1 and short

    def packs_input(self, stride_c: int, dtype: DType = DType.F32) -> bool:
        """conv.h."""
        return (self.c > 1 and stride_c != 1) or self.merges_taps(dtype)

    def workspace(self, stride_c: int, dtype: DType = DType.F32) -> Workspace:
        """conv.h."""
        oh, ow = self.out_size()
        height, width = (
            cpu_workspace.window_extent(out, self.stride[i], self.kernel[i], self.dilation[i])
            for i, out in enumerate((oh, ow))
        )
        copy = nbytes(cpu_workspace.conv_input_nbytes(self.n, height, width, self.c, dtype))
        names = ("n", "oh", "ow", "oc", "kh", "kw", "dilation_h", "dilation_w", "groups")
        values = (self.n, oh, ow, self.oc, *self.kernel, *self.dilation, self.groups)
        tile = cpu_workspace.conv_nbytes(dict(zip(names, values, strict=True)), dtype)
        return Workspace(copy if self.packs_input(stride_c, dtype) else 0, nbytes(tile))

    def winograd_workspace(self) -> Workspace:
        """winograd.h."""
        oh, ow = self.out_size()
        tiles = self.n * ceil_div(oh, 2) * ceil_div(ow, 2)
        shared = cpu_workspace.winograd_shared_numel(tiles, self.c, self.oc)
        return Workspace(4 * nbytes(shared), 4 * nbytes(cpu_workspace.winograd_numel(tiles, self.c)))

    def transposed_workspace(self, stride_c: int, dtype: DType = DType.F32) -> Workspace:
        """conv_transposed.h."""
        oh, ow = self.transposed_out_size()
        tile = cpu_workspace.gemm_nbytes(self.n * oh * ow, self.oc // self.groups, dtype)
        return Workspace(self._copy(stride_c, dtype), nbytes(tile))

    def depthwise_workspace(self, stride_c: int, dtype: DType = DType.F32) -> Workspace:
        """depthwise.h."""
        return Workspace(self._copy(stride_c, dtype), 0)

    def _copy(self, stride_c: int, dtype: DType) -> int:
        copy = nbytes(cpu_workspace.conv_input_nbytes(self.n, *self.size, self.c, dtype))
        return copy if self.c > 1 and stride_c != 1 else 0

    def input(self) -> torch.Tensor:
        """Random input [n, c, h, w], channels-last in memory or not."""
        x = torch.randn(self.n, self.c, *self.size)
        if self.channels_last:
            return torch.randn(self.n, *self.size, self.c).permute(0, 3, 1, 2)
        return x
