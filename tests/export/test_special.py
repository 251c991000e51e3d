"""Special functions against mpmath, where eager is no better or has another value."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch

from hardtack.exporter import UnsupportedOpError, to_graphs
from hardtack.exporter.convert import special
from tests.export.checks import check, ours

mpmath.mp.dps = 40
POINTS = (1e-30, 1e-3, 0.3, 1.0, 1.4616, 2.0, 7.5, 8.0, 8.5, 9.99, 10.0, 30.0, 200.0, 1e6)
BELOW = (-1e-3, -0.3, -0.9999, -1.0001, -7.5, -20.25, -1000.5)

EXACT: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[float], mpmath.mpf], bool]] = {
    "i0e": (torch.special.i0e, lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(0, x), True),
    "i1e": (torch.special.i1e, lambda x: mpmath.exp(-abs(x)) * mpmath.besseli(1, x), True),
    "digamma": (torch.digamma, mpmath.digamma, True),
    "trigamma": (lambda x: torch.polygamma(1, x), lambda x: mpmath.psi(1, x), True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXACT)
def test_accuracy(name: str, dtype: torch.dtype) -> None:
    """As good as the type allows, and no worse than eager's."""
    function, exact, _ = EXACT[name]
    x = torch.tensor([*POINTS, *BELOW]).to(dtype)
    x = x[torch.isfinite(function(x))]
    (got,) = ours(to_graphs(lambda x: function(x), (x,)), (x,))
    eps = torch.finfo(dtype).eps
    for value, found, eager in zip(x.tolist(), got.tolist(), function(x).tolist(), strict=True):
        want = exact(mpmath.mpf(value))
        size = max(abs(want), 1 if name == "digamma" else 0)
        error, theirs = abs(found - want) / size, abs(eager - want) / size
        assert error <= max(20 * eps, 2 * theirs), (value, found, eager, float(want))


def test_poles() -> None:
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([0.0, -0.0, -1.0, -2.0, -1e9, -inf, inf, nan])
    exported = to_graphs(lambda x: (torch.digamma(x), torch.polygamma(0, x), torch.polygamma(1, x)), (x,))
    digamma, same, trigamma = ours(exported, (x,))
    assert_equal(digamma, torch.tensor([-inf, inf, nan, nan, nan, nan, inf, nan]))
    assert_equal(same, digamma)
    assert_equal(trigamma, torch.tensor([inf, inf, inf, inf, inf, nan, 0.0, nan]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_first_of_order_0_is_one_at_zero(dtype: torch.dtype) -> None:
    """With fewer coefficients it was a unit more, and eager's is one less."""
    x = torch.tensor([0.0, -0.0, 1e-40, -1e-20], dtype=dtype)
    for found in ours(to_graphs(lambda x: (torch.i0(x), torch.special.i0e(x)), (x,)), (x,)):
        assert_equal(found, torch.ones_like(x))


def assert_equal(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


def test_of_integers_and_empty() -> None:
    functions = (torch.i0, torch.special.i0e, torch.special.i1, torch.special.i1e, torch.digamma)
    x = torch.tensor([[1, 2, 9], [-30, 0, 4]])
    dims = ({0: torch.export.Dim.DYNAMIC},)
    others = [(x[:0],), (x[:1],), (x.repeat(3, 1)[:5],)]
    check(lambda x: [f(x) for f in functions], (x,), dims, others, atol=1e-4)
    check(lambda x: [f(x > 0) for f in functions], (x,), dims, others, atol=1e-4)


def test_higher_orders_are_refused() -> None:
    with pytest.raises(UnsupportedOpError, match="polygamma of order 2: orders 0 and 1 are supported"):
        to_graphs(lambda x: torch.polygamma(2, x), (torch.ones(3),))


@pytest.mark.parametrize("order", [0, 1])
def test_the_coefficients(order: int) -> None:
    """Of exp(-x) I(x), to the last bit."""

    def small(u: mpmath.mpf) -> mpmath.mpf:
        x = 4 * (u + 1)
        return mpmath.exp(-x) * mpmath.besseli(order, x) / (x if order else 1)

    def large(u: mpmath.mpf) -> mpmath.mpf:
        x = 16 / (u + 1)
        return mpmath.exp(-x) * mpmath.besseli(order, x) * mpmath.sqrt(x)

    tables = (
        (special._I0_SMALL, special._I0_LARGE),
        (special._I1_SMALL, special._I1_LARGE),
    )[order]
    for function, table in zip((small, large), tables, strict=True):
        angles = [mpmath.pi * (k + mpmath.mpf(1) / 2) / 80 for k in range(80)]
        values = [function(mpmath.cos(a)) for a in angles]
        for j, c in enumerate(table):
            want = sum(v * mpmath.cos(j * a) for v, a in zip(values, angles, strict=True)) / (40 if j else 80)
            assert c == float(want), j
