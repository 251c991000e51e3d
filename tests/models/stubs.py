"""Stand-ins for packages that model code imports without needing them to run (torchvision, OpenCV, ...)."""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator
from typing import Any


class Anything:
    """Stands for any class, function, decorator or constant of a package that is not there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorated = len(args) == 1 and callable(args[0]) and not kwargs
        return args[0] if decorated else self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        return (object,)

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def _module(name: str) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__path__ = []
    made.__version__ = "0.99.0"  # type: ignore[attr-defined]
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)

    def lookup(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Anything()

    made.__getattr__ = lookup  # type: ignore[method-assign]
    return made


@contextlib.contextmanager
def stubbed(*names: str) -> Iterator[None]:
    """Inside, `import a.b.c` succeeds for each name that is not installed; afterwards the stand-ins are gone again,
    so that no other package takes them for the real thing."""
    made: list[str] = []
    try:
        for full in names:
            if full.split(".")[0] in made or not _installed(full.split(".")[0]):
                _make(full, made)
        yield
    finally:
        for path in made:
            sys.modules.pop(path, None)


def _make(full: str, made: list[str]) -> None:
    """Stand-ins for every part of a dotted name that is not there yet; their names are added to `made`."""
    path = ""
    for part in full.split("."):
        parent, path = path, f"{path}.{part}" if path else part
        if path in sys.modules:
            continue
        sys.modules[path] = _module(path)
        made.append(path)
        if parent:
            setattr(sys.modules[parent], part, sys.modules[path])


def _installed(package: str) -> bool:
    return package in sys.modules or importlib.util.find_spec(package) is not None


_TORCHVISION = ("", ".transforms", ".transforms.functional", ".models.feature_extraction", ".ops.misc", ".datasets")


def imported_timm() -> Any:
    """The package timm, whose models need nothing of torchvision, which it imports."""
    with stubbed(*(f"torchvision{part}" for part in _TORCHVISION), "PIL"):
        import timm
    return timm
