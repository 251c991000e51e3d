"""`import hardtack.export`, and `from hardtack.export import ExportError`, of programs written when a package had this
name. What they find is what `hardtack.exporter` has: its public names, and its modules errors and reference.

`hardtack.export` is the function, whoever imports this module: it puts the function in its own place, and the import
system gives the package `hardtack` what it finds there.
"""

from __future__ import annotations

import sys
import warnings

from hardtack import exporter
from hardtack.api import export
from hardtack.exporter import *  # noqa: F403
from hardtack.exporter import __all__, errors, reference

warnings.warn(
    "hardtack.export is a function; the exporter's parts are in hardtack.exporter: import them from there",
    DeprecationWarning,
    stacklevel=2,
)
for _part in (errors, reference):
    sys.modules[_part.__name__.replace("exporter", "export", 1)] = _part
# what a function has as attributes it answers `from hardtack.export import ...` with
vars(export).update({name: getattr(exporter, name) for name in __all__})
vars(export).update(errors=errors, reference=reference, __all__=__all__, __spec__=__spec__)
sys.modules[__name__] = export  # type: ignore[assignment]
