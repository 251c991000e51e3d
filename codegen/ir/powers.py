"""Powers of two: the sizes of tiles."""

from __future__ import annotations


def power_of_two_from(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()
