"""Hardtack: PyTorch models compiled ahead of time into one file, run by a small library.

    info = hardtack.export(module, (x,), path="m.pkg")      needs torch
    model = hardtack.load("m.pkg")                          needs numpy
    y = model(x)

The exporter's parts are in the package hardtack.exporter.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardtack.api import export
    from hardtack.codegen.package.errors import LoadError, OutputError, ReplaceError
    from hardtack.errors import HardtackError, InputError, RunError
    from hardtack.exporter.errors import ExportError
    from hardtack.host_ops import register_op
    from hardtack.kernels import CppKernel, CudaKernel, HostKernel
    from hardtack.options import Options
    from hardtack.plugins import GraphPass, Plugin
    from hardtack.regions import export_region
    from hardtack.runtime import Entry, Model, Session, Size, Tensor, load
    from hardtack.training import TrainingStep, training_step
    from hardtack.weights import replace_weights

__version__ = "0.1.0"
__all__ = [
    "CppKernel",
    "CudaKernel",
    "Entry",
    "ExportError",
    "GraphPass",
    "HardtackError",
    "HostKernel",
    "InputError",
    "LoadError",
    "Model",
    "Options",
    "OutputError",
    "Plugin",
    "ReplaceError",
    "RunError",
    "Session",
    "Size",
    "Tensor",
    "TrainingStep",
    "__version__",
    "export",
    "export_region",
    "load",
    "register_op",
    "replace_weights",
    "training_step",
]
_PLACES = {
    "hardtack.api": ("export",),
    "hardtack.codegen.notes": ("InternalError",),
    "hardtack.codegen.package.errors": ("LoadError", "OutputError", "ReplaceError"),
    "hardtack.errors": ("HardtackError", "InputError", "RunError"),
    "hardtack.exporter.errors": (
        "ExportError", "CaptureError", "TrainingModeError", "InputSpecError", "RangeError", "MutationError",
        "PluginError", "UnsupportedOpError",
    ),
    "hardtack.host_ops": ("register_op",),
    "hardtack.kernels": ("CppKernel", "CudaKernel", "HostKernel"),
    "hardtack.options": ("Options",),
    "hardtack.plugins": ("GraphPass", "Plugin"),
    "hardtack.regions": ("export_region",),
    "hardtack.runtime": ("Entry", "Model", "Session", "Size", "Tensor", "load"),
    "hardtack.training": ("TrainingStep", "training_step"),
    "hardtack.weights": ("replace_weights",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports what is asked for when it is first asked for: the runtime and the exporter need not both be there."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'hardtack' has no attribute {name!r}")
    value = getattr(_import(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def _import(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            raise ImportError("exporting needs torch; to install it: pip install 'hardtack[export]'") from error
        raise
