"""Which entries of several tables a seed stands for: every combination once, then all of them again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_STRIDE = 7919
"""Seeds next to each other are combinations far from each other. Prime, and so prime to the number of combinations."""


def number_of(*tables: Sequence[str]) -> int:
    """How many combinations there are."""
    return math.prod(map(len, tables))


def combination(seed: int, *tables: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """How many times all of them came before, and an entry of each table; those of the last change fastest.

    ValueError for so many combinations that the stride divides their number.
    """
    total = number_of(*tables)
    if total % _STRIDE == 0:
        raise ValueError(f"{total} combinations are a multiple of {_STRIDE}: some would never come")
    turn, k = divmod(seed, total)
    k = k * _STRIDE % total
    found: list[str] = []
    for table in reversed(tables):
        k, at = divmod(k, len(table))
        found.append(table[at])
    return turn, tuple(reversed(found))


def in_turn(table: Sequence[T], k: int) -> T:
    """What all combinations share: an entry after the other."""
    return table[k % len(table)]
