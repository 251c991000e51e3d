"""What is said of each change to torch's insides."""

from __future__ import annotations

from dataclasses import dataclass

SUPPORTED = ((2, 11), (2, 13))
"""The oldest and the newest torch."""


@dataclass(frozen=True)
class Patch:
    """One reason to change torch while a module is captured. tests/export/test_torch_patches.py shows for each torch
    that does without it what goes wrong, and fails when nothing does any more.

    replaces: attributes of torch. why: what torch does by itself. until: the first torch (major, minor) that needs it
    no more; None while all do. issues: of pytorch/pytorch, by number, where there are some.
    """

    name: str
    replaces: tuple[str, ...]
    why: str
    until: tuple[int, int] | None = None
    issues: tuple[int, ...] = ()

    def is_needed(self, version: tuple[int, int]) -> bool:
        """True for a torch that does not do it by itself."""
        return self.until is None or version < self.until
