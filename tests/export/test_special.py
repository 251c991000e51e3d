"""Special functions against mpmath, where eager is no better or has another value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import mpmath
import pytest
import torch
from torch.export import Dim

from hardtack.exporter import UnsupportedOpError, to_graphs
from hardtack.exporter.convert import special_bessel, special_tables
from tests.export.checks import check, ours
from tests.export.special_definitions import TABLES, coefficients, zeros

POINTS = (1e-30, 1e-3, 0.3, 1.0, 1.4616, 2.0, 7.5, 8.0, 8.5, 9.99, 10.0, 30.0, 200.0, 1e6)
BELOW = (-1e-3, -0.3, -0.9999, -1.0001, -4.9, -5.1, -7.5, -20.25, -1000.5)
SHARES = (1e-40, 1e-20, 1e-10, 0.1353, 0.1354, 0.5, 0.8, 0.9, 0.99999)
TINY = mpmath.mpf(2) ** -1070

Function = Callable[[torch.Tensor], torch.Tensor]
Exact = Callable[[mpmath.mpf], mpmath.mpf]
i, j, y, k = (partial(f) for f in (mpmath.besseli, mpmath.besselj, mpmath.bessely, mpmath.besselk))
BESSEL: dict[str, Exact] = {
    "i0e": lambda x: mpmath.exp(-abs(x)) * i(0, x),
    "i1e": lambda x: mpmath.exp(-abs(x)) * i(1, x),
    "modified_bessel_i0": lambda x: i(0, x),
    "modified_bessel_i1": lambda x: i(1, x),
    "bessel_j0": lambda x: j(0, x),
    "bessel_j1": lambda x: j(1, x),
    "bessel_y0": lambda x: y(0, x),
    "bessel_y1": lambda x: y(1, x),
    "modified_bessel_k0": lambda x: k(0, x),
    "modified_bessel_k1": lambda x: k(1, x),
    "scaled_modified_bessel_k0": lambda x: mpmath.exp(x) * k(0, x),
    "scaled_modified_bessel_k1": lambda x: mpmath.exp(x) * k(1, x),
    "spherical_bessel_j0": lambda x: mpmath.sin(x) / x,
    "airy_ai": mpmath.airyai,
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "log_ndtr": lambda x: mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2),
    "ndtri": lambda p: mpmath.findroot(
        lambda q: mpmath.log(mpmath.erfc(-q / mpmath.sqrt(2)) / (2 * p)),
        torch.special.ndtri(torch.tensor(float(p))).item(),
    ),
}
EXACT: dict[str, tuple[Function, Exact]] = {
    **{name: (getattr(torch.special, name), exact) for name, exact in BESSEL.items()},
    "digamma": (torch.digamma, mpmath.digamma),
    **{f"polygamma {n}": (partial(torch.polygamma, n), partial(mpmath.psi, n)) for n in (1, 2, 3, 6, 9)},
}
OF_ONE = ("digamma", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0", "airy_ai", "ndtri")
"""Functions with zeros, where an error counts beside 1."""


@pytest.mark.sweep(over="dtype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXACT)
def test_accuracy(name: str, dtype: torch.dtype) -> None:
    """As good as the type allows, or no worse than twice eager's error."""
    function, exact = EXACT[name]
    x = torch.tensor([*POINTS, *BELOW, *(SHARES if name == "ndtri" else ())], dtype=torch.float64).to(dtype)
    x = x[torch.isfinite(function(x))]
    assert len(x) > 4
    (got,) = ours(to_graphs(lambda x: function(x), (x,)), (x,))
    eps = torch.finfo(dtype).eps
    for value, found, eager in zip(x.tolist(), got.tolist(), function(x).tolist(), strict=True):
        want = exact(mpmath.mpf(value))
        size = max(abs(want), 1 if name in OF_ONE else TINY)
        size *= max(1, abs(value)) ** 1.5 if name == "airy_ai" else 1  # its phase
        error, theirs = abs(found - want) / size, abs(eager - want) / size
        tiny = abs(want) < torch.finfo(dtype).smallest_normal
        assert error <= max(20 * eps, 2 * theirs) or (tiny and abs(found) < 2 * abs(want)), (value, found, eager, want)


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


SPECIAL = torch.tensor([0.0, -0.0, -1.0, torch.inf, -torch.inf, torch.nan])


