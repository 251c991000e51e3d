"""Modules that register what they have: a rule, a renderer. They are found in their folder, so that a new one is a new
file and nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache


@cache
def load_modules(package: str, prefix: str = "") -> None:
    """Imports the modules of a package whose names begin with `prefix`, in the order of their names."""
    folder = importlib.import_module(package).__path__
    for name in sorted(m.name for m in pkgutil.iter_modules(folder) if m.name.startswith(prefix)):
        importlib.import_module(f"{package}.{name}")
