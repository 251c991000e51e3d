"""Random numbers: torch's draws in words of Philox. The numbers are not eager's, their distributions are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hardtack.codegen.ir.expr import Expr, as_expr
from hardtack.codegen.ir.graph import TensorType
from hardtack.codegen.ir.types import INT_RANGE, DType
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.complex import converts_complex
from hardtack.exporter.convert.philox import plain, words
from hardtack.exporter.convert.table import ComplexValue, Result, Value, converts, refuses
from hardtack.exporter.errors import Refusal

_BITS = {DType.F16: 11, DType.BF16: 8, DType.F32: 24}
"""How many bits a number of the type holds."""


def _ratio(b: Builder, word: Value, bits: int, offset: float = 0.0) -> Value:
    """(the first bits of a word + offset) / 2^bits, in f32."""
    whole = b.to(b.pw("shr", word, 32 - bits), DType.F32)
    return b.pw("mul", b.pw("add", whole, offset) if offset else whole, 2.0**-bits)


def _double(b: Builder, high: Value, low: Value, bits: int, offset: float = 0.0) -> Value:
    """The same of two words, in f64."""
    rest = bits - 27
    whole = b.pw("or", b.pw("shl", b.pw("shr", high, 5), rest), b.pw("shr", low, 32 - rest))
    number = b.to(whole, DType.F64)
    return b.pw("mul", b.pw("add", number, offset) if offset else number, 2.0**-bits)


def uniform(b: Builder, shape: Sequence[Expr], dtype: DType) -> Value:
    """From 0 to below 1, of as many bits as the type holds, so that none is rounded to 1."""
    w = words(b, shape)
    if dtype is DType.F64:
        return _double(b, w[0], w[1], 53)
    if dtype not in _BITS:
        raise Refusal(f"random numbers of {dtype}")
    return b.to(_ratio(b, w[0], _BITS[dtype]), dtype)


def inner(b: Builder, shape: Sequence[Expr], dtype: DType) -> Value:
    """Between 0 and 1, neither of which is drawn, so that both have a logarithm; of half types f32."""
    w = words(b, shape)
    return _double(b, w[0], w[1], 52, 0.5) if dtype is DType.F64 else _ratio(b, w[0], 23, 0.5)


def normal(b: Builder, shape: Sequence[Expr], dtype: DType) -> Value:
    """Of mean 0 and deviation 1, by Box and Muller; of half types f32, rounded by whoever asks."""
    w = words(b, shape)
    if dtype is DType.F64:
        size, turn = _double(b, w[0], w[1], 52, 0.5), _double(b, w[2], w[3], 53)
    else:
        size, turn = _ratio(b, w[0], 32, 0.5), _ratio(b, w[1], 24)
    radius = b.pw("sqrt", b.pw("mul", b.pw("log", size), -2.0))
    return b.pw("mul", radius, b.pw("cos", b.pw("mul", turn, 2 * math.pi)))


def whole(b: Builder, shape: Sequence[Expr], low: Any, high: Any) -> Value:
    """Whole numbers of i64 from low to below high, of 63 bits' remainder."""
    if isinstance(low, int) and isinstance(high, int):
        if low >= high:
            raise Refusal(f"random whole numbers from {low} to below {high}: there is none")
        if high - low > INT_RANGE[DType.I64][1]:
            raise Refusal(f"random whole numbers from {low} to below {high}: at most 2^63 - 1 are different")
    elif not all(isinstance(n, (int, Expr)) for n in (low, high)):
        raise Refusal("random whole numbers up to a number of the run: draw from 0 to 1 and multiply")
    else:
        b.require("lt", as_expr(low), as_expr(high), "random whole numbers need one to choose")
    w = words(b, shape)
    drawn = b.pw("or", b.pw("shl", b.pw("and", w[1], 0x7FFFFFFF), 32), w[0])
    count = as_expr(high) - as_expr(low)
    return b.pw("add", b.pw("remainder", drawn, plain(count)), plain(as_expr(low)))


