"""Whether results are eager's: types and shapes, whole numbers to the last bit, others within what roundings make."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

from tests.coverage.cases import Made

TOLERANCE = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Relative and absolute; of float32 and complex64 SINGLE."""
SINGLE = 2e-4
_WIDER = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}  # fmt: skip


def tensors(found: Any) -> list[torch.Tensor]:
    """The tensors among results: numpy's too, which a session gives that is given no tensor, and Python's numbers."""
    return [_tensor(x) for x in pytree.tree_leaves(found) if isinstance(x, (torch.Tensor, np.ndarray, int, float))]


def _tensor(x: Any) -> torch.Tensor:
    if isinstance(x, (torch.Tensor, np.ndarray)):
        return torch.as_tensor(x)
    return torch.tensor(x, dtype=torch.float64 if isinstance(x, float) else None)


def eager(made: Made, args: Sequence[Any]) -> list[torch.Tensor]:
    """What the module gives for copies of the arguments, and what it makes of these; its buffers stay as they are."""
    copies, named = copied(args), copied(dict(made.kwargs))
    with torch.no_grad():
        found = tensors(copy.deepcopy(made.module)(*copies, **named))
    return [*found, *inputs_of(copies, named)]


def inputs_of(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors among arguments."""
    return [x for x in pytree.tree_leaves((tuple(args), dict(kwargs))) if isinstance(x, torch.Tensor)]


def copied(tree: Any) -> Any:
    """With tensors of its own. Of a part of a tensor all of it is copied: an op may look beside."""
    return pytree.tree_map_only(torch.Tensor, lambda t: copy.deepcopy(t) if is_part(t) else t.clone(), tree)


def is_part(t: torch.Tensor) -> bool:
    """Whether other elements lie in the tensor's memory, too."""
    return t.layout is torch.strided and t.untyped_storage().nbytes() > t.numel() * t.element_size()


def difference(made: Made, args: Sequence[Any], got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> str:
    """In what results are not eager's; "" for nothing."""
    if len(got) != len(want):
        return f"{len(got)} results, eager gives {len(want)}"
    wider: list[torch.Tensor] | None = None
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if g.dtype is torch.uint16 and w.dtype is torch.bfloat16 and not tensors(args):
            g = g.view(torch.bfloat16)  # of a call without tensors, whose results are numpy's
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"result {k}: {g.dtype} {list(g.shape)}, eager gives {w.dtype} {list(w.shape)}"
        if not made.by_value or not (said := _apart(g, w)):
            continue
        if wider is None:
            wider = _in_wider(made, args)
        if k >= len(wider) or not _no_farther(g, w, wider[k]):
            return f"result {k}: {said}"
    return ""


def _apart(g: torch.Tensor, w: torch.Tensor) -> str:
    tolerance = TOLERANCE.get(w.dtype, SINGLE) if w.is_floating_point() or w.is_complex() else 0.0
    try:
        torch.testing.assert_close(g, w.resolve_conj().resolve_neg(), rtol=tolerance, atol=tolerance, equal_nan=True)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def _in_wider(made: Made, args: Sequence[Any]) -> list[torch.Tensor]:
    """Eager's results with numbers of more bits; none where the module cannot be run so."""
    wide = pytree.tree_map_only(torch.Tensor, lambda t: t.to(_WIDER.get(t.dtype, t.dtype)), (tuple(args), made.kwargs))
    with contextlib.suppress(Exception):
        return eager(Made(made.module, wide[0], wide[1]), wide[0])
    return []


def _no_farther(g: torch.Tensor, w: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether each number is about as near to the exact one as eager's, which may be NaN where that is a number: sums
    of half types differ by their order.
    """
    if exact.shape != w.shape or w.dtype not in _WIDER or exact.dtype != _WIDER[w.dtype]:
        return False
    tolerance = TOLERANCE.get(w.dtype, SINGLE)
    ours, theirs = (torch.nan_to_num((x.to(exact.dtype) - exact).abs()) for x in (g, w))
    ours = torch.where(g == exact.to(g.dtype), 0, ours)  # infinite where the type holds no more
    lost = torch.isnan(g) & ~torch.isnan(w) | ~torch.isnan(g) & torch.isnan(w) & torch.isnan(exact)
    near = ours <= 2 * theirs + tolerance * (1 + torch.nan_to_num(exact.abs()))
    return not bool(lost.any()) and bool(near.all())
