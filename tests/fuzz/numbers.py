"""Python numbers among a program's inputs: constants of the export, or ints that it takes any value of.

A dynamic int is a symbol as a dynamic size is, and stands in a row of sizes by its name (docs/contract.md, "Ranges").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.fuzz.tensors import Sizes

Number = int | float | bool

LARGEST_SIZE = 300
"""Of a number that is the size of a tensor: eager makes that tensor, too."""
FIXED = (0, 1, 2, 3, 5, 9, 2**31, 2**33 + 5, 40, 2**53, 64, 2**24 + 1)
"""What numbers are beside the sizes of the call and what those are next to."""


@dataclass(frozen=True)
class NumberSpec:
    """A number that forward takes. value: in the example. dynamic: "" for a constant, otherwise how an int is declared,
    "named" (Dim("k0", max=1024)), "open" (Dim("k0")), "dynamic" or "auto". sized: it is the size of a tensor.
    """

    name: str
    value: Number
    dynamic: str = ""
    sized: bool = False

    def at(self, given: Sizes) -> Number:
        """Its value in a call."""
        return given.get(self.name, self.value)

    def expression(self, given: Sizes) -> str:
        """Python text of that."""
        return repr(self.at(given))

    def dim_text(self) -> str:
        """How dynamic_shapes has it."""
        return {
            "": "None",
            "named": f'torch.export.Dim("{self.name}", max={self._most})',
            "open": f'torch.export.Dim("{self.name}")',
            "dynamic": "torch.export.Dim.DYNAMIC",
            "auto": "torch.export.Dim.AUTO",
        }[self.dynamic]

    @property
    def _most(self) -> int:
        return LARGEST_SIZE if self.sized else 1024

    def values(self, sizes: Sizes) -> list[int]:
        """Those that a dynamic int is given beside sizes, of which some are next to it."""
        near = [n + k for n in sizes.values() for k in (0, -1, 1)]
        most = self._most if self.sized or self.dynamic == "named" else math.inf
        return [n for n in dict.fromkeys([int(self.value), *near, *FIXED]) if 0 <= n <= most]

    def refused(self) -> Iterator[Any]:
        """Values that every session must refuse: another one in place of a constant, also of an equal number of another
        type; of a dynamic int what is negative, no int, or outside of its range.
        """
        if self.dynamic:
            yield from (-1, -(2**40), 2**53 + 1, 2**63, 2**70, 1.5, None)
            if self.dynamic == "named":
                yield self._most + 1
            return
        v = self.value
        if v != v:
            yield from (None, 0.0, 1, True)
            return
        yield from (None, not v if isinstance(v, bool) else v + 1 if math.isfinite(v) else 0.0, -v - 1)
        yield float(v) if isinstance(v, int) else 1
        yield int(v) if isinstance(v, bool) else True
        if isinstance(v, float):
            yield -v
