"""SPEC: where a command finds the PyTorch model that it is about."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.cli.common import WrongUse
from hardtack.options import CALIBRATION_SUFFIXES
from hardtack.plugins import Plugin

HELP = """SPEC is a .pt2 file written by torch.export.save, or MODULE:FUNCTION (or FILE.py:FUNCTION), a function
without arguments that returns (module, args), (module, args, kwargs) or (module, args, kwargs, dynamic_shapes)."""


@dataclass(frozen=True)
class Spec:
    """What hardtack.export takes."""

    module: Any
    args: Any
    kwargs: Mapping[str, Any]
    dynamic_shapes: Any


def load_spec(text: str, plugins: Sequence[Plugin | str] | None) -> Spec:
    """The model that `text` names. plugins: Options.plugins, loaded first: a file may hold ops that only their packages
    define. Raises WrongUse, which says what is missing, and PluginError."""
    if text.endswith(".pt2"):
        from hardtack.extending import load_plugins

        load_plugins(plugins)
        return _load_pt2(text)
    return _from_result(text, _function(text))


def load_calibration(text: str) -> Any:
    """What Options.calibration takes: the path of a file, or what the function gives that `text` names. Raises
    WrongUse, which says what is missing."""
    if not text.endswith(CALIBRATION_SUFFIXES):
        return _function(text, "--calibration", ", ".join(CALIBRATION_SUFFIXES))()
    if not Path(text).is_file():
        raise WrongUse(f"--calibration: there is no file {text!r}")
    return text


def _function(text: str, option: str = "SPEC", files: str = ".pt2") -> Callable[[], Any]:
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name.isidentifier():
        raise WrongUse(f"{option} {text!r} is neither a {files} file nor MODULE:FUNCTION")
    function = getattr(_load_module(place), name, None)
    if not callable(function):
        raise WrongUse(f"{place} has no function {name!r}")
    made: Callable[[], Any] = function
    return made


def _load_pt2(text: str) -> Spec:
    if not Path(text).is_file():
        raise WrongUse(f"there is no file {text!r}")
    torch_export = importlib.import_module("torch.export")
    try:
        program = torch_export.load(text)
    except Exception as error:
        raise WrongUse(f"torch.export.load cannot read {text!r}: {error}") from error
    args, kwargs = program.example_inputs or ((), {})
    return Spec(program, args, kwargs, None)


def _load_module(place: str) -> Any:
    if place.endswith(".py"):
        if not Path(place).is_file():
            raise WrongUse(f"there is no file {place!r}")
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    # as with `python -m`, modules of the working directory can be named
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and place.startswith(error.name):
            raise WrongUse(f"there is no module {place!r} here or on the Python path") from None
        raise


def _from_result(text: str, function: Callable[[], Any]) -> Spec:
    result = function()
    if not isinstance(result, tuple) or not 2 <= len(result) <= 4:
        found = type(result).__name__
        raise WrongUse(f"{text} must return (module, args[, kwargs[, dynamic_shapes]]); it returned a {found}")
    module, args, *rest = result
    kwargs = rest[0] if rest and rest[0] is not None else {}
    return Spec(module, args, kwargs, rest[1] if len(rest) > 1 else None)
