"""Elementary functions of complex numbers against eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from hardtack.exporter import to_graphs
from tests.export.checks import ours

NAMES = """
    log log2 log10 log1p sqrt rsqrt exp exp2 expm1 sin cos tan sinh cosh tanh sigmoid asin acos atan asinh acosh atanh
"""
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{name: getattr(torch, name) for name in NAMES.split()},
    "silu": torch.nn.functional.silu,
    "z^z": lambda z: z**z,
    "2^z": lambda z: 2.0**z,
    **{f"pow {p}": (lambda z, p=p: z**p) for p in (-1, 0, 0.5, -0.5, 2, 3, 2.5, 1 + 2j)},  # type: ignore[misc]
}
CORNERS = [(0.0, 0.0), (-1.0, 0.0), (-1.0, -0.0), (0.0, 2.0), (0.0, -2.0), (15.0, 1.0), (-15.0, 0.5), (1e-3, 1e-4)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_eager(name: str) -> None:
    """In both types, beside the cuts, too; an error counts beside the number's size."""
    for dtype in (torch.float32, torch.float64):
        x = torch.cat([torch.randn(20, 2, generator=torch.Generator().manual_seed(0)) * 2, torch.tensor(CORNERS)])

        def program(x: torch.Tensor) -> torch.Tensor:
            return torch.view_as_real(FUNCTIONS[name](torch.view_as_complex(x)))

        x = x.to(dtype)
        (got,) = ours(to_graphs(program, (x,)), (x,))
        want = program(x)
        finite = torch.isfinite(want).all(1)
        assert torch.equal(torch.isfinite(got).all(1), finite)
        size = torch.view_as_complex(want[finite]).abs()[:, None]
        error = ((got[finite] - want[finite]).abs() / size.clamp(min=1e-30)).max().item()
        assert error < 16 * torch.finfo(dtype).eps, (dtype, error)