@converts("aten.rand.default", "aten.rand_like.default")
def _rand(b: Builder, *_: Any, **__: Any) -> Value:
    return uniform(b, b.result.shape, b.result.dtype)


@converts("aten.randn.default", "aten.randn_like.default")
def _randn(b: Builder, *_: Any, **__: Any) -> Value:
    return b.to(normal(b, b.result.shape, b.result.dtype), b.result.dtype)


@converts_complex("rand.default", "rand_like.default", kind="rand")
@converts_complex("randn.default", "randn_like.default", kind="randn")
def _complex(b: Builder, *_: Any, kind: str, **__: Any) -> ComplexValue:
    """Both parts drawn; of normal ones each has half of the variance."""
    shape, dtype = b.result.shape, b.result.dtype
    if kind == "rand":
        return ComplexValue(uniform(b, shape, dtype), uniform(b, shape, dtype))
    parts = [b.pw("mul", normal(b, shape, dtype), math.sqrt(0.5)) for _ in range(2)]
    return ComplexValue(*parts)


@converts("aten.randint.default", "aten.randint_like.default", "aten.randint_like.low_dtype", "aten.randint.low")
def _randint(b: Builder, *args: Any, **_: Any) -> Value:
    bounds = [x for x in args if not isinstance(x, (Value, list))]
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds
    return b.to(whole(b, b.result.shape, low, high), b.result.dtype)


@converts("aten.random.to", "aten.random.from")
def _random(b: Builder, x: Value, *bounds: Any) -> Value:
    low, high = bounds if len(bounds) > 1 else (0, bounds[0])
    if high is None:
        raise Refusal("random_ without an upper bound: give one")
    return b.to(whole(b, x.shape, low, high), x.dtype)


@converts("aten.randperm.default")
def _randperm(b: Builder, n: Any, **_: Any) -> Value:
    """The order of random numbers of 62 bits."""
    w = words(b, b.result.shape)
    drawn = b.pw("or", b.pw("shl", b.pw("and", w[1], 0x3FFFFFFF), 32), w[0])
    return b.to(b.multi("sort", drawn, dim=0, descending=False)[1], b.result.dtype)


def _checked(b: Builder, good: Value, message: str) -> None:
    """An error during the run, as eager raises it, where `good` is false somewhere."""
    b.multi("assert", b.reduce(good, "all", range(good.rank), False), message=message)


def _deviation(b: Builder, std: Any) -> Any:
    if isinstance(std, Value):
        _checked(b, b.pw("ge", std, 0), "normal expects all elements of std to be at least 0")
    elif not std >= 0:
        raise Refusal(f"normal numbers of deviation {std}: give one of at least 0")
    return std


@converts(
    "aten.normal.Tensor_Tensor", "aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.float_float"
)
def _normal(b: Builder, mean: Any, std: Any = 1.0, *_: Any, **__: Any) -> Value:
    shape, dtype = b.result.shape, b.result.dtype
    scaled = b.pw("mul", normal(b, shape, dtype), _wide(b, _deviation(b, std)))
    return b.to(b.pw("add", scaled, _wide(b, mean)), dtype)


def _wide(b: Builder, x: Any) -> Any:
    return b.wide(x) if isinstance(x, Value) else x


@converts("aten.normal_functional.default")
def _normal_in_place(b: Builder, x: Value, mean: Any = 0.0, std: Any = 1.0, **_: Any) -> Value:
    return _normal(b, mean, std)


@converts_complex("normal.float_float")
def _complex_normal(b: Builder, mean: Any, std: Any = 1.0, *_: Any, **__: Any) -> ComplexValue:
    """Of each part half of the variance, and, as in eager, the whole mean."""
    drawn, scale = _complex(b, kind="randn"), _deviation(b, std)
    parts = [b.pw("add", b.pw("mul", part, scale), mean) for part in (drawn.re, drawn.im)]
    return ComplexValue(*parts)


