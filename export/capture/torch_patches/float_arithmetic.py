"""Results of torch's arithmetic with sizes and floats are noted where its expression keeps the factors, but not the
roundings between them; see sizes/float_folds.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import sympy
from torch.fx.experimental.sym_node import SymNode

from hardtack.exporter.capture.torch_patches.patch import Patch
from hardtack.exporter.sizes.float_folds import Folds

PATCHES = (
    Patch(
        name="float arithmetic",
        replaces=("SymNode._add", "SymNode._sub", "SymNode._mul", "SymNode._neg"),
        why="sympy makes 0.1 * (0.7 * n) a single product, which is rounded once where Python rounds twice",
    ),
)

_METHODS = ("_add", "_sub", "_mul", "_neg")
"""The methods of torch's numbers whose results sympy takes apart; a quotient stays one."""


@contextlib.contextmanager
def folds_noted() -> Iterator[Folds]:
    """Inside, torch's arithmetic with sizes is watched. Not for several threads at once."""
    folds = Folds()
    saved = {name: getattr(SymNode, name) for name in _METHODS}

    def observed(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def method(*nodes: Any) -> Any:
            given = original(*nodes)
            if getattr(given, "pytype", None) is float:
                folds.computed(name, tuple(sympy.sympify(n.expr) for n in nodes), given.expr)
            return given

        return method

    for name, original in saved.items():
        setattr(SymNode, name, observed(original, name))
    try:
        yield folds
    finally:
        for name, original in saved.items():
            setattr(SymNode, name, original)
