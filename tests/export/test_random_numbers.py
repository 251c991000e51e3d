"""Random numbers: Philox against its published answers, distributions against exact ones, and what is refused.

Numbers are the graph's reference's, of a fixed seed: a bound that holds holds always. Kernels are compared with it in
tests/front/test_random.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.export import Dim
from torch.utils import _pytree as pytree

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph import Graph, Input, TensorType
from hardtack.codegen.ir.types import DType
from hardtack.exporter import to_graphs
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.philox import RNG_STATE, philox
from hardtack.exporter.errors import UnsupportedOpError
from hardtack.exporter.reference import ReferenceFailure, results, results_and_states, run

N = 40_000
"""Draws of a test of a distribution: a Kolmogorov-Smirnov distance of 1.63 / sqrt(N) has a probability of 1 %."""
FARTHEST = 1.63 / math.sqrt(N)

ANSWERS = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]
"""Random123's kat_vectors of philox4x32 of 10 rounds: counter, key, words."""


@pytest.mark.parametrize(("counter", "key", "want"), ANSWERS, ids=["zeros", "ones", "pi"])
def test_known_answers(counter: list[int], key: list[int], want: list[int]) -> None:
    b = Builder()
    given = {f"i{n}": torch.tensor(x) for n, x in enumerate((*counter, *key))}
    values = [b.declare(name, TensorType(DType.I64, ())) for name in given]
    words = philox(b, values[:4], values[4:])
    graph = Graph(
        name="g", inputs=tuple(Input(v.name, ()) for v in values), outputs=tuple(w.name for w in words),
        output_names=("a", "b", "c", "d"), constants=(), states=(), ops=tuple(b.ops), syms=(), guards=(), types=b.types,
    )  # fmt: skip
    assert [int(t) for t in results(graph, ConstantStore(), given)] == want


def drawn(
    program: Callable[..., Any], *args: torch.Tensor, seed: int = 7, dynamic_shapes: Any = None
) -> list[torch.Tensor]:
    """What the graph's reference draws with a seed, of the types and shapes that eager has."""
    exported = to_graphs(program, args, dynamic_shapes=dynamic_shapes)
    graph = exported.entries["forward"].graph
    inputs = {i.name: x for i, x in zip(graph.inputs, args, strict=True)}
    found, states = results_and_states(graph, exported.store, inputs, {RNG_STATE: torch.tensor([seed, 0])})
    assert states[RNG_STATE][0] == seed
    assert states[RNG_STATE][1] > 0
    for ours, eager in zip(found, pytree.tree_leaves(program(*args)), strict=True):
        assert ours.dtype == (eager.dtype.to_real() if eager.is_complex() else eager.dtype)
        assert ours.shape[: eager.dim()] == eager.shape
    return found