@converts_complex("normal_functional.default")
def _complex_normal_in_place(b: Builder, x: ComplexValue, mean: Any = 0.0, std: Any = 1.0, **_: Any) -> ComplexValue:
    found: ComplexValue = _complex_normal(b, mean, std)
    return found


@converts("aten.log_normal.default")
def _log_normal(b: Builder, x: Value, mean: float = 1.0, std: float = 2.0, **_: Any) -> Value:
    drawn = b.pw("add", b.pw("mul", normal(b, x.shape, x.dtype), _deviation(b, std)), mean)
    return b.to(b.pw("exp", drawn), x.dtype)


@converts("aten.uniform.default")
def _uniform(b: Builder, x: Value, low: float = 0.0, high: float = 1.0, **_: Any) -> Value:
    if low > high:
        raise Refusal(f"random numbers from {low} to {high}: there is none")
    drawn = b.wide(uniform(b, x.shape, x.dtype))
    return b.to(b.pw("add", b.pw("mul", drawn, high - low), low), x.dtype)


@converts_complex("uniform.default")
def _complex_uniform(b: Builder, x: ComplexValue, *bounds: float, **_: Any) -> ComplexValue:
    return ComplexValue(_uniform(b, x.re, *bounds), _uniform(b, x.im, *bounds))


@converts("aten.exponential.default")
def _exponential(b: Builder, x: Value, rate: float = 1.0, **_: Any) -> Value:
    if not rate > 0:
        raise Refusal(f"exponential numbers of rate {rate}: give one above 0")
    return b.to(exponential(b, x.shape, x.dtype, rate), x.dtype)


def exponential(b: Builder, shape: Sequence[Expr], dtype: DType, rate: float = 1.0) -> Value:
    """Above 0; of half types f32."""
    return b.pw("mul", b.pw("log", inner(b, shape, dtype)), -1.0 / rate)


