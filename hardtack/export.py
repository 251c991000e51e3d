"""`import hardtack.export`, and `from hardtack.export import errors`, of programs written when a package had this name.

`hardtack.export` is the function, whoever imports this module: it puts the function in its own place, and the import
system gives the package `hardtack` what it finds there. What the package held is found at hardtack.exporter, as the
same objects; a DeprecationWarning says so.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings

from hardtack import exporter
from hardtack.api import export

warnings.warn(
    "hardtack.export is a function; the exporter's parts are in hardtack.exporter: import them from there",
    DeprecationWarning,
    stacklevel=2,
)
for _part in pkgutil.walk_packages(exporter.__path__, "hardtack.exporter."):
    sys.modules[_part.name.replace("exporter", "export", 1)] = importlib.import_module(_part.name)
# `exporter` has its parts as attributes now: with them a function answers `from hardtack.export import ...`
vars(export).update({name: part for name, part in vars(exporter).items() if not name.startswith("_")})
sys.modules[__name__] = export  # type: ignore[assignment]
