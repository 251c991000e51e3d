"""A classifier of points on two spirals, trained by a C++ program, and by eager PyTorch beside it.

./dev demo train runs this; what it makes lies under build/demo/train.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import hardtack
from examples.common import build_example, console, folder_of, run, step

EPOCHS, BATCH, RATE, COUNT = 60, 32, 0.02, 300


def main() -> None:
    program = step("build the runtime and the C++ program", lambda: build_example("train"))
    samples = step("make points on two spirals", write_samples)
    bundle = step("export train and predict", export, spinner=False)
    losses, right = step("train with Hardtack, in C++", lambda: train(program, bundle))
    eager, theirs = step("train with eager PyTorch", lambda: train_eager(*samples))
    for k, (loss, other) in enumerate(zip(losses, eager, strict=True)):
        console.print(f"epoch {10 * (k + 1):3d}: loss {loss:.6f}, eager's {other:.6f}")
    console.print(f"{right} of {COUNT} points are in their class, eager's {theirs}")
    if any(abs(a - b) > 0.02 for a, b in zip(losses, eager, strict=True)) or abs(right - theirs) > 3:
        sys.exit("error: eager PyTorch learns something else")


def make_model() -> nn.Module:
    """Points f32 [n, 2] to logits f32 [n, 2], with the same weights each time."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))


def samples_file() -> Path:
    return folder_of("train") / "samples.f32"


def write_samples() -> tuple[Tensor, Tensor]:
    """Points [COUNT, 2] and their classes [COUNT], in a mixed order; also as the file that the program reads."""
    generator = torch.Generator().manual_seed(1)
    at = torch.rand(COUNT, generator=generator) * 9 + 1
    classes = torch.arange(COUNT) % 2
    angle = at + classes * torch.pi
    points = torch.stack([angle.cos(), angle.sin()], 1) * (at / 10)[:, None]
    points += torch.randn(COUNT, 2, generator=generator) * 0.01
    rows = torch.cat([points, classes[:, None].float()], 1)
    rows.numpy().tofile(samples_file())
    return points, classes


def export() -> Path:
    """The bundle with the entry points train and predict, of any batch up to 1024."""
    model, path, batch = make_model(), folder_of("train") / "spirals.pkg", Dim("batch", max=1024)
    training = hardtack.training_step(
        model,
        (torch.randn(BATCH, 2),),
        (torch.randint(0, 2, (BATCH,)),),
        loss=F.cross_entropy,
        optimizer=torch.optim.Adam(model.parameters(), lr=torch.tensor(RATE)),
        dynamic_shapes=({0: batch}, {0: batch}),
    )
    hardtack.export(
        {"train": training, "predict": model.eval()},
        {"train": training.args, "predict": (torch.randn(BATCH, 2),)},
        path=path,
        dynamic_shapes={"train": training.dynamic_shapes, "predict": ({0: batch},)},
        targets=["cpu:x86-64-v3"],
    )
    return path


def train(program: Path, bundle: Path) -> tuple[list[float], int]:
    """The losses that the program prints, and how many points are in their class behind the last epoch."""
    said = run(program, bundle, samples_file(), "--epochs", str(EPOCHS), "--batch", str(BATCH), "--rate", str(RATE))
    losses = [float(x) for x in re.findall(r"^epoch \d+ loss ([0-9.]+)$", said, re.MULTILINE)]
    (right,) = re.findall(r"^right (\d+) of", said, re.MULTILINE)
    return losses, int(right)


def train_eager(points: Tensor, classes: Tensor) -> tuple[list[float], int]:
    """The same in eager mode."""
    model, losses = make_model(), list[float]()
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = RATE * (1 - epoch / EPOCHS)
        total = 0.0
        for x, y in zip(points.split(BATCH), classes.split(BATCH), strict=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += float(loss.detach()) * len(x)
        if epoch % 10 == 9:
            losses.append(total / len(points))
    with torch.no_grad():
        return losses, int((model(points).argmax(1) == classes).sum())


if __name__ == "__main__":
    main()
