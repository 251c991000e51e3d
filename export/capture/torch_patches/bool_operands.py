"""A bool beside a size is the int it is in Python: n + True is n + 1, also where the bool is a setting of the model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.fx.experimental import sym_node
from torch.fx.experimental.sym_node import SymNode

from hardtack.exporter.capture.torch_patches.patch import Patch

PATCHES = (
    Patch(
        name="bools beside sizes",
        replaces=("torch.fx.experimental.sym_node.to_node",),
        why="sympy's true is no number: n // True fails, and n + True in torch 2.11 makes a size that fails later",
    ),
)


@contextlib.contextmanager
def bools_as_ints() -> Iterator[None]:
    """Inside, arithmetic and comparisons of sizes take a bool for 0 or 1. Not for several threads at once."""
    original = sym_node.to_node

    def to_node(self: SymNode, num: object) -> SymNode:
        return original(self, int(num) if isinstance(num, bool) and self.pytype is not bool else num)

    sym_node.to_node = to_node
    try:
        yield
    finally:
        sym_node.to_node = original
