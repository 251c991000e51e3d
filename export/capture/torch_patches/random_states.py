"""What torch does to no effect each time that it traces a program: it makes states of random numbers of tensors, which
become a part of what is traced. They are for functions that draw numbers on a GPU by a seed of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch._decomp.decompositions_for_rng import PhiloxState

from hardtack.exporter.capture.torch_patches.patch import Patch

PATCHES = (
    Patch(
        name="states of random numbers",
        replaces=("torch._decomp.decompositions_for_rng.PhiloxState.reset",),
        why="a dozen tensors without elements are made in the middle of each tracing, a tenth of a small export",
    ),
)


@contextlib.contextmanager
def random_states_made_once() -> Iterator[None]:
    """Inside, each state begins with the tensors of one that was made outside. Not for several threads at once."""
    reset, first = PhiloxState.reset, vars(PhiloxState())

    def begin(self: PhiloxState) -> None:
        vars(self).update(first)

    PhiloxState.reset = begin  # type: ignore[method-assign]
    try:
        yield
    finally:
        PhiloxState.reset = reset  # type: ignore[method-assign]
