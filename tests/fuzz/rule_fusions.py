"""For each kind of fusion: programs that it must change, and programs just outside of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200, X86_64_V4
from hardtack.codegen.passes.cpu.code_clamps import CODE_CLAMPS
from hardtack.codegen.passes.cpu.code_conversions import CODE_CONVERSIONS
from hardtack.codegen.passes.cpu.expand import EXPAND
from hardtack.codegen.passes.cpu.pooled_codes import POOLED_CODES
from hardtack.codegen.passes.gpu.split_reductions import SPLIT_REDUCTIONS
from hardtack.codegen.passes.passes import Passes


@dataclass(frozen=True)
class Fusion:
    """A part of code generation that can be left out. stage: whose text shows whether it did something.

    on, off: the backend with it and without. triggers: programs that it changes; near: those that it leaves alone.
    """

    name: str
    stage: str
    on: Backend
    off: Backend
    triggers: str
    near: str


@dataclass(frozen=True)
class _Apart(TritonBackend):
    """Products stay as they are."""

    def passes(self) -> Passes:
        return replace(super().passes(), graph=())


@dataclass(frozen=True)
class _Whole(TritonBackend):
    """Reductions are not split among programs."""

    def passes(self) -> Passes:
        every = super().passes()
        return replace(every, nests=tuple(p for p in every.nests if p is not SPLIT_REDUCTIONS))


@dataclass(frozen=True)
class _Divided(CppBackend):
    """Tables that are read at quotients are not written out."""

    def passes(self) -> Passes:
        every = super().passes()
        return replace(every, nests=tuple(p for p in every.nests if p is not EXPAND))


@dataclass(frozen=True)
class _Pools(CppBackend):
    """Maxima are of what codes stand for."""

    def passes(self) -> Passes:
        every = super().passes()
        return replace(every, graph=tuple(p for p in every.graph if p is not POOLED_CODES))


@dataclass(frozen=True)
class _Clamped(CppBackend):
    """Conversions to integers have all steps in front that the program has."""

    def passes(self) -> Passes:
        every = super().passes()
        return replace(every, graph=tuple(p for p in every.graph if p is not CODE_CLAMPS))


@dataclass(frozen=True)
class _Stepwise(CppBackend):
    """Codes are rounded, moved and held by an op each."""

    def passes(self) -> Passes:
        every = super().passes()
        return replace(every, graph=tuple(p for p in every.graph if p is not CODE_CONVERSIONS))


CPU = CppBackend()
_POOLS_OF_NUMBERS = _Pools()
_DIRECT = CppBackend(machines=(replace(X86_64_V4, wake_products=1 << 62),))
"""A step more for all threads never pays: convolutions are computed directly."""
GPU = TritonBackend(H200)

INSIDE = """
        x0[5,7] : (x0 * 2 + 1).sum(1)
        x0[5,7] x1[3]i64<5 : (x0 * 2)[x1]
        x0[5,7] : torch.cat([x0 * 2, x0.relu() + 1], 1)
        """
"""Producers that every backend computes inside their readers."""

FUSIONS: tuple[Fusion, ...] = (
    Fusion(
        "producers inside",
        "inline",
        CPU,
        replace(CPU, limits=replace(CPU.limits, largest_body=0)),
        INSIDE
        + """
        x0[5,7] : (x0.exp() + 1).flip(1) * 3
        x0[5,7] : x0.sum(1, keepdim=True) * x0 + 1; v0.cumsum(0)
        x0[n,7] : F.pad(x0 * 2 + x0.sin(), [1, 2]) - 1
        """,
        """
        x0[5,7] : x0.cumsum(0).cumsum(1)
        x0[5,7] : x0 * 2; v0 @ v0.mT -> v0, v1
        """,
    ),
    Fusion(
        "maxima of codes",
        "lower",
        CPU,
        _POOLS_OF_NUMBERS,
        """
        x0[2,3,8,9]u8<256 : F.max_pool2d((x0.float() - 7) * 0.5, 2)
        x0[2,3,8,9]i8 : F.max_pool2d(x0.float() * 0.25, 3, 2, 1)
        x0[2,3,8,9]u8<256 : F.max_pool2d((x0.float() - 200) * 0.125, (3, 2), (1, 2), (1, 0), ceil_mode=True)
        x0[2,6,4]i8 : F.max_pool1d(x0.float() * 2.0, 2); v0 * 3
        x0[1,2,8,9]u8<256 : (x0.float() - 3) * 0.5; F.max_pool2d(v0, 2); v0 + 1 -> v1, v2
        """,
        """
        x0[2,3,8,9]u8<256 : F.max_pool2d((x0.float() - 7) * -0.5, 2)
        x0[2,3,8,9]u8<256 : F.max_pool2d(9 - x0.float(), 2)
        x0[2,3,8,9]u8<256 : F.avg_pool2d((x0.float() - 7) * 0.5, 2)
        x0[2,3,8,9]u8<256 x1[1] : F.max_pool2d((x0.float() - 7) * x1, 2)
        x0[2,3,8,9] : F.max_pool2d(x0 * 0.5, 2)
        x0[2,3,8,9]i8 : F.max_pool2d(x0.float().sin() * 2, 2)
        """,
    ),
    Fusion(
        "limits in front of codes",
        "lower",
        CPU,
        _Clamped(),
        """
        x0[5,7] : ((x0.clamp(0, 6) * 21.18).round() + 0.0).clamp(0, 127).to(torch.uint8)
        x0[5,7] : ((x0.relu() * 30).round() + 0.0).clamp(0, 255).to(torch.uint8)
        x0[n,7] : ((x0.clamp(-1, 1) * 40).round() + 50).clamp(0, 100).to(torch.int8); v0.float() * 0.1
        x0[5,7] : (x0.clamp(-2, 2) * 3).clamp(-4, 4).to(torch.int32)
        """,
        """
        x0[5,7] : ((x0 * 30).round() + 64).clamp(0, 127).to(torch.uint8)
        x0[5,7] : (x0.clamp(0, 2) * -3 + 9).to(torch.int32)
        x0[5,7] : x0.clamp(0, 2); (v0 * 3).clamp(0, 6)
        """,
    ),
    Fusion(
        "codes by one op",
        "lower",
        CPU,
        _Stepwise(),
        """
        x0[5,7] : ((x0 * 30).round() + 64).clamp(0, 127).to(torch.uint8)
        x0[n,7] : ((x0 * 50).round() - 3).clamp(0, 255).to(torch.uint8); (v0.float() + 3) * 0.02
        x0[5,7] : (x0 * 300).round().clamp(-100, 155).add(100).to(torch.uint8); v0.flip(0)
        x0[5,7] : (x0 / (x0 < 1)).round().clamp(0, 127).to(torch.uint8); v0.float() * 2
        """,
        """
        x0[5,7] : ((x0 * 30).round() + 64).clamp(0, 127).to(torch.int8)
        x0[5,7] : (x0 * 30 + 64).clamp(0, 127).to(torch.uint8)
        x0[5,7] : ((x0 * 30).round() + 64).clamp(1, 127).to(torch.uint8)
        x0[5,7] : (x0 * 30).round(); v0.clamp(0, 127).to(torch.uint8); v0 + 1
        """,
    ),
    Fusion(
        "Winograd's filtering",
        "lower",
        CPU,
        _DIRECT,
        """
        x0[2,32,20,22] p0[48,32,3,3] : F.conv2d(x0, p0, None, 1, 1)
        x0[1,64,23,21] p0[64,64,3,3] p1[64] : (F.conv2d(x0, p0, p1, 1, 1) + x0).relu()
        x0[3,24,20,25] p0[40,24,3,3] : F.conv2d(x0 + 100, p0, None, 1, (0, 2))
        x0[1,32,36,36] p0[33,32,3,3] : F.conv2d(x0 - x0.mean(), p0 - p0.mean((2, 3), keepdim=True), None, 1, 1)
        x0[1,32,24,24] p0[64,32,3,3] : F.conv2d((x0 + 40) * 5e36, p0 * 0.01, None, 1, 1)
        x0[1,32,24,24] p0[64,32,3,3] : F.conv2d(x0 * 1e-38, p0, None, 1, 1)
        x0[1,32,24,24] p0[64,32,3,3] : F.conv2d(x0 / (x0 < 3), p0, None, 1, 1)
        x0[1,32,24,24] p0[64,32,3,3] : F.conv2d((x0 - 3).sqrt(), p0, None, 1, 1)
        x0[1,32,24,24] p0[64,32,3,3] : F.conv2d(x0.exp() ** 8, p0, None, 1, 1)
        x0[1,32,24,24] p0[32,32,3,3] : F.conv2d(F.conv2d(x0, p0, None, 1, 1).relu(), p0, None, 1, 1)
        x0[n,32,20,m] p0[48,32,3,3] : F.silu(F.conv2d(x0, p0, None, 1, 1))
        """,
        """
        x0[2,32,20,22] p0[48,32,3,3] : F.conv2d(x0, p0, None, 2, 1)
        x0[2,32,20,22] p0[48,32,3,3] : F.conv2d(x0, p0, None, 1, 1, 2)
        x0[2,32,20,22] p0[48,8,3,3] : F.conv2d(x0, p0, None, 1, 1, 1, 4)
        x0[2,3,20,22] p0[48,3,3,3] : F.conv2d(x0, p0, None, 1, 1)
        x0[2,32,20,22]f16 p0[48,32,3,3]f16 : F.conv2d(x0, p0, None, 1, 1)
        x0[2,32,20,22] p0[32,48,3,3] : F.conv_transpose2d(x0, p0, None, 1, 1)
        """,
    ),
    Fusion(
        "epilogue of a product",
        "fuse",
        CPU,
        replace(CPU, limits=replace(CPU.limits, epilogues=False)),
        """
        x0[5,8] p0[16,8] p1[16] : F.linear(x0, p0, p1).relu()
        x0[6,8] p0[16,8] x1[6,16] : F.linear(x0, p0) * x1.sigmoid()
        x0[2,3,8] p0[16,8] : F.gelu(F.linear(x0, p0))
        x0[3,8] p0[16,8] : F.linear(x0, p0); v0 * 2; v1 + v0 -> v0, v1, v2
        x0[2,3,8,9] p0[4,3,3,3] p1[5,4,3,3] : F.conv2d(F.silu(F.conv2d(x0, p0)), p1)
        x0[2,4,8,9] p0[4,1,3,3] p1[5,4,3,3] : F.conv2d(F.conv2d(x0, p0, groups=4).relu() * 2, p1)
        x0[n,8] p0[16,8] : F.linear(x0, p0).relu() * 2
        """,
        """
        x0[5,8] p0[16,8] : (F.linear(x0, p0).transpose(0, 1) * 2 + 1).contiguous()
        x0[2,3,8] p0[16,8] : F.linear(x0, p0).view(2, 3, 4, 4).transpose(1, 2) * 2
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(x0, p0).relu() + 1
        x0[5,8]bf16 p0[16,8]bf16 p1[16]bf16 : F.silu(F.linear(x0, p0, p1))
        x0[5,8] p0[16,8] : F.linear(x0, p0).sum(1)
        x0[5,8] p0[16,8] x1[1]i64<5 : F.linear(x0, p0)[x1] * 2
        x0[5,8] p0[16,8] x1[1]i64<16 : F.linear(x0, p0).index_select(1, x1) * 2
        x0[1,8] p0[16,8] x1[1]i64<1 : F.linear(x0, p0)[x1] + 1
        x0[5,8] p0[16,8] : F.linear(x0, p0)[1:] * 2
        x0[5,8] p0[5,8] : F.linear(x0, p0).diagonal() * 2
        x0[4,8] p0[16,8] : F.linear(x0, p0).flip(0) + 1
        """,
    ),
    Fusion(
        "loops that share axes",
        "fuse",
        CPU,
        replace(CPU, limits=replace(CPU.limits, largest_group=1)),
        """
        x0[5,7] : x0.softmax(1)
        x0[5,7] : x0.softmax(0)
        x0[5,7] : F.layer_norm(x0, (7,)) * 2
        x0[4,5,7] : x0.softmax(2).sum(1)
        x0[4,5,7] : x0.sum(2).softmax(1).amax(1)
        x0[5,7] : x0.sum(1); x0.amax(1) -> v0, v1
        x0[5,7] : x0 - x0.mean(1, keepdim=True); v0 / v0.std(1, keepdim=True)
        x0[4,6] : x0.sum(1, keepdim=True).exp() * x0.mT.sum(0)[:, None]
        x0[n,7] : x0.log_softmax(1).exp()
        x0[3,5,7] : x0.mean((1, 2), keepdim=True) + x0
        """,
        """
        x0[5,7] : x0.sum(0); x0.sum(1) -> v0, v1
        x0[5,7] : x0.cumsum(0).cumsum(1)
        """,
    ),
    Fusion(
        "reductions inside loops",
        "fuse",
        CPU,
        replace(CPU, limits=replace(CPU.limits, nested_reductions=False)),
        """
        x0[20,5,7] : x0.softmax(2).sum(1)
        x0[20,5,7] : F.layer_norm(x0, (7,)).amax(1)
        x0[16,4,6] : x0.sum(2) * 2; v0.softmax(1); v1.sum(1)
        """,
        "x0[5,7] : x0.softmax(1)",
    ),
    Fusion(
        "passes over a row joined",
        "tile",
        CPU,
        replace(CPU, steps=replace(CPU.steps, join_passes=False)),
        """
        x0[5,70] : x0.softmax(1)
        x0[5,70] x1[5,70] : F.layer_norm(x0 + x1.sin(), (70,))
        x0[5,70] : x0.log_softmax(1)
        x0[n,33] : x0.softmax(1) * 2
        """,
        """
        x0[5,70] : x0.sum(1)
        x0[5,70] : (x0 - x0.amax(1, keepdim=True)).exp().flip(1).sum(1)
        """,
    ),
    Fusion(
        "axes collapsed",
        "tile",
        CPU,
        replace(CPU, steps=replace(CPU.steps, collapse=False)),
        """
        x0[4,5,7] : x0 * 2 + 1
        x0[4,5,7] : x0.sum((1, 2))
        x0[4,5,7] x1[7] : x0 + x1
        x0[4,5,7] : x0.permute(2, 0, 1) * 2
        x0[n,5,7] : x0.relu() + x0
        x0[3,4,5,7] : x0.softmax(1)
        """,
        """
        x0[5,7] : x0[:, ::2].t() + 1
        x0[9] : x0 * 2
        """,
    ),
    Fusion(
        "axes split",
        "tile",
        CPU,
        replace(CPU, steps=replace(CPU.steps, split=False)),
        """
        x0[5,7] : x0.t().reshape(35) + 1
        x0[3,4,6] : x0.transpose(0, 1).reshape(4, 18) + 1
        x0[2,8,6] : x0.view(2, 2, 4, 6).transpose(1, 2).reshape(8, 12).sum(1)
        x0[1,16,3,3] : F.pixel_shuffle(x0, 2) * 2
        x0[12,5] : x0.t().reshape(60).cumsum(0)
        x0[6,4] : x0.repeat_interleave(2, 1) + 1
        """,
        """
        x0[5,7] : x0 * 2
        x0[4,6] : x0.reshape(24).flip(0).reshape(3, 8) * 2
        """,
    ),
    Fusion(
        "small tables written out",
        "fuse",
        CPU,
        _Divided(),
        """
        x0[9,12] x1[4] : x0 * x1.repeat_interleave(3)
        x0[n,5,6] x1[n,3] : x0 + x1.repeat_interleave(2, 1)[:, None]
        x0[2,3,6] x1[2,2] : (x0[:, :, None] * x1.repeat_interleave(3, 1)[:, None, None].expand(2, 3, 5, 6)).sum(2)
        x0[40,6]bf16 x1[2]bf16 : x0 * x1.repeat_interleave(3)
        """,
        """
        x0[9,32] x1[2] : x0 * x1.repeat_interleave(16)
        x0[2,12] x1[4] : x0 * x1.repeat_interleave(3)
        x0[12,9] x1[4] : x0 * x1.repeat_interleave(3)[:, None]
        x0[9,12] x1[9,4] : x0 * x1.repeat_interleave(3, 1)
        """,
    ),
    Fusion(
        "GPU: producers inside",
        "inline",
        GPU,
        replace(GPU, fusion=replace(GPU.fusion, largest_body=0)),
        INSIDE,
        "x0[5,7] : x0.cumsum(0).cumsum(1)",
    ),
    Fusion(
        "GPU: epilogue of a product",
        "fuse",
        GPU,
        replace(GPU, fusion=replace(GPU.fusion, epilogues=False)),
        """
        x0[17,32] p0[48,32] p1[48] : F.linear(x0, p0, p1).relu()
        x0[17,32]f16 p0[48,32]f16 : F.linear(x0, p0) * 2
        x0[17,32] p0[48,32] x1[17,48] : F.linear(x0, p0) * x1.sigmoid()
        """,
        """
        x0[17,32] p0[48,32] x1[1]i64<17 : F.linear(x0, p0)[x1] * 2
        x0[17,32] p0[48,32] : F.linear(x0, p0)[1:] * 2
        """,
    ),
    Fusion(
        "GPU: row computed by a product's programs",
        "prologues",
        GPU,
        replace(GPU, fusion=replace(GPU.fusion, prologues=False)),
        """
        x0[1,64] p0[96,64] p1[64] : F.linear(F.layer_norm(x0, (64,), p1), p0)
        x0[1,64] p0[96,64] x1[1,64] : F.linear(x0 * x1.sigmoid(), p0)
        x0[1,64] p0[96,64] : F.linear(F.rms_norm(x0, (64,)), p0).relu()
        x0[1,64] p0[96,64] : x0.relu() * 2; F.linear(v0, p0)
        """,
        """
        x0[1,64] p0[96,64] : x0.relu() * 2; F.linear(v0, p0) -> v0, v1
        x0[9,64] p0[96,64] : F.linear(F.rms_norm(x0, (64,)), p0).relu()
        x0[1,64] p0[96,64] : F.linear(x0, p0)
        """,
    ),
    Fusion(
        "GPU: siblings in one launch",
        "siblings",
        GPU,
        replace(GPU, fusion=replace(GPU.fusion, sibling_points=0)),
        """
        x0[5,7] x1[9] : x0.sum(1); x1 * 2 -> v0, v1
        x0[5,7] x1[4,3] x2[6] : x0.t() * 2; x1.amax(0); x2.exp() -> v0, v1, v2
        x0[5,7] x1[9] : x0.cumsum(1); x1.relu(); v0.sum(0) -> v0, v1, v2
        """,
        """
        x0[5,7] : x0 @ x0.mT; v0.softmax(1) -> v1
        x0[5,7] : x0.cumsum(0).cumsum(1)
        """,
    ),
    Fusion(
        "GPU: joined products",
        "lower",
        GPU,
        _Apart(H200),
        """
        x0[1,64] p0[64,48] p1[64,48] : x0 @ p0; x0 @ p1; v0 * v1
        x0[1,64] p0[48,64] p1[64,64] p2[48] : F.linear(x0, p0, p2); F.linear(x0, p1); v0.sum() + v1.sum()
        x0[4,64]f16 p0[32,64]f16 p1[32,64]f16 p2[32,64]f16 : F.linear(x0, p0); F.linear(x0, p1); F.linear(x0, p2) -> v0, v1, v2
        """,
        """
        x0[1,64] x1[1,64] p0[64,48] p1[64,48] : x0 @ p0; x1 @ p1 -> v0, v1
        x0[1,64] x1[64,48] p1[64,48] : x0 @ x1; x0 @ p1 -> v0, v1
        """,
    ),
    Fusion(
        "GPU: reductions split",
        "fuse",
        GPU,
        _Whole(H200),
        """
        x0[70001] : x0.sum()
        x0[2,70001] : x0.amax(1) * 2
        x0[300,300] : x0.mean()
        """,
        "x0[500,40] : x0.sum(1)",
    ),
)
