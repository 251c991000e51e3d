"""Sizes of pooled results with torch before 2.13, whose division asks for the remainder and its sign: each answer would
be noted as a condition on the size, and a program for 14 rows would refuse 13. As torch divides since 2.13, it asks
nothing.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator

import torch._meta_registrations as registrations

from hardtack.exporter.capture.torch_patches.patch import Patch

PATCHES = (
    Patch(
        name="sizes of windows",
        replaces=("torch._meta_registrations.div_rtn",),
        why="a division asks for its remainder and for signs, and each answer is a condition on the size",
        until=(2, 13),
    ),
)


@contextlib.contextmanager
def rounded_down() -> Iterator[None]:
    """Inside, torch works out the sizes of pooled results by // alone. Not for several threads at once."""
    saved = registrations.div_rtn
    registrations.div_rtn = operator.floordiv
    try:
        yield
    finally:
        registrations.div_rtn = saved
