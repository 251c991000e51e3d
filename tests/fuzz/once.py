"""Which results rounding excuses in nothing: those behind which each op is exact, or rounds its result once.

Sums, differences, products and quotients of two numbers are rounded correctly by eager, on every processor, and so they
are by kernels: docs/contract.md has a*b + c with two roundings and a half type's rounding wherever eager has one. So a
result made of these and of ops that move, compare or choose is eager's to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.fuzz.disturb import EXACT, chooses_between_zeros

ONCE = frozenset(("add", "sub", "mul", "div", "rsub"))
USUAL = {"accumulate": False, "alpha": 1, "decimals": 0, "reduce": None}
"""Arguments with which, if they are others, an op of EXACT or ONCE rounds more than once, or in an order of its own."""


class Determined(TorchDispatchMode):
    """Runs ops as they are and notes which memory holds results that are not determined to the last bit."""

    def __init__(self) -> None:
        super().__init__()
        self._loose: set[int] = set()
        self._seen: list[torch.Tensor] = []
        self._decided = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = func.overloadpacket.__name__, _tensors((args, kwargs))
        loose = chooses_between_zeros(func, args, kwargs) or not all(map(self.holds, given))
        out = func(*args, **(kwargs or {}))
        if not isinstance(out, torch.Tensor) and name == "_local_scalar_dense" and loose:
            self._decided = False  # a number that Python goes on with
        found = _tensors(out)
        self._seen += found  # memory that is alive is not another tensor's
        if loose or (
            any(t.is_floating_point() or t.is_complex() for t in found) and not _rounds_once(func, args, kwargs)
        ):
            self._loose |= {t.untyped_storage().data_ptr() for t in found}
        return out

    def holds(self, t: torch.Tensor) -> bool:
        """True if the elements are determined to the last bit."""
        return self._decided and not t.is_complex() and t.untyped_storage().data_ptr() not in self._loose


def _rounds_once(func: Any, args: Sequence[Any], kwargs: Any) -> bool:
    name = func.overloadpacket.__name__
    if name not in EXACT and name.removesuffix("_") not in ONCE:
        return False
    names = [a.name for a in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | (kwargs or {})
    rounded_down = given.get("rounding_mode") == "floor"  # from the remainder, whose difference is rounded, too
    return not rounded_down and all(given.get(word, usual) == usual for word, usual in USUAL.items())


def _tensors(values: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(values) if isinstance(t, torch.Tensor)]
