"""Inputs for commands: from .npy files, or made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.cli.common import WrongUse
from hardtack.runtime import NUMPY_DTYPE, Entry, Model, Size


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """NAME=VALUE texts as a dict. Raises WrongUse."""
    out: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise WrongUse(f"{option} {text!r} is not NAME=VALUE")
        if name in out:
            raise WrongUse(f"{option} names {name!r} twice")
        out[name] = value
    return out


def load_arrays(files: Mapping[str, str]) -> dict[str, np.ndarray[Any, Any]]:
    """The array of every .npy file, by input name. Raises WrongUse."""
    out: dict[str, np.ndarray[Any, Any]] = {}
    for name, file in files.items():
        if not Path(file).is_file():
            raise WrongUse(f"input {name!r}: there is no file {file!r}")
        try:
            loaded = np.load(file, allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise WrongUse(f"input {name!r}: {file!r} is not a .npy file: {error}") from None
        if not isinstance(loaded, np.ndarray):
            raise WrongUse(f"input {name!r}: {file!r} is an archive, not a .npy file")
        out[name] = loaded
    return out


def pick_entry(model: Model, name: str | None) -> Entry:
    """The entry point `name`, or the only one. Raises WrongUse."""
    known = ", ".join(model.entries)
    if name is None and len(model.entries) > 1:
        raise WrongUse(f"the bundle has several entry points, name one with --entry: {known}")
    if name is not None and name not in model.entries:
        raise WrongUse(f"the bundle has no entry point {name!r}; it has: {known}")
    return model.entries[name] if name is not None else next(iter(model.entries.values()))


def made_up(entry: Entry, sizes: Mapping[str, int], given: Mapping[str, Any]) -> dict[str, Any]:
    """Random inputs where none is given: floats from a normal distribution, integers and bools 0 or 1.

    Symbols take `sizes`, else the smallest size that is at least 1. Raises WrongUse for an unknown symbol, or an input
    whose sizes are more than a symbol.
    """
    unknown = [s for s in sizes if s not in entry.syms]
    if unknown:
        raise WrongUse(f"{entry.name} has no symbol {unknown[0]!r}; it has: {', '.join(entry.syms) or 'none'}")
    rng = np.random.default_rng(0)
    out = dict(given)
    for spec in entry.inputs:
        if spec.name in given:
            continue
        shape = [n if isinstance(n, int) else _size(n, entry, sizes, spec.name) for n in spec.shape]
        dtype = np.dtype(NUMPY_DTYPE[spec.dtype])
        if spec.dtype == "bf16":
            out[spec.name] = (rng.standard_normal(shape).astype("f4").view("u4") >> 16).astype("u2")
        elif spec.dtype.startswith("f8"):
            out[spec.name] = rng.integers(0x20, 0x40, shape).astype("u1")  # numbers, not the smallest
        elif dtype.kind == "f":
            out[spec.name] = rng.standard_normal(shape).astype(dtype)
        else:
            out[spec.name] = rng.integers(0, 2, shape).astype(dtype)
    return out


def _size(size: Size, entry: Entry, sizes: Mapping[str, int], name: str) -> int:
    if size not in entry.syms:
        raise WrongUse(f"input {name!r} has a dimension {size}, which cannot be made up; give it with -i")
    return sizes.get(size, max(1, size.lo))
