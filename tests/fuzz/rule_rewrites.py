"""For each rewrite of the graph: programs that it must change, and programs just outside of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rewrite:
    """A rule of export/rewrite/rules.py, by name."""

    name: str
    triggers: str
    near: str


REWRITES: tuple[Rewrite, ...] = (
    Rewrite(
        "remove_dead",
        """
        x0[5,6] : x0.max(1)[0]
        x0[5,6] : torch.var_mean(x0, 1)[0]
        x0[2,3,6,6] : F.max_pool2d(x0, 2, return_indices=True)[0]
        """,
        "x0[5] : x0 * 2; v0 + 1",
    ),
    Rewrite(
        "fold",
        """
        x0[5] p0[5] : x0 * (p0 * 2 + 1)
        x0[4,6] p0[6,3] : x0 @ p0.exp()
        x0[5] : x0 + torch.arange(5)
        x0[3,5] p0[5,3] : x0 + p0.t().contiguous()
        x0[7,4] p0[9,4] p1[1]i64<9 : x0 + p0[p1]
        """,
        """
        x0[5] p0[5] : x0 * p0
        x0[5] p0[5] : !p0.add_(1); x0 * p0
        """,
    ),
    Rewrite(
        "merge_views",
        """
        x0[4,6] : x0.reshape(24).reshape(3, 8) + 1
        x0[2,3,4] : x0.permute(1, 2, 0).permute(1, 0, 2) * 2
        x0[1,4] : x0.expand(3, 4).expand(2, 3, 4) * 2
        x0[4,6] : x0.t().permute(1, 0) + 1
        x0[n,6] : x0.reshape(-1).reshape(3, -1) + 1
        x0[2,3,4] : x0.permute(2, 0, 1).permute(1, 2, 0) + 1
        """,
        """
        x0[4,6] : x0.reshape(24).flip(0).reshape(3, 8) + 1
        x0[2,3] : x0.t().reshape(6) + 1
        x0[1,4] : x0.expand(3, 4).reshape(12) + 1
        """,
    ),
    Rewrite(
        "common_subexpressions",
        """
        x0[5] : x0.exp() + x0.exp() * 2
        x0[4,5] : x0.sum(1) + x0.sum(1).relu()
        x0[4,5] p0[5,3] p1[5,3] : x0 @ p0 + (x0 @ p0).sin()
        x0[5] : torch.where(x0 > 0, 0.0, 1.0) + torch.where(x0 > 0, 0.0, 1.0)
        """,
        """
        x0[5] x1[5]bool : torch.where(x1, 0.0, x0) / torch.where(x1, -0.0, x0)
        x0[4,4] : x0.sum(1) + x0.sum(0)
        x0[5,6] : x0.sum(1) + x0.sum(1, dtype=torch.float64)
        """,
    ),
    Rewrite(
        "fold_padding",
        """
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1]), p0)
        x0[1,2,n,6] p0[4,2,3,3] : F.conv2d(F.pad(x0, [1, 1, 2, 2]), p0)
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [0, 1, 2, 0]), p0, stride=2)
        x0[1,2,7] p0[4,2,3] : F.conv1d(F.pad(x0, [2, 0]), p0, padding=1)
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1]).relu() * 3, p0)
        x0[1,3,n,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [0, 1, 2, 0]).sin(), p0, stride=2)
        x0[2,3,8,9] p0[4,3,3,3] : ((F.pad(x0, [1, 1, 1, 1]) * 20).round() + 40).clamp(0, 127).to(torch.uint8); F.conv2d((v0.float() - 40) * 0.05, p0)
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1], value=-2.0).relu(), p0)
        """,
        """
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1], value=1.0), p0)
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1], mode="reflect"), p0)
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1]) + 1, p0)
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1]).exp(), p0)
        x0[2,3,8,9] p0[4,3,3,3] : F.pad(x0, [1, 1, 1, 1]).relu(); F.conv2d(v0, p0); v0.sum() -> v1, v2
        x0[2,3,8,9] x1[10,11] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1]) * x1, p0)
        x0[2,3,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [-1, 1, 1, 1]), p0)
        x0[2,2,8,9] p0[4,3,3,3] : F.conv2d(F.pad(x0, [1, 1, 1, 1, 0, 1]), p0)
        x0[2,3,8,9] p0[3,4,3,3] : F.conv_transpose2d(F.pad(x0, [1, 1, 1, 1]), p0)
        """,
    ),
    Rewrite(
        "distribute_scale",
        """
        x0[2,3,6,7] p0[4,3,3,3] p1[4] p2[1,4,1,1] : (F.conv2d(x0, p0) + p1.view(1, 4, 1, 1)) * p2
        x0[5,6] p0[6,4] p1[4] p2[4] : (x0 @ p0 + p1) * p2
        x0[5,6] p0[6,4] p1[4] : (x0 @ p0 + p1) * 0.5
        """,
        """
        x0[5,6] p0[6,4] p1[5,1] p2[4] : (x0 @ p0 + p1) * p2
        x0[5,6] p0[6,4] p1[4] p2[4] : x0 @ p0 + p1; v0 * p2 -> v0, v1
        x0[5,6] p1[6] p2[6] : (x0 + p1) * p2
        x0[5,6] p0[6,4] p1[4] : (x0 @ p0 + p1) * 1e-30
        """,
    ),
    Rewrite(
        "fold_scale",
        """
        x0[2,3,6,7] p0[4,3,3,3] p1[4] : F.conv2d(x0, p0) * p1.view(1, 4, 1, 1)
        x0[2,3,6,7] p0[4,3,3,3] p1[4] p2[4] : F.conv2d(x0, p0, p2) * p1.view(1, 4, 1, 1)
        x0[5,6] p0[6,4] p1[4] : (x0 @ p0) * p1
        x0[5,6] p0[4,6] : F.linear(x0, p0) * 0.25
        x0[2,3,6,7] p0[3,4,3,3] p1[4] : F.conv_transpose2d(x0, p0) * p1.view(1, 4, 1, 1)
        x0[2,3,6,7] p0[4,3,3,3] p1[4] p2[4] p3[4] : F.batch_norm(F.conv2d(x0, p0), p1, p2.abs() + 0.1, p3, p1)
        x0[5,6] p0[4,6] p1[4] : F.linear(x0, p0) * 0.0 + p1
        """,
        """
        x0[5,6] p0[6,4] p1[5,1] : (x0 @ p0) * p1
        x0[4,4] p0[4,4] p1[4,1] : (x0 @ p0) * p1
        x0[5,6] p0[6,4] p1[4] : x0 @ p0; v0 * p1 -> v0, v1
        x0[2,4,6,7] p0[4,2,3,3] p1[4] : F.conv_transpose2d(x0, p0, groups=2) * p1.view(1, 4, 1, 1)
        x0[4,3,6,4] p0[4,3,3,3] p1[4,1,1,1] : F.conv2d(x0, p0) * p1
        x0[5,6] p0[6,4] : (x0 @ p0) * 0.0
        x0[5,6] p0[6,4] : (x0 @ p0) * 1e-30 * 1e25
        x0[5,6] p0[6,4] : (x0 * 1e-25) @ (p0 * 1e30) * 1e12
        """,
    ),
    Rewrite(
        "merge_shifts",
        """
        x0[5,6] p0[6,4] p1[4] p2[4] : (x0 @ p0 + p1) + p2
        x0[2,3,6,7] p0[4,3,3,3] p1[4] : F.conv2d(x0, p0) + p1.view(1, 4, 1, 1) + 0.5
        """,
        """
        x0[5,6] p1[6] p2[6] : (x0 + p1) + p2
        x0[5,6] p0[6,4] p1[4] p2[4] : x0 @ p0 + p1; v0 + p2 -> v0, v1
        """,
    ),
    Rewrite(
        "fold_shift",
        """
        x0[2,3,6,7] p0[4,3,3,3] p1[4] : F.conv2d(x0, p0) + p1.view(1, 4, 1, 1)
        x0[2,3,6,7] p0[4,3,3,3] p1[4] p2[4] : F.conv2d(x0, p0, p2) + p1.view(1, 4, 1, 1)
        x0[2,3,7] p0[4,3,3] p1[4] p2[1] : F.conv1d(x0, p0, p1) + p2
        """,
        """
        x0[2,3,6,7] p0[4,3,3,3] p1[5] : F.conv2d(x0, p0) + p1
        x0[4,3,6,4] p0[4,3,3,3] p1[4,1,1,1] : F.conv2d(x0, p0) + p1
        x0[5,6] p0[6,4] p1[4] : x0 @ p0 + p1
        """,
    ),
    Rewrite(
        "recognise_attention",
        """
        x0[2,4,7,8] x1[2,4,9,8] x2[2,4,9,5] : (x0 @ x1.mT).softmax(-1) @ x2
        x0[2,4,7,8] x1[2,4,9,8] x2[2,4,9,5] x3[7,9] : ((x0 @ x1.mT) * 0.25 + x3).softmax(-1) @ x2
        x0[2,4,7,8] x1[2,4,9,8] x2[2,4,9,5] x3[7,9]bool : (x0 @ x1.mT).masked_fill(x3, -1e30).softmax(-1) @ x2
        x0[2,7,8] x1[2,9,8] x2[2,9,5] : (x0 * 0.5 @ x1.mT / 3).softmax(-1) @ x2
        x0[n,3,7,8] x1[n,3,9,8] x2[n,3,9,5] : (x0 @ x1.mT).softmax(-1) @ x2
        """,
        """
        x0[2,4,7,8]f16 x1[2,4,9,8]f16 x2[2,4,9,5]f16 : ((x0 @ x1.mT).float() * 0.3).softmax(-1).half() @ x2
        x0[2,4,7,8] x1[2,4,9,8] x2[2,4,9,5] : (x0 @ x1.mT).softmax(-1); v0 @ x2 -> v0, v1
        x0[2,4,7,8] x1[2,4,9,8] x2[2,4,7,5] : (x0 @ x1.mT).softmax(-2).mT @ x2
        x0[2,4,7,8] x1[2,4,9,8] x2[2,4,9,5] x3[7,9]bool : (x0 @ x1.mT).masked_fill(x3, 2.0).softmax(-1) @ x2
        x0[2,4,7,8] x1[2,4,9,8] x2[2,4,9,5] : (x0 @ x1.mT).exp() @ x2
        x0[7,8] x1[9,8] x2[9,5] : (x0 @ x1.mT).softmax(-1) @ x2
        """,
    ),
    Rewrite(
        "write_parts",
        """
        x0[4,6] x1[1]i64<4 p0[3,4,6] : !p0[1].index_copy_(0, x1, x0[:1]); p0[1] * 2
        x0[4,6] p0[3,4,6] : !p0[2].copy_(x0); p0 * 2
        x0[4,6] p0[3,4,6] : !p0[1, 1:3].copy_(x0[1:3]); p0.sum(0)
        x0[1,6] x1[1]i64<4 p0[3,4,6] : !p0[1].t().index_copy_(1, x1, x0.t()); p0 + 1
        x0[4,6] x1[1]i64<4 p0[1,4,6] : !p0[0].index_copy_(0, x1, x0[:1]); p0[0] * 2
        x0[4,6] x1[1]i64<6 p0[4,6] : !p0.t().index_copy_(0, x1, x0[:, :1].t()); p0 * 2
        x0[4,5,6] x1[2]i64<4 p0[1,5,4,6] : !p0[0].transpose(0, 1)[x1] = x0[:2]; p0 * 2
        x0[3,4,6] x1[1,6] x2[1]i64<4 : x0 * 2; !v0[1].index_copy_(0, x2, x1); v0 + 1
        """,
        """
        x0[3,4,6] : x0 * 2; !v0[1].mul_(3); v0 + 1
        x0[4,4] x1[1]i64<4 p0[4,4] : p0.t().index_copy(0, x1, x0[:1]) * 2
        x0[3,6] x1[1,6] : torch.cat([x0[:1], x1, x0[1:2]]) * 2
        x0[3,6] x1[1,6] : torch.cat([x0[:1], x1, x1]) * 2
        """,
    ),
    Rewrite(
        "turn_picked_columns",
        """
        x0[3,5,1] p0[4,6,5] x1[3]i64<4 : p0[x1] @ x0
        x0[3,5] p0[4,5,6] x1[3]i64<4 : p0[x1].mT @ x0[:, :, None]
        """,
        """
        x0[3,5,2] p0[4,6,5] x1[3]i64<4 : p0[x1] @ x0
        x0[3,1,5] p0[4,5,6] x1[3]i64<4 : x0 @ p0[x1]
        x0[3,5,1] p0[3,6,5] : p0 @ x0
        """,
    ),
    Rewrite(
        "permute_as_reshape",
        """
        x0[1,5,3] : x0.permute(1, 0, 2) * 2
        x0[4,1,3] : x0.transpose(0, 1).relu()
        x0[n,1,3] : x0.transpose(0, 1) + 1
        """,
        """
        x0[2,5,3] : x0.permute(1, 0, 2) * 2
        x0[1,5,3] : x0.permute(0, 2, 1) * 2
        """,
    ),
)
