"""Real pictures and speech from installed packages, as tensors."""

from __future__ import annotations

import importlib.util
import os
import wave
from pathlib import Path

import numpy as np
import torch

SPEECH = Path(os.environ.get("HARDTACK_TEST_SPEECH", "/usr/share/sounds/alsa/Front_Center.wav"))
_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
_STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)


def package_folder(name: str) -> Path:
    """Where an installed package lies, without importing it. ModuleNotFoundError if it is not installed."""
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    if not places:
        raise ModuleNotFoundError(f"the package {name} is not installed", name=name)
    return Path(places[0])


def photo(name: str, size: int | None = None) -> torch.Tensor:
    """A photograph of scikit-image as f32 [1, 3, H, W] from 0 to 1; resized to a square of `size` if given."""
    from PIL import Image

    picture = Image.open(package_folder("skimage") / "data" / f"{name}.png").convert("RGB")
    if size is not None:
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)
    return torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1)[None].float() / 255


def imagenet(x: torch.Tensor) -> torch.Tensor:
    """Normalised by the mean and deviation of ImageNet."""
    return (x - _MEAN) / _STD


def speech(rate: int = 16000) -> torch.Tensor:
    """A voice saying "front center" (from Debian's alsa-utils), f32 mono at `rate` Hz. FileNotFoundError if not
    there.
    """
    from scipy.signal import resample_poly

    with wave.open(str(SPEECH)) as source:
        raw = source.readframes(source.getnframes())
        samples = np.frombuffer(raw, "<i2").reshape(-1, source.getnchannels())[:, 0] / 32768.0
        kilo = source.getframerate() // 1000
    return torch.from_numpy(resample_poly(samples, rate // 1000, kilo).astype("float32"))


def text_line(text: str, width: int) -> torch.Tensor:
    """Black text on white as f32 [1, 1, 64, width] from -1 to 1."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("L", (width, 64), 255)
    ImageDraw.Draw(picture).text((6, 8), text, fill=0, font=ImageFont.load_default(40))
    return ((torch.from_numpy(np.asarray(picture).copy()).float() / 255) - 0.5)[None, None] / 0.5