@pytest.mark.parametrize("name", BESSEL)
def test_beyond_numbers(name: str) -> None:
    """At zero, infinities and NaN as in eager."""
    function = getattr(torch.special, name)
    (got,) = ours(to_graphs(lambda x: function(x), (SPECIAL,)), (SPECIAL,))
    torch.testing.assert_close(got, function(SPECIAL), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeta(dtype: torch.dtype) -> None:
    """Of negative numbers, at its poles, and where it has no value."""
    x = torch.tensor([1, 0.5, 2, 3, 4, 2.5, 7, 20, 100, 2, 3, 2.5, 4, 5, 3, 2, 1.0001], dtype=dtype)
    q = torch.tensor([1, 1, 0.5, 1e-3, 8, 12, 3, 50, 1.5, -1.5, -0.3, -0.3, -20.7, -3, 0, torch.nan, 7], dtype=dtype)
    (got,) = ours(to_graphs(torch.special.zeta, (x, q)), (x, q))
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(got, torch.special.zeta(x, q), rtol=20 * eps, atol=0, equal_nan=True)
    numbers = to_graphs(lambda x: (torch.special.zeta(x, 2.5), torch.special.zeta(3.0, x)), (x,))
    for found, want in zip(ours(numbers, (x,)), (torch.special.zeta(x, 2.5), torch.special.zeta(3.0, x)), strict=True):
        torch.testing.assert_close(found, want, rtol=20 * eps, atol=0, equal_nan=True)


NAMES = [f"chebyshev_polynomial_{x}" for x in "tuvw"]
NAMES += [f"shifted_{name}" for name in NAMES]
NAMES += ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]


@pytest.mark.sweep(share=3)
@pytest.mark.parametrize("name", NAMES)
def test_polynomials(name: str) -> None:
    """Of degrees that are values, of a number, and of a number's degrees; in float64, and near it in float32."""
    function = getattr(torch.special, name)
    x = torch.cat([torch.linspace(-1.7, 1.7, 18), torch.tensor([1.0, -1.0, 0.0, 0.5])]).double()[:, None]
    n = torch.cat([torch.arange(-2, 15), torch.tensor([2.9, 24.0])]).double()[None]
    x, n = (t.contiguous() for t in torch.broadcast_tensors(x, n))
    program = to_graphs(lambda x, n: (function(x, n), function(x, 5), function(x, -1), function(0.3, n)), (x, n))
    wants = (function(x, n), function(x, 5), function(x, -1), function(0.3, n))
    for got, want in zip(ours(program, (x, n)), wants, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)
    (got,) = ours(to_graphs(function, (x.float(), n.float())), (x.float(), n.float()))
    torch.testing.assert_close(got, function(x.float().double(), n).float(), rtol=1e-3, atol=1e-4)


def test_degrees_of_any_number_of_rows() -> None:
    """An empty one has no degree that is too large."""
    x, n = torch.rand(5, 3), torch.randint(0, 9, (5, 3))
    others = [(x[:1], n[:1]), (x[:0], n[:0]), (x.repeat(3, 1), n.repeat(3, 1))]
    check(torch.special.legendre_polynomial_p, (x, n), ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}), others, atol=1e-4)


def test_degrees_that_are_too_large() -> None:
    x = torch.rand(3)
    with pytest.raises(UnsupportedOpError, match="hermite_polynomial_h of degree 129: degrees up to 128 are supported"):
        to_graphs(lambda x: torch.special.hermite_polynomial_h(x, 129), (x,))
    program = to_graphs(lambda x, n: torch.special.hermite_polynomial_h(x, n), (x, torch.ones(3)))
    with pytest.raises(Exception, match="hermite_polynomial_h of a degree above 32, the most that is computed where"):
        ours(program, (x, torch.tensor([1.0, 33.0, 2.0])))


@pytest.mark.sweep(share=5)
@pytest.mark.parametrize("name", TABLES)
def test_the_coefficients(name: str) -> None:
    """Of the functions, to the last bit."""
    assert getattr(special_tables, name) == coefficients(TABLES[name])


def test_the_zeros() -> None:
    for order, pairs in enumerate(special_bessel._ZEROS):
        for (high, low), zero in zip(pairs, zeros(order), strict=True):
            assert high == float(torch.tensor(high))
            assert low == float(zero - mpmath.mpf(high))
