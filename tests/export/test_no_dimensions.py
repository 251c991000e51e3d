"""Tensors without dimensions, of which one number is the sum, the maximum, the row: infinities and NaN, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from hardtack.exporter import to_graphs
from tests.export.checks import ours

ALONG = """sum prod mean amax amin std var std_mean var_mean softmax log_softmax logsumexp cumsum cumprod cummax cummin
    logcumsumexp sort argsort median max min argmax argmin any all count_nonzero nansum nanmean"""
OVER_ALL = "sum prod mean amax amin std var std_mean var_mean norm any all max min argmax argmin median nansum nanmean"
OTHERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "softmin": lambda x: F.softmin(x, 0),
    "safe_softmax": lambda x: torch.ops.aten._safe_softmax(x, 0),
    "normalize": lambda x: F.normalize(x, dim=0),
    "cosine": lambda x: F.cosine_similarity(x, x * 2, dim=0),
    "norms": lambda x: tuple(torch.linalg.vector_norm(x, p) for p in (0, 1, 2, 3, math.inf, -math.inf)),
    "activations": lambda x: (
        F.prelu(x, torch.tensor([0.25], dtype=x.dtype)),
        *(f(x) for f in (F.celu, F.hardswish, F.softshrink, F.logsigmoid, F.mish, F.gelu, F.softsign, F.hardtanh)),
    ),
    "kthvalue": lambda x: x.kthvalue(1, 0),
    "losses": lambda x: (F.mse_loss(x, x * 2), F.l1_loss(x, x * 2), F.huber_loss(x, x * 2), F.smooth_l1_loss(x, x * 2)),
    "divergence": lambda x: F.kl_div(x, x.softmax(0), reduction="sum"),
    "entropy": lambda x: F.cross_entropy(x[None], torch.tensor(0)),
    "gathers": lambda x: (
        x.gather(0, torch.tensor(0)),
        x.index_select(0, torch.tensor([0])),
        x.take(torch.tensor([0])),
    ),
    "scatters": lambda x: (
        x.scatter(0, torch.tensor(0), x * 2),
        x.scatter_add(0, torch.tensor(0), x * 2),
        x.scatter_reduce(0, torch.tensor(0), x * 2, "amax"),
        x.index_fill(0, torch.tensor([0]), 3.0),
    ),
    "shapes": lambda x: (x.flatten(), x.ravel(), x.squeeze(0), x.unsqueeze(0), x.expand(2, 3), x.t()),
}
FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    **{f"{name}_along": lambda x, name=name: getattr(torch, name)(x, 0) for name in ALONG.split()},  # type: ignore[misc]
    **{name: lambda x, name=name: getattr(torch, name)(x) for name in OVER_ALL.split()},  # type: ignore[misc]
    **OTHERS,
}
NUMBERS = (2.5, -3.0, 0.0, -0.0, math.inf, -math.inf, math.nan)


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_as_in_eager(name: str, dtype: torch.dtype) -> None:
    """softmax of one number is 1, but of an infinity or a NaN it is NaN; it was 1."""
    function = FUNCTIONS[name]
    exported = to_graphs(function, (torch.tensor(1.0, dtype=dtype),))
    for number in NUMBERS:
        x = torch.tensor(number, dtype=dtype)
        want = function(x)
        for g, w in zip(ours(exported, (x,)), [want] if isinstance(want, torch.Tensor) else want, strict=True):
            torch.testing.assert_close(g, w, equal_nan=True, msg=lambda text: f"{number}: {text}")  # noqa: B023
