"""How many elements a mask can select: torch counts those of the tensor, of which a larger mask takes some more than
once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls

from hardtack.exporter.capture.torch_patches.patch import Patch

PATCHES = (
    Patch(
        name="selections by larger masks",
        replaces=("rule of aten.masked_select",),
        why="as many elements as the tensor has are said to be the most, and a run that selects more fails",
    ),
)


@contextlib.contextmanager
def selections_of_whole_masks() -> Iterator[None]:
    """Inside, a tensor is as large as its mask before its elements are counted. Not for several threads at once."""
    op, rules = torch.ops.aten.masked_select.default, fake_impls.op_implementations_dict
    own = rules[op]

    def rule(mode: Any, func: Any, x: Any, mask: Any) -> Any:
        with mode:
            x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
        return own(mode, func, x, mask)

    rules[op] = rule
    try:
        yield
    finally:
        rules[op] = own
