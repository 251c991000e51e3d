"""Comparisons of sizes, and numbers made of them, are noted when torch decides them; see small/sizes.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hardtack.exporter.capture.small.sizes import COMPARISONS, NUMBERS, Watch
from hardtack.exporter.capture.torch_patches.patch import Patch

PATCHES = (
    Patch(
        name="comparisons of sizes",
        replaces=("ShapeEnv.evaluate_sym_node", "SymInt.__lt__ and its like", "SymFloat.__lt__ and its like"),
        why="a comparison that holds for sizes from 2 on leaves no condition: one branch is left, for 0 and 1, too",
        issues=(151582,),
    ),
)


@contextlib.contextmanager
def watched(strict: bool = False) -> Iterator[Watch]:
    """Inside, comparisons of sizes and questions about strides are noted. Not for several threads at once.

    strict: torch's bytecode analysis answers what is asked of strides, and in torch 2.11 cannot look into a mode.
    """
    watch = Watch()
    evaluate = ShapeEnv.evaluate_sym_node
    names = (*COMPARISONS, *NUMBERS)
    saved = {(t, n): getattr(t, n) for t in (torch.SymInt, torch.SymFloat) for n in names if hasattr(t, n)}

    def evaluated(self: ShapeEnv, sym_node: Any, *args: Any, **kwargs: Any) -> Any:
        given = evaluate(self, sym_node, *args, **kwargs)
        watch.evaluated(self, sym_node.expr, given)
        return given

    def observed(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def method(*sizes: Any) -> Any:
            given = original(*sizes)
            if given is not NotImplemented and getattr(sizes[0].node, "shape_env", None) is not None:
                (watch.compared if name in COMPARISONS else watch.computed)(name, sizes, given)
            return given

        return method

    ShapeEnv.evaluate_sym_node = evaluated  # type: ignore[method-assign]
    for (type_, name), original in saved.items():
        setattr(type_, name, observed(original, name))
    try:
        with contextlib.nullcontext() if strict else watch.strides:
            yield watch
    finally:
        ShapeEnv.evaluate_sym_node = evaluate  # type: ignore[method-assign]
        for (type_, name), original in saved.items():
            setattr(type_, name, original)
