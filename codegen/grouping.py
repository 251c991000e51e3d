"""From nests to kernels, in steps: what is computed together, what moves into a product, what shares a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.fuse import Fused, FusionLimits, fuse
from hardtack.codegen.ir.loops import Buffer, Nest
from hardtack.codegen.prologue import take_prologues
from hardtack.codegen.siblings import join_siblings


def group_nests(
    nests: Sequence[Nest],
    buffers: Mapping[str, Buffer],
    kept: frozenset[str],
    constants: frozenset[str],
    hints: Mapping[str, int],
    limits: FusionLimits,
) -> Fused:
    """The nests as groups in execution order.

    `kept`: buffers that are read after the last one, or as a state; `constants`: those that no kernel writes; `hints`:
    example sizes of symbols by name, used for profit only.
    """
    fused = fuse(nests, buffers, hints, limits)
    fused = take_prologues(fused, buffers, kept, constants, hints, limits)
    return join_siblings(fused, hints, limits)
