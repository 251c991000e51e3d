"""Small models that are trained, with a batch and a loss each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Case = tuple[nn.Module, tuple[Any, ...], tuple[Any, ...], Callable[..., Tensor]]


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cells = kind(6, 7, batch_first=True)
        self.out = nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(x)[0][:, -1])


class Tokens(nn.Module):
    """Embedding, a transformer's block, the mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 8, padding_idx=0)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)
        self.out = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.block(self.words(x)).mean(1))


class Causal(nn.Module):
    """Attention as decoders have it, with weights that are tied."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8)
        self.qkv = nn.Linear(8, 24, bias=False)
        self.norm = nn.RMSNorm(8)
        self.head = nn.Linear(8, 9, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.words(x)
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.qkv(self.norm(h)).chunk(3, -1))
        h = h + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return self.head(h).transpose(1, 2)


class Branches(nn.Module):
    """A parameter that is read twice, an unused path of a maximum, a part that is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.randn(5))
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.out = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.maximum(self.frozen(x) * self.shift, x - self.shift)
        return self.out(torch.where(h > 0, h.abs().sqrt(), h.exp() - 1).cumsum(-1))


def _classes(count: int = 4) -> tuple[Tensor]:
    return (torch.randint(0, count, (5,)),)


def _images(size: int = 8) -> tuple[Tensor]:
    return (torch.randn(5, 3, size, size),)


def cases() -> dict[str, Case]:
    """Made anew at each call, the same ones each time."""
    torch.manual_seed(0)
    flat = (torch.randn(5, 8),)
    bce, smooth = F.binary_cross_entropy_with_logits, F.smooth_l1_loss
    conv = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=2), nn.SiLU(), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    pools = nn.Sequential(
        nn.Conv2d(3, 4, 3, dilation=2), nn.AvgPool2d(2), nn.ConvTranspose2d(4, 4, 3, 2, 1, 1), nn.GroupNorm(2, 4),
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(36, 4),
    )  # fmt: skip
    signal = nn.Sequential(
        nn.Conv1d(3, 6, 4, 2), nn.LeakyReLU(), nn.MaxPool1d(2, 1), nn.AdaptiveAvgPool1d(1), nn.Flatten()
    )
    mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    norms = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4), nn.Tanh())
    gates = nn.Sequential(nn.Linear(8, 16), nn.GLU(), nn.Softplus(), nn.PReLU(), nn.Linear(8, 4), nn.Softmax(-1))
    return {
        "mlp": (mlp, flat, _classes(), F.cross_entropy),
        "norms": (norms, flat, (torch.randn(5, 4),), F.mse_loss),
        "gates": (gates, flat, (torch.rand(5, 4),), smooth),
        "convolutions": (conv, _images(), _classes(), F.cross_entropy),
        "pools": (pools, _images(11), _classes(), F.cross_entropy),
        "signal": (signal, (torch.randn(5, 3, 17),), (torch.rand(5, 6).round(),), bce),
        "lstm": (Recurrent(nn.LSTM), (torch.randn(5, 3, 6),), _classes(), F.cross_entropy),
        "gru": (Recurrent(nn.GRU), (torch.randn(5, 3, 6),), _classes(), F.cross_entropy),
        "tokens": (Tokens(), (torch.randint(0, 11, (5, 3)),), _classes(), F.cross_entropy),
        "causal": (Causal(), (torch.randint(0, 9, (2, 5)),), (torch.randint(0, 9, (2, 5)),), F.cross_entropy),
        "branches": (Branches(), (torch.randn(5, 5),), _classes(), F.cross_entropy),
        "batch norm alone": (nn.BatchNorm1d(8), flat, (torch.randn(5, 8),), F.l1_loss),
        "double": (nn.Linear(8, 3).double(), (torch.randn(5, 8).double(),), (torch.randn(5, 3).double(),), F.mse_loss),
    }