def distance(x: torch.Tensor, cdf: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """The Kolmogorov-Smirnov distance of a sample from a distribution."""
    ordered = x.double().flatten().sort().values
    n = len(ordered)
    want, steps = cdf(ordered), torch.arange(n + 1, dtype=torch.float64) / n
    return float(torch.maximum(steps[1:] - want, want - steps[:-1]).max())


def normal_cdf(mean: float, std: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: 0.5 * (1 + torch.erf((x - mean) / (std * math.sqrt(2))))


FLAT: Callable[[torch.Tensor], torch.Tensor] = lambda x: x.clamp(0, 1)  # noqa: E731
CONTINUOUS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "rand": (lambda x: torch.rand(N), FLAT),
    "rand of f64": (lambda x: torch.rand(N, dtype=torch.float64), FLAT),
    "rand_like": (torch.rand_like, FLAT),
    "randn": (lambda x: torch.randn(N // 4, 4), normal_cdf(0, 1)),
    "randn of f64": (lambda x: torch.randn(N, dtype=torch.float64), normal_cdf(0, 1)),
    "randn_like": (torch.randn_like, normal_cdf(0, 1)),
    "normal of tensors": (lambda x: torch.normal(x * 0 + 3, x * 0 + 2), normal_cdf(3, 2)),
    "normal of a mean": (lambda x: torch.normal(x * 0 - 1, 0.5), normal_cdf(-1, 0.5)),
    "normal of a deviation": (lambda x: torch.normal(2.0, x * 0 + 3), normal_cdf(2, 3)),
    "normal of numbers": (lambda x: torch.normal(1.0, 2.0, (N,)), normal_cdf(1, 2)),
    "normal_": (lambda x: x.clone().normal_(-2, 0.1), normal_cdf(-2, 0.1)),
    "uniform_": (lambda x: x.clone().uniform_(-3, 5), lambda x: ((x + 3) / 8).clamp(0, 1)),
    "exponential_": (lambda x: x.clone().exponential_(2.0), lambda x: -torch.expm1(-2 * x)),
    "cauchy_": (lambda x: x.clone().cauchy_(1, 2), lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi),
    "log_normal_": (lambda x: x.clone().log_normal_(0.5, 1.5), lambda x: normal_cdf(0.5, 1.5)(x.log())),
    "gumbel": (
        lambda x: -torch.empty(N).exponential_().log(),
        lambda x: torch.exp(-torch.exp(-x)),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_distributions(name: str) -> None:
    program, cdf = CONTINUOUS[name]
    (x,) = drawn(program, torch.zeros(N))
    assert distance(x, cdf) < FARTHEST


def test_uniform_numbers_lie_below_one_in_every_type() -> None:
    for dtype, bits in ((torch.float16, 11), (torch.bfloat16, 8), (torch.float32, 24), (torch.float64, 53)):
        (x,) = drawn(lambda x: torch.rand(N, dtype=dtype), torch.zeros(1))  # noqa: B023
        assert x.min() >= 0
        assert x.max() < 1
        steps = x.double() * 2.0**bits
        assert torch.equal(steps, steps.round())
        assert abs(x.double().mean() - 0.5 + 0.5 * 2.0**-bits) < 0.006


def test_moments_and_independence() -> None:
    """Of words beside each other, draws behind each other, and runs behind each other."""
    a, b = drawn(lambda x: (torch.randn(N), torch.randn(N)), torch.zeros(1))
    for x, y in ((a, b), (a[1:], a[:-1]), (a[4:], a[:-4])):
        assert abs(float((x * y).mean())) < 4 / math.sqrt(N)
    assert abs(float(a.mean())) < 3 / math.sqrt(N)
    assert abs(float(a.var()) - 1) < 3 * math.sqrt(2 / N)
    assert abs(float((a**4).mean()) - 3) < 3 * math.sqrt(96 / N)


def frequencies(x: torch.Tensor, count: int) -> torch.Tensor:
    return torch.bincount(x.flatten().long(), minlength=count).double() / x.numel()


def check_frequencies(x: torch.Tensor, want: list[float]) -> None:
    """Within four deviations each; what has no probability never comes."""
    found, p = frequencies(x, len(want)), torch.tensor(want, dtype=torch.float64)
    assert ((found - p).abs() <= 4 * (p * (1 - p) / x.numel()).sqrt()).all(), found


@pytest.mark.parametrize(
    ("program", "low", "high"),
    [
        (lambda x: torch.randint(7, (N,)), 0, 7),
        (lambda x: torch.randint(-3, 4, (N,), dtype=torch.int32), -3, 4),
        (lambda x: torch.randint_like(x, 5), 0, 5),
        (lambda x: torch.randint_like(x, 2, 5), 2, 5),
        (lambda x: x.clone().random_(6), 0, 6),
        (lambda x: torch.randint(0, x.shape[0] // 10_000, (N,)), 0, 4),
    ],
)
def test_whole_numbers(program: Callable[..., Any], low: int, high: int) -> None:
    (x,) = drawn(program, torch.zeros(N))
    check_frequencies(x - low, [1 / (high - low)] * (high - low))


def test_whole_numbers_of_63_bits() -> None:
    (x,) = drawn(lambda x: torch.randint(-(2**62), 2**62 - 1, (N,)), torch.zeros(1))
    assert distance(x.double() / 2.0**63 + 0.5, FLAT) < FARTHEST


def test_permutations() -> None:
    n = Dim("n", max=500)
    for size in (0, 1, 2, 7, 500):
        exported = to_graphs(lambda x: torch.randperm(x.shape[0]), (torch.zeros(5),), dynamic_shapes=({0: n},))
        graph = exported.entries["forward"].graph
        (x,) = results(graph, exported.store, {"x": torch.zeros(size)})
        assert torch.equal(x.sort().values, torch.arange(size))
    many = torch.stack(drawn(lambda x: [torch.randperm(3) for _ in range(60)], torch.zeros(1)))
    assert len({tuple(p.tolist()) for p in many}) == 6


P = [0.1, 0.0, 0.5, 0.25, 0.15, 0.0]


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_frequencies(replacement: bool) -> None:
    scaled = torch.tensor(P).expand(N // 4, 6) * 3
    (x,) = drawn(lambda p: torch.multinomial(p, 1, replacement), scaled.contiguous())
    check_frequencies(x, P)
    (x,) = drawn(lambda p: torch.multinomial(p, 3, replacement), scaled.contiguous())
    check_frequencies(x[:, 0], P)
    repeats = (x[:, 0] == x[:, 1]) | (x[:, 1] == x[:, 2]) | (x[:, 0] == x[:, 2])
    assert bool(repeats.any()) == replacement
    if not replacement:  # the second one, given the first
        second = x[x[:, 0] == 2][:, 1]
        check_frequencies(second, [p / 0.5 if k != 2 else 0 for k, p in enumerate(P)])


def test_multinomial_of_one_row() -> None:
    (x,) = drawn(lambda p: torch.multinomial(p, N, replacement=True), torch.tensor(P).double())
    check_frequencies(x, P)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ([[0.5, -0.1]], "multinomial expects probabilities to be finite and at least 0"),
        ([[math.inf, 0.1]], "multinomial expects probabilities to be finite and at least 0"),
        ([[math.nan, 0.1]], "multinomial expects probabilities to be finite and at least 0"),
        ([[0.5, 0.1], [0.0, 0.0]], "multinomial expects a sum of probabilities above 0"),
    ],
)
def test_multinomial_errors_of_a_run(p: list[list[float]], message: str) -> None:
    rows = Dim("rows", max=8)
    exported = to_graphs(lambda p: torch.multinomial(p, 2), (torch.ones(3, 2),), dynamic_shapes=({0: rows},))
    with pytest.raises(ReferenceFailure, match=message):
        run(exported.entries["forward"].graph, exported.store, {"p": torch.tensor(p)})
    with pytest.raises(RuntimeError):
        torch.multinomial(torch.tensor(p), 2)


def test_bernoulli() -> None:
    p = torch.linspace(0, 1, 5).repeat(N // 5)
    for program in (torch.bernoulli, lambda p: p.clone().bernoulli_(p)):
        (x,) = drawn(program, p)
        rate = x.reshape(-1, 5).mean(0)
        assert rate[0] == 0
        assert rate[4] == 1
        assert ((rate - p[:5]).abs() < 4 * (0.25 / (N / 5)) ** 0.5).all()
    for number in (0.0, 0.3, 1.0):
        (x,) = drawn(lambda p: p.clone().bernoulli_(number), p)  # noqa: B023
        check_frequencies(x, [1 - number, number])
    exported = to_graphs(lambda p: torch.bernoulli(p), (p,))
    for bad in (-0.5, 1.5, math.nan):
        with pytest.raises(ReferenceFailure, match="bernoulli expects all probabilities to be from 0 to 1"):
            run(exported.entries["forward"].graph, exported.store, {"p": torch.full_like(p, bad)})


def test_geometric() -> None:
    (x,) = drawn(lambda x: x.clone().geometric_(0.3), torch.zeros(N))
    assert x.min() == 1
    check_frequencies(x.clamp(max=10) - 1, [*(0.3 * 0.7**k for k in range(9)), 0.7**9])


@pytest.mark.parametrize("p", [0.1, 0.5, 1.0])
def test_dropouts_scale_what_they_keep(p: float) -> None:
    x = torch.randn(N)
    (y,) = drawn(lambda x: F.dropout(x, p, True), x)
    kept = y != 0
    check_frequencies(kept, [p, 1 - p])
    torch.testing.assert_close(y[kept], x[kept] / (1 - p) if p < 1 else y[kept])
    y, mask = drawn(lambda x: torch.native_dropout(x, p, True), x)
    assert torch.equal(mask, y != 0)
    assert mask.dtype is torch.bool


def test_dropouts_of_channels_and_with_moments() -> None:
    (y,) = drawn(lambda x: F.dropout2d(x, 0.4, True), torch.ones(50, 40, 3, 3))
    assert ((y == 0).all((2, 3)) | (y != 0).all((2, 3))).all()
    check_frequencies(y[:, :, 0, 0] != 0, [0.4, 0.6])
    (y,) = drawn(lambda x: F.alpha_dropout(x, 0.3, True), torch.randn(N, generator=torch.Generator().manual_seed(0)))
    assert abs(float(y.mean())) < 0.03
    assert abs(float(y.std()) - 1) < 0.03


def test_rrelu() -> None:
    x = torch.randn(N)
    (y,) = drawn(lambda x: F.rrelu(x, 0.2, 0.4, training=True), x)
    assert torch.equal(y[x > 0], x[x > 0])
    slopes = (y / x)[x < 0]
    assert abs(distance((slopes - 0.2) / 0.2, FLAT)) < 1.63 / math.sqrt(len(slopes))


def test_gumbel_softmax_picks_in_proportion() -> None:
    logits = torch.tensor([0.2, 0.3, 0.5]).log().expand(N // 4, 3).contiguous()
    (y,) = drawn(lambda x: F.gumbel_softmax(x, hard=True), logits)
    check_frequencies(y.argmax(-1), [0.2, 0.3, 0.5])


def test_complex_numbers() -> None:
    (z,) = drawn(lambda x: torch.randn(N, dtype=torch.complex64), torch.zeros(1))
    for part in (0, 1):
        assert distance(z[:, part], normal_cdf(0, math.sqrt(0.5))) < FARTHEST
    assert abs(float((z[:, 0] * z[:, 1]).mean())) < 3 / math.sqrt(N)
    (z,) = drawn(lambda x: torch.rand(N, dtype=torch.complex128), torch.zeros(1))
    assert distance(z[:, 0], FLAT) < FARTHEST
    assert not torch.equal(z[:, 0], z[:, 1])


def test_complex_numbers_between_bounds_or_about_a_mean() -> None:
    """As in eager both parts have the whole mean, and half of the variance; both lie between the bounds."""
    z = torch.zeros(N, dtype=torch.complex64)
    (normal,) = drawn(lambda x: x.clone().normal_(3, 2), z)
    (other,) = drawn(lambda x: torch.normal(3.0, 2.0, (N,), dtype=x.dtype), z)
    (uniform,) = drawn(lambda x: x.clone().uniform_(-3, 5), z)
    for found in (normal, other, uniform):
        assert not torch.equal(found[:, 0], found[:, 1])
    for part in (0, 1):
        assert distance(normal[:, part], normal_cdf(3, math.sqrt(2))) < FARTHEST
        assert distance(other[:, part], normal_cdf(3, math.sqrt(2))) < FARTHEST
        assert distance(uniform[:, part], lambda x: ((x + 3) / 8).clamp(0, 1)) < FARTHEST
    eager = [z.clone().normal_(3, 2), torch.normal(3.0, 2.0, (N,), dtype=z.dtype), z.clone().uniform_(-3, 5)]
    for ours, theirs in zip((normal, other, uniform), map(torch.view_as_real, eager), strict=True):
        torch.testing.assert_close(ours.mean(0), theirs.mean(0), rtol=0, atol=0.1)
        torch.testing.assert_close(ours.std(0), theirs.std(0), rtol=0.05, atol=0)


def test_draws_of_a_run_and_of_runs_behind_each_other_are_one_stream() -> None:
    n = Dim("n", max=64)
    exported = to_graphs(
        lambda x: (torch.rand(3), torch.rand(x.shape[0], 2)), (torch.zeros(5),), dynamic_shapes=({0: n},)
    )
    graph = exported.entries["forward"].graph
    states = {RNG_STATE: torch.tensor([3, 0])}
    found: list[torch.Tensor] = []
    for size in (4, 1, 9):
        outputs, states = results_and_states(graph, exported.store, {"x": torch.zeros(size)}, states)
        found += [t.flatten() for t in outputs]
    stream = torch.cat(found)
    (want,) = drawn(lambda x: torch.rand(len(stream)), torch.zeros(1), seed=3)
    assert torch.equal(stream, want)
    assert states[RNG_STATE].tolist() == [3, len(stream)]


def test_seeds_and_places_beyond_32_bits_count() -> None:
    exported = to_graphs(lambda x: torch.rand(8), (torch.zeros(1),))
    graph = exported.entries["forward"].graph
    places = [(0, 0), (2**32, 0), (1, 0), (-1, 0), (0, 2**32), (0, 2**40), (0, 4)]
    found = [
        results_and_states(graph, exported.store, {"x": torch.zeros(1)}, {RNG_STATE: torch.tensor(p)})[0][0]
        for p in places
    ]
    assert len({tuple(t.tolist()) for t in found}) == len(places)
    assert torch.equal(found[0][4:], found[-1][:4])


def test_no_table_of_a_drawn_size_is_stored() -> None:
    exported = to_graphs(lambda x: torch.randn(300, 300) + x, (torch.zeros(1),))
    assert sum(c.array.nbytes for c in exported.store.data.values()) < 100


def test_a_program_without_draws_has_no_state() -> None:
    for program in (lambda x: F.dropout(x, 0.5, False), lambda x: F.dropout(x, 0.0, True)):
        assert not to_graphs(program, (torch.zeros(3),)).entries["forward"].graph.states


def test_the_users_own_random_numbers_go_on() -> None:
    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.shape[0] > 1 else x + torch.rand_like(x)

    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    to_graphs(Sized().eval(), (torch.zeros(4),), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert torch.equal(torch.rand(3), want)


REFUSED: dict[str, tuple[Callable[[torch.Tensor], Any], str]] = {
    "poisson": (torch.poisson, "random numbers of this distribution have no conversion: pass them in as an input"),
    "random": (lambda x: x.clone().random_(), "random numbers of this distribution have no conversion"),
    "branch": (
        lambda x: torch.cond(x.sum() > 0, lambda v: v + torch.rand_like(v), lambda v: v + 1, (x,)),
        "random numbers inside of a branch or loop: draw them in front of it and pass them in",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    program, message = REFUSED[name]
    with pytest.raises(UnsupportedOpError, match=message):
        to_graphs(program, (torch.ones(2, 3, 4, 4),))
