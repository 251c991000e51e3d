"""Convolutional architectures of the benchmark, with random weights: ResNet-50, MobileNetV2, a small diffusion UNet."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution that keeps the size at stride 1, without bias, and its batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_in", nonlinearity="relu")
    return [conv, nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a skip connection (He et al. 2015, figure 5; the stride is in the 3x3)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.branch = nn.Sequential(
            *conv_bn(inputs, width, 1),
            nn.ReLU(),
            *conv_bn(width, width, 3, stride),
            nn.ReLU(),
            *conv_bn(width, outputs, 1),
        )
        same = inputs == outputs and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(*conv_bn(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch(x) + self.skip(x))


class ResNet50(nn.Module):
    """(B, 3, 224, 224) -> (B, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_bn(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, depth in enumerate((3, 4, 6, 3)):
            width = 64 << stage
            for block in range(depth):
                layers.append(Bottleneck(channels, width, 2 if stage and not block else 1))
                channels = 4 * width
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, 1000)

    def forward(self, x: Tensor) -> Tensor:
        pooled = F.adaptive_avg_pool2d(self.features(x), 1)
        return self.classifier(torch.flatten(pooled, 1))


class InvertedResidual(nn.Module):
    """Expand, depthwise, project (Sandler et al. 2018, table 1)."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers = [] if expansion == 1 else [*conv_bn(inputs, hidden, 1), nn.ReLU6()]
        layers += [*conv_bn(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6(), *conv_bn(hidden, outputs, 1)]
        self.branch = nn.Sequential(*layers)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.adds else self.branch(x)


class MobileNetV2(nn.Module):
    """(B, 3, 224, 224) -> (B, 1000)."""

    # expansion, outputs, repeats, first stride (Sandler et al. 2018, table 2)
    STAGES = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*conv_bn(3, 32, 3, 2), nn.ReLU6()]
        channels = 32
        for expansion, outputs, repeats, first_stride in self.STAGES:
            for k in range(repeats):
                layers.append(InvertedResidual(channels, outputs, 1 if k else first_stride, expansion))
                channels = outputs
        self.features = nn.Sequential(*layers, *conv_bn(channels, 1280, 1), nn.ReLU6())
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class ResidualBlock(nn.Module):
    """Two normalised convolutions, the time embedding added between them (Ho et al. 2020)."""

    def __init__(self, inputs: int, outputs: int, embedding: int) -> None:
        super().__init__()
        self.norm_in, self.conv_in = nn.GroupNorm(32, inputs), nn.Conv2d(inputs, outputs, 3, padding=1)
        self.shift = nn.Linear(embedding, outputs)
        self.norm_out, self.conv_out = nn.GroupNorm(32, outputs), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        h = self.conv_in(F.silu(self.norm_in(x)))
        h = h + self.shift(F.silu(embedding))[:, :, None, None]
        return self.skip(x) + self.conv_out(F.silu(self.norm_out(h)))


class SelfAttention2d(nn.Module):
    """Attention over the pixels."""

    def __init__(self, channels: int, heads: int = 8) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, channels)
        self.qkv, self.project = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        tokens = self.norm(x).flatten(2).transpose(1, 2)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(tokens).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.project(mixed).transpose(1, 2).reshape(batch, channels, height, width)


class UNet(nn.Module):
    """A diffusion model's network: x (B, 4, 64, 64), time (B,) -> noise (B, 4, 64, 64).

    Three resolutions of 96, 192 and 384 channels, two blocks down and three up in each, attention at the lowest.
    """

    def __init__(self, base: int = 96, multipliers: tuple[int, ...] = (1, 2, 4), blocks: int = 2) -> None:
        super().__init__()
        embedding = 4 * base
        self.time = nn.Sequential(nn.Linear(base, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.first = nn.Conv2d(4, base, 3, padding=1)
        self.num_angles = base // 2
        widths = [base * m for m in multipliers]
        kept, channels = [base], base
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        for level, width in enumerate(widths):
            lowest = level == len(widths) - 1
            for _ in range(blocks):
                self.down.append(stage(channels, width, embedding, lowest))
                channels = width
                kept.append(channels)
            if not lowest:
                self.down.append(nn.Conv2d(channels, channels, 3, 2, 1))
                kept.append(channels)
        self.middle = nn.ModuleList(
            [stage(channels, channels, embedding, True), stage(channels, channels, embedding, False)]
        )
        for level, width in reversed(list(enumerate(widths))):
            for _ in range(blocks + 1):
                self.up.append(stage(channels + kept.pop(), width, embedding, level == len(widths) - 1))
                channels = width
            if level:
                self.up.append(nn.Conv2d(channels, channels, 3, padding=1))
        self.last = nn.Sequential(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, 4, 3, padding=1))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        # In float32 whatever the weights are: an angle of hundreds has no digits left behind the point in bfloat16.
        steps = torch.arange(self.num_angles, dtype=torch.float32, device=time.device)
        angles = time[:, None].float() * torch.exp(steps * (-math.log(10000) / self.num_angles))
        embedding = self.time(torch.cat([angles.cos(), angles.sin()], -1).to(x.dtype))
        x = self.first(x)
        kept = [x]
        for layer in self.down:
            x = apply(layer, x, embedding)
            kept.append(x)
        for layer in self.middle:
            x = apply(layer, x, embedding)
        for layer in self.up:
            if isinstance(layer, nn.Conv2d):
                x = layer(F.interpolate(x, scale_factor=2.0, mode="nearest"))
            else:
                x = apply(layer, torch.cat([x, kept.pop()], 1), embedding)
        return self.last(x)


def stage(inputs: int, outputs: int, embedding: int, attention: bool) -> nn.ModuleList:
    """A residual block, and attention behind it where asked for."""
    block = ResidualBlock(inputs, outputs, embedding)
    return nn.ModuleList([block, SelfAttention2d(outputs)] if attention else [block])


def apply(layer: nn.Module, x: Tensor, embedding: Tensor) -> Tensor:
    """A stage on x and the time embedding, or a convolution on x."""
    if not isinstance(layer, nn.ModuleList):
        return layer(x)
    x = layer[0](x, embedding)
    return layer[1](x) if len(layer) > 1 else x
