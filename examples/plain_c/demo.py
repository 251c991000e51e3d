"""Where a face is in a photograph: MTCNN's first network in a program of plain C, and eager PyTorch beside it.

./dev demo plain_c runs this; what it makes lies under build/demo/plain_c.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from examples.common import build_example, console, folder_of, kept, package_folder, run, step

SMALLEST, LARGEST = 24, 2048
Place = tuple[int, int, int, float]


class FaceFinder(nn.Module):
    """u8 pixels [h, w, 3] to the probability of a face f32 [rows, columns]; the layers are those of facenet-pytorch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 10, 3), nn.PReLU(10)
        self.conv2, self.prelu2 = nn.Conv2d(10, 16, 3), nn.PReLU(16)
        self.conv3, self.prelu3 = nn.Conv2d(16, 32, 3), nn.PReLU(32)
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = (pixels.permute(2, 0, 1)[None].float() - 127.5) / 128
        x = nn.functional.max_pool2d(self.prelu1(self.conv1(x)), 2, 2, ceil_mode=True)
        x = self.prelu3(self.conv3(self.prelu2(self.conv2(x))))
        return torch.softmax(self.conv4_1(x), dim=1)[0, 1]


def main() -> None:
    photo = step("read the photograph", write_photo)
    program = step("build the runtime and the C program", lambda: build_example("plain_c"))
    module = step("load the trained weights", load_model)
    bundle = step("export the model", lambda: export(module), spinner=False)
    ours = step("find the face with Hardtack, in C", lambda: find(program, bundle))
    eager = step("find the face with eager PyTorch", lambda: find_eager(module, photo))
    report(ours, eager)


def report(ours: Place, eager: Place) -> None:
    """Prints what was found; ends the program where eager PyTorch finds something else."""
    console.print("\nastronaut: a face at x {}, y {}, {} pixels wide, with probability {:.6f}".format(*ours))
    if ours[:3] != eager[:3] or abs(ours[3] - eager[3]) > 1e-5:
        sys.exit(f"error: eager PyTorch finds {eager}")
    console.print("eager PyTorch finds the same")


def photo_file() -> Path:
    return folder_of("plain_c") / "astronaut.ppm"


def write_photo() -> np.ndarray[Any, Any]:
    """scikit-image's `astronaut`, u8 [512, 512, 3], also as a PPM file."""
    from PIL import Image

    image = Image.open(package_folder("skimage") / "data" / "astronaut.png").convert("RGB")
    pixels = np.asarray(image)
    photo_file().write_bytes(f"P6\n{image.width} {image.height}\n255\n".encode() + pixels.tobytes())
    return pixels


def load_model() -> FaceFinder:
    module = FaceFinder()
    module.load_state_dict(torch.load(package_folder("facenet_pytorch") / "data" / "pnet.pt"))
    return module.eval()


def export(module: FaceFinder) -> Path:
    import hardtack

    height, width = (torch.export.Dim(name, min=SMALLEST, max=LARGEST) for name in ("height", "width"))
    example = torch.zeros(64, 48, 3, dtype=torch.uint8)

    def make(path: Path) -> None:
        hardtack.export(module, (example,), path=path, dynamic_shapes=({0: height, 1: width},), targets=("cpu:native",))

    return kept(folder_of("plain_c") / "find-face.pkg", "plain_c", make)


def find(program: Path, bundle: Path) -> Place:
    """(x, y, size, probability), as the C program prints it."""
    printed = run(program, bundle, photo_file())
    found = re.fullmatch(r"x (\d+) y (\d+) size (\d+) probability ([\d.]+)\n", printed)
    assert found is not None, printed
    return int(found[1]), int(found[2]), int(found[3]), float(found[4])


def find_eager(module: FaceFinder, photo: np.ndarray[Any, Any]) -> Place:
    """The same in eager PyTorch."""
    best: Place = (0, 0, 0, 0.0)
    for factor in range(2, min(photo.shape[:2]) // SMALLEST + 1):
        h, w = photo.shape[0] // factor, photo.shape[1] // factor
        blocks = photo[: h * factor, : w * factor].reshape(h, factor, w, factor, 3).astype(np.int64)
        small = (blocks.sum((1, 3)) + factor * factor // 2) // (factor * factor)
        with torch.inference_mode():
            likely = module(torch.from_numpy(small.astype(np.uint8)))
        at, columns = int(likely.argmax()), likely.shape[1]
        if likely.flatten()[at] > best[3]:
            best = (at % columns * 2 * factor, at // columns * 2 * factor, 12 * factor, float(likely.flatten()[at]))
    return best


if __name__ == "__main__":
    main()