@converts("aten.cauchy.default")
def _cauchy(b: Builder, x: Value, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Value:
    if not sigma > 0:
        raise Refusal(f"Cauchy's numbers of scale {sigma}: give one above 0")
    angle = b.pw("mul", b.pw("sub", inner(b, x.shape, x.dtype), 0.5), math.pi)
    return b.to(b.pw("add", b.pw("mul", b.pw("tan", angle), sigma), median), x.dtype)


@converts("aten.geometric.default")
def _geometric(b: Builder, x: Value, p: float, **_: Any) -> Value:
    """How many trials until one succeeds: at least 1."""
    if not 0 < p < 1:
        raise Refusal(f"numbers of trials of probability {p}: give one between 0 and 1")
    number = b.pw("mul", b.pw("log", inner(b, x.shape, DType.F64)), 1 / math.log1p(-p))
    return b.to(b.pw("max", b.pw("ceil", number), 1.0), x.dtype)


def _hits(b: Builder, shape: Sequence[Expr], p: Any) -> Value:
    """True with probability p each, a tensor or a number; as bool."""
    if isinstance(p, Value):
        wide = b.wide(p) if p.dtype.is_float else b.to(p, DType.F32)
        inside = b.op("and", b.pw("ge", wide, 0.0), b.pw("le", wide, 1.0))
        _checked(b, inside, "bernoulli expects all probabilities to be from 0 to 1")
        return b.pw("lt", uniform(b, shape, wide.dtype), wide)
    if not 0 <= p <= 1:
        raise Refusal(f"a probability of {p}: give one from 0 to 1")
    return b.pw("lt", uniform(b, shape, DType.F32), _single(p))


def _single(p: float) -> float:
    """What of 2^24 steps below 1 is nearest to a probability, so that 0 and 1 are kept."""
    return round(p * 2**24) / 2**24


@converts("aten.bernoulli.default")
def _bernoulli(b: Builder, p: Value, **_: Any) -> Value:
    return b.to(_hits(b, p.shape, p), b.result.dtype)


@converts("aten.bernoulli.p", "aten.bernoulli.Tensor")
def _bernoulli_like(b: Builder, x: Value, p: Any = 0.5, **_: Any) -> Value:
    return b.to(_hits(b, x.shape, p), b.result.dtype)


@converts("aten.native_dropout.default")
def _native_dropout(b: Builder, x: Value, p: float, train: bool | None) -> Result:
    """x with elements set to 0 with probability p and the others divided by 1 - p, and which are kept."""
    if train is False or p == 0:
        return x, b.full(x.shape, True, DType.BOOL)
    kept = _hits(b, x.shape, 1 - p)
    if p == 1:
        return b.full(x.shape, 0, x.dtype), kept
    factor = b.where(kept, 1 / (1 - p), 0.0, DType.F64 if x.dtype is DType.F64 else DType.F32)
    return b.to(b.pw("mul", b.wide(x), factor), x.dtype), kept


@converts("aten.dropout.default")
def _dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    return _native_dropout(b, x, p, train)[0] if train and p else x  # type: ignore[index,return-value]


@converts("aten.rrelu_with_noise_functional.default")
def _rrelu(
    b: Builder, x: Value, noise: Value, lower: float = 0.125, upper: float = 1 / 3, training: bool = False, **_: Any
) -> Result:
    """x above 0, and x times a random slope elsewhere; the slopes, 1 above 0."""
    positive = b.pw("gt", x, 0)
    if not training:
        return b.where(positive, x, b.pw("mul", x, (lower + upper) / 2), x.dtype), noise
    drawn = b.wide(uniform(b, x.shape, x.dtype))
    slope = b.where(positive, 1.0, b.pw("add", b.pw("mul", drawn, upper - lower), lower), drawn.dtype)
    return b.to(b.pw("mul", b.wide(x), slope), x.dtype), b.to(slope, x.dtype)


@converts("aten.multinomial.default")
def _multinomial(b: Builder, p: Value, count: Any, replacement: bool = False, **_: Any) -> Value:
    """Indices with probabilities in proportion to p, along the last dimension."""
    wide = b.wide(p)
    total = b.reduce(wide, "sum", [p.rank - 1], True)
    finite = b.op("and", b.pw("ge", wide, 0.0), b.pw("lt", wide, math.inf))
    _checked(b, finite, "multinomial expects probabilities to be finite and at least 0")
    _checked(b, b.pw("gt", total, 0.0), "multinomial expects a sum of probabilities above 0")
    if replacement:
        return _with_replacement(b, wide, count)
    b.require("le", as_expr(count), p.shape[-1], "multinomial takes no more without replacement than there is")
    # the least of exponential numbers of these rates: 1 / rate of them, and so on without the first
    race = b.pw("div", wide, exponential(b, p.shape, wide.dtype))
    stated = (TensorType(race.dtype, b.result.shape), TensorType(DType.I64, b.result.shape))
    return b.multi("topk", race, stated=stated, dim=p.rank - 1, largest=True)[1]


def _with_replacement(b: Builder, p: Value, count: Any) -> Value:
    """For each number, how many sums of the first probabilities lie up to it: never one whose probability is 0."""
    sums = b.op("scan", p, kind="sum", dim=p.rank - 1)
    total = b.slice(sums, p.rank - 1, p.shape[-1] - 1, 1)
    shape = (*p.shape[:-1], as_expr(count))
    at = b.unsqueeze(b.pw("mul", b.wide(uniform(b, shape, p.dtype)), total), -1)
    below = b.reduce(b.to(b.pw("le", b.unsqueeze(sums, -2), at), DType.I64), "sum", [p.rank], False)
    last = b.reduce(b.to(b.pw("lt", sums, total), DType.I64), "sum", [p.rank - 1], True)
    return b.pw("min", below, last)


refuses(
    "numbers of a torch.Generator: leave the generator out; the seed is set where the model runs (Session.seed)",
    "rand.generator randn.generator randint.generator randint.low_generator randperm.generator",
)
refuses(
    "random numbers of this distribution have no conversion: pass them in as an input",
    "poisson binomial random.default standard_gamma _standard_gamma _sample_dirichlet",
)
