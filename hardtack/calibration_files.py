"""Files with inputs of a model: .npz, .safetensors and .pt."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.weights import read_foreign
from hardtack.exporter import InputSpecError
from hardtack.exporter.dtypes import TORCH_DTYPE
from hardtack.options import CALIBRATION_SUFFIXES

_HOW = "the first dimension of each array of a .npz or .safetensors file counts the examples"


def read_examples(path: str | os.PathLike[str]) -> Any:
    """What Options.calibration may be, from a file: of .npz and .safetensors an array for each parameter of forward, by
    name, with a dimension more in front, which counts the examples; of .pt what torch.save was given, tensors in lists,
    tuples and dicts. Raises InputSpecError for a file that is not there, or is none of these."""
    file = Path(path)
    if file.suffix not in CALIBRATION_SUFFIXES:
        raise InputSpecError(
            f"calibration file {str(file)!r} is of no kind that is known",
            fix=f"make it {', '.join(CALIBRATION_SUFFIXES)}",
        )
    if not file.is_file():
        raise InputSpecError(f"there is no calibration file {str(file)!r}", fix="name one that is there")
    try:
        if file.suffix == ".pt":
            return torch.load(file, map_location="cpu", weights_only=True)
        arrays = _npz(file) if file.suffix == ".npz" else _safetensors(file)
    except (
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        LoadError,
        zipfile.BadZipFile,
        pickle.UnpicklingError,
    ) as error:
        said = str(error).partition("\n")[0]
        raise InputSpecError(
            f"calibration file {str(file)!r} cannot be read as {file.suffix}: {said}",
            fix="write it with numpy.savez, safetensors or torch.save; of tensors, lists, tuples and dicts only",
        ) from None
    return _examples(file, arrays)


def _npz(file: Path) -> dict[str, torch.Tensor]:
    with np.load(file, allow_pickle=False) as found:
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
        return {name: torch.from_numpy(found[name]) for name in found.files}


def _safetensors(file: Path) -> dict[str, torch.Tensor]:
    found = read_foreign(memoryview(file.read_bytes()), str(file))
    return {name: torch.from_numpy(c.array.copy()).view(TORCH_DTYPE[c.dtype]) for name, c in found.items()}


def _examples(file: Path, arrays: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """A dict for each number of the first dimension."""
    sizes = {name: t.shape[0] if t.dim() else None for name, t in arrays.items()}
    counts = set(sizes.values())
    if None in counts or len(counts) > 1:
        said = ", ".join(f"{name} {'none' if n is None else n}" for name, n in sizes.items())
        raise InputSpecError(
            f"the arrays of calibration file {str(file)!r} have different numbers of examples: {said}", fix=_HOW
        )
    count = next(iter(counts), 0) or 0
    return [{name: t[k] for name, t in arrays.items()} for k in range(count)]
