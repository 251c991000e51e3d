"""Rows of the op table: scalar ops on every dtype, casts, selections, creation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch.export import Dim

from tests.codegen.compare import FLOATS, INTS, UNSIGNED, Function, Suite
from tests.support.torch_versions import TORCH

INF, NAN = math.inf, math.nan
SPECIAL = (0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 0.5, -0.5, 2.0, -2.5, 1e-30, -1e-30, 3.0, 1.5, -1.5)
OUTSIDE = tuple(
    sign * v
    for v in (NAN, INF, 300.7, 40000.9, 70000.0, 2.0**31, 2.0**31 + 513, 2.0**63, 2.0**53 - 1, 1e30)
    for sign in (1, -1)
)
"""Floats that some integer type does not hold."""


def unary_float() -> dict[str, Function]:
    """Every scalar op of one float argument, and the activations made from them."""
    names = (
        "neg abs sign floor ceil trunc round sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin "
        "acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid isnan isinf isfinite signbit square frac "
        "relu sgn logical_not"
    )
    rows: dict[str, Function] = {n: getattr(torch, n) for n in names.split()}
    rows |= {
        n: getattr(F, n)
        for n in ["silu", "hardswish", "hardsigmoid", "mish", "selu", "celu", "elu", "softplus", "relu6", "logsigmoid"]
    }
    # eager's float gelu(inf) is NaN, and gelu(-inf) by tanh; of 16 bits, GPUs make gelu(-0.0) a positive zero, and of
    # 32 bits CPUs with AVX2 alone the zeros of large negative numbers, where AVX-512 has negative ones
    rows["gelu"] = lambda x: F.gelu(x.nan_to_num(0.0, 9.0, -9.0) + 0.0) + 0.0
    rows["gelu_tanh"] = lambda x: F.gelu(x.clamp_min(-1e4) + 0.0, approximate="tanh")
    rows["leaky_relu"] = lambda x: F.leaky_relu(x, 0.1)
    rows["hardtanh"] = lambda x: F.hardtanh(x, -0.5, 0.75)
    rows["clamp"] = lambda x: x.clamp(-0.25, 1.25)
    rows["clamp_min"] = lambda x: x.clamp_min(0.25)
    rows["zero_limits"] = lambda x: (
        *(x.clamp(low, high) for low in (0.0, -0.0, -1.0, NAN) for high in (0.0, -0.0, 1.0)),
        *(f(x, zero) for f in (torch.clamp_min, torch.clamp_max) for zero in (0.0, -0.0)),
        F.hardtanh(x, 0.0, 1.0), F.hardtanh(x, -1.0, 0.0), F.threshold(x, 0.5, -0.0), F.leaky_relu(x, 0.0),
    )  # fmt: skip
    rows["zero_terms"] = lambda x: (-x, x + 0.0, x + -0.0, x - 0.0, x - -0.0, 0.0 - x, x / 0.0, x / -0.0, 0.0 * x)
    rows["roots"] = lambda x: (x.pow(0.5), x.pow(-0.5), x.pow(-2), x.pow(4), x.pow(1.5))
    rows["rsub"] = lambda x: 1.5 - x
    rows["pow_scalar"] = lambda x: (x.pow(2), x.pow(3), x.abs().pow(0.5), x.pow(-1), x.pow(0), 2.0**x)
    rows["scalar_arithmetic"] = lambda x: (x + 1, x * 0.1, x / 3, x - 2, 1 / x, x // 2, x % 3, x % -3, torch.fmod(x, 2))
    rows["negative_zero"] = lambda x: (x * 0.0, x * -0.0, torch.where(x > 0, 0.0, -0.0), torch.where(x > 0, -0.0, 0.0))
    rows["angle"] = lambda x: torch.angle(x)
    rows["nan_to_num"] = lambda x: torch.nan_to_num(x, 1.0, 2.0, 3.0)
    rows["masked_fill"] = lambda x: x.masked_fill(x > 0.5, -7.0)
    rows["logit"] = lambda x: torch.logit(x, 0.1)
    s = torch.special
    rows["bessel"] = lambda x: [f(y) for f in (torch.i0, s.i0e, s.i1, s.i1e) for y in (x, x * 9)]
    rows["digamma"] = lambda x: [torch.digamma(y) for y in (x, x * 5, x.abs() * 40)]
    # eager's is infinite at no negative integer, and of f64 has the accuracy of f32
    rows["trigamma"] = lambda x: [torch.polygamma(1, y) for y in (x.float().clamp_min(-0.9), x.abs().float() * 40)]
    rows["erfinv"] = lambda x: torch.erfinv(x.clamp(-0.875, 0.875))
    return rows


def next_floats(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """By their bits: a neighbour is within any tolerance."""
    found: list[torch.Tensor] = []
    kinds = {torch.float32: torch.int32, torch.float64: torch.int64}
    for dtype, bits in (kinds | dict.fromkeys((torch.float16, torch.bfloat16), torch.int16)).items():
        a, b = x.to(dtype), y.to(dtype)
        ends = torch.where(a > 0, torch.inf, a)
        pairs = ((a, b), (b, a), (a * 0, b), (a * 0, -b), (a, a), (ends, b), (a, ends), (-ends, -a), (a, b[:1]))
        found += [torch.nextafter(p, q).nan_to_num(9.0).view(bits) for p, q in pairs]
    return found


def binary_float() -> dict[str, Function]:
    names = "add sub mul div maximum minimum atan2 copysign eq ne lt le gt ge fmax fmin hypot"
    rows: dict[str, Function] = {n: getattr(torch, n) for n in names.split()}
    rows["div_floor"] = lambda x, y: torch.div(x, y, rounding_mode="floor")
    rows["div_trunc"] = lambda x, y: torch.div(x, y, rounding_mode="trunc")
    rows["remainder"], rows["fmod"] = torch.remainder, torch.fmod
    rows["pow"] = lambda x, y: (torch.pow(x, y), torch.pow(x.abs(), y))
    rows["where"] = lambda x, y: torch.where(x > y, x, y * 2)
    rows["nextafter"] = next_floats
    rows["lerp"] = lambda x, y: torch.lerp(x, y, 0.25)
    rows["addcmul"] = lambda x, y: torch.addcmul(x, x, y, value=0.5)
    rows["logical"] = lambda x, y: (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y))
    rows["add_alpha"] = lambda x, y: (torch.add(x, y, alpha=0.5), torch.sub(x, y, alpha=3))
    rows["row"] = lambda x, y: x + y[:1]
    rows["column"] = lambda x, y: x * y[:, :1]
    rows["by_column"] = lambda x, y: [x / (z[:, :1] * f) for z in (y, y.flip(1)) for f in (1.0, 1e-12, 1e38)]
    rows["by_largest"] = lambda x, y: (y / y.abs().amax(1, keepdim=True)).floor()
    rows["broadcast_both"] = lambda x, y: x[:, :1] - y[:1]
    rows["rank"] = lambda x, y: (x[None] + y[:, None], x * y[0])
    rows["same_twice"] = lambda x, y: (x + y, x + y, (x + y) * (x + y))
    return rows


def special(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random numbers of which the first few are the special ones, in an order that `seed` gives."""
    g = torch.Generator().manual_seed(seed)
    x = (torch.randn(rows, columns, generator=g, dtype=torch.float64) * 2).flatten()
    values = torch.tensor(SPECIAL, dtype=torch.float64)[torch.randperm(len(SPECIAL), generator=g)]
    n = min(len(values), x.numel())
    x[:n] = values[:n]
    return x.reshape(rows, columns).to(dtype)


def pairs(dtype: torch.dtype) -> torch.Tensor:
    """Every special value with every other, as two rows of tables."""
    v = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    return torch.stack(torch.meshgrid(v, v, indexing="ij"))


def int_rows() -> dict[str, Function]:
    names = (
        "add sub mul maximum minimum eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor fmod remainder "
        "logical_and logical_or logical_xor gcd"
    )
    rows: dict[str, Function] = {n: getattr(torch, n) for n in names.split()}
    for mode in ("floor", "trunc"):
        rows[f"div_{mode}"] = lambda x, y, mode=mode: torch.div(x, y, rounding_mode=mode)
    rows["true_divide"] = torch.true_divide
    rows["shift"] = lambda x, y: (x << (y & 3), x >> (y & 3), x << 1, x >> 2)
    rows["shift_far"] = lambda x, y: (x << y, x >> y, x << (y * 9), x >> (y * 9), x << 9, x >> 9, x << 64, x >> 64)
    rows["pow"] = lambda x, y: (torch.pow(x, y & 3), x.pow(2), x.pow(3))
    rows["unary"] = lambda x, y: (x.abs(), x.sign(), x.bitwise_not(), x.logical_not(), x * x, -x)
    rows["scalars"] = lambda x, y: (x + 3, x * 2, x // 3, x % 5, 7 - x, x.clamp(2, 4), x.clamp_min(1), x.clamp_max(3))
    rows["hardtanh"] = lambda x, y: (F.hardtanh(x, 0.0, 4.5), F.hardtanh(x, 1.9, 3.0))
    rows["where"] = lambda x, y: torch.where(x > y, x, y)
    rows["lowest"] = lambda x, y: at_lowest(torch.full_like(x, torch.iinfo(x.dtype).min), y.sign())
    rows["to_float"] = lambda x, y: (x.float() * 0.5, x.sqrt().nan_to_num(), x / y, x.double())
    return rows


def unsigned_rows() -> dict[str, Function]:
    """What eager has for integers without a sign of 16 and 32 bits, between tensors or with numbers and floats."""
    names = "mul eq ne bitwise_and bitwise_or bitwise_xor true_divide"
    rows: dict[str, Function] = {n: getattr(torch, n) for n in names.split()}
    rows["scalars"] = lambda x, y: (x * 3, x * -1, x & 0xF0F, x | 1, x ^ 5, x == 7, x != 3, x + 1.5, x / 3, x == 2.5)
    if TORCH >= (2, 13):
        rows["where"] = lambda x, y: (torch.where(x != y, x, y), torch.where(y == 1, x, 5), torch.where(y == 1, 2.5, x))
        rows["signbit"] = lambda x, y: x.signbit()
    rows["unary"] = lambda x, y: (x.bool(), x.floor(), x.round(), x.sqrt(), x.exp(), x.isnan())
    rows["fill"] = lambda x, y: (torch.zeros_like(x), torch.full_like(x, 40000), torch.ones(3, dtype=x.dtype))
    rows["reduce"] = lambda x, y: (x.sum(), x.sum(1), x.prod(0), x.any(1), x.all(), x.cumsum(1), x.float().mean())
    rows["sums"] = lambda x, y: (x.sum(0, dtype=torch.float32), x.cumsum(1, dtype=torch.int32), x.cumprod(0))
    rows["views"] = lambda x, y: (
        x.t(),
        x[1:, ::3],
        x.flip(0),
        x.reshape(33, 5),
        x.roll(2, 0),
        x.repeat(2, 1),
        x[:, None],
    )
    rows["joins"] = lambda x, y: (torch.cat([x, y]), torch.stack([x, y], 1), F.pad(x, (1, 2)), torch.cat([x, y * 3], 1))
    rows["pick"] = lambda x, y: (
        x[y[0, :4].long() % 5],
        x.index_select(1, y[1:4, 0].int() % 33),
        F.embedding(y[1:].int() % 5, x),
    )
    rows["write"] = lambda x, y: (torch.slice_scatter(x, y[:2], 0, 1, 3), torch.select_scatter(x, y[0], 0, 2))
    rows["sort"] = lambda x, y: (x.sort(dim=1, stable=True), x.sort(dim=0, descending=True, stable=True))
    rows["computed"] = lambda x, y: ((x.long() + y.long()).to(x.dtype), (x.int() - y.int()).to(x.dtype) ^ y)
    return rows


def at_lowest(low: torch.Tensor, sign: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What leaves the range at its lower end; eager's truncating division by -1 ends the process."""
    return low // sign, torch.remainder(low, sign), low * sign, low.abs(), -low, low - 1


def bool_rows() -> dict[str, Function]:
    names = "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor eq ne"
    rows: dict[str, Function] = {n: getattr(torch, n) for n in names.split()}
    rows["not"] = lambda x, y: (~x, x.logical_not())
    rows["clamp"] = lambda x, y: (torch.clamp(x, min=y), torch.clamp(x, max=y))
    rows["order"] = lambda x, y: (x < y, x <= y, x > y, x >= y)
    rows["where"] = lambda x, y: (torch.where(x, y, ~y), torch.where(x, 1.5, -2.0), torch.where(x, 3, 4))
    rows["arithmetic"] = lambda x, y: (x + 1, x * 2.5, x.sum(), (x & y).sum(1), x.int() - y.int())
    rows["scaled"] = lambda x, y: (x.add(y, alpha=0), x.add(y, alpha=2), x.add(True, alpha=False))
    rows["any_all"] = lambda x, y: (x.any(), x.all(), x.any(0), x.all(1), x.any(1, keepdim=True))
    return rows


DTYPES = (*FLOATS, *INTS, *UNSIGNED, torch.bool)


def cast_rows() -> dict[str, Function]:
    """From every dtype to every other; the arguments are one tensor a dtype."""
    rows: dict[str, Function] = {}
    for k, source in enumerate(DTYPES):
        for target in DTYPES:
            if source is not target:
                rows[f"{source}_to_{target}"] = lambda *xs, k=k, target=target: xs[k].to(target)
    return rows


def creation_rows() -> dict[str, Function]:
    return {
        "full": lambda x: (
            torch.full_like(x, 2.5),
            torch.ones_like(x, dtype=torch.int32),
            torch.zeros(3, 4) + x[:1, :1],
        ),
        "arange": lambda x: (
            torch.arange(7),
            torch.arange(2, 11, 3),
            torch.arange(5.0) * x[0, 0],
            torch.arange(x.shape[0]),
        ),
        "eye": lambda x: torch.eye(4, 6) * x[0, 0],
        "linspace": lambda x: torch.linspace(0, 1, 9) + x[0, 0],
        "tril_triu": lambda x: (x.tril(), x.triu(1), x.tril(-1), x.triu(-2)),
        "one_hot": lambda x: F.one_hot(torch.arange(5) % 3, 4),
        "position": lambda x: x + torch.arange(x.shape[1], dtype=x.dtype),
        "mask": lambda x: torch.arange(x.shape[1])[None, :] <= torch.arange(x.shape[0])[:, None],
        "size": lambda x: x.sum() / x.shape[0] + x.numel(),
    }


def float_suites() -> Iterator[Suite]:
    """Of one argument and of two, with sizes that vary where that is quick."""
    for dtype in FLOATS:
        n = str(dtype).removeprefix("torch.")
        args = [special(5, 37, dtype, 1), special(5, 37, dtype, 2)]
        small = dtype in (torch.float16, torch.bfloat16)
        # erfinv and lgamma lose digits near zeros; eager computes both in float there as we do
        yield Suite(
            f"unary_{n}", unary_float(), [args[:1], [pairs(dtype)[0][:5].repeat(1, 3)[:, :37]]], None, 1.0, True
        )
        dynamic = None if small else ({0: Dim.AUTO, 1: Dim.AUTO},) * 2
        both = [special(r, c, dtype, s) for r, c in ((6, 35),) for s in (4, 5)]
        more = [args] if small else [args, [special(1, 1, dtype, 6)] * 2, [special(2, 70, dtype, s) for s in (7, 8)]]
        rows = binary_float()
        if small:
            del rows["div_trunc"]  # eager rounds the quotient to 16 bits before it truncates
        yield Suite(f"binary_{n}", rows, [both, *more] if not small else [args], dynamic, 1.0, True)


def special_suites() -> Iterator[Suite]:
    """Every special value with every other; rows that take other shapes apart have no place here."""
    shaped = ("row", "column", "by_column", "by_largest", "broadcast_both", "rank")
    for dtype in FLOATS[:2]:
        rows = {k: v for k, v in binary_float().items() if k not in shaped}
        rows["clamp_tensors"] = lambda x, y: (torch.clamp(x, min=y), torch.clamp(x, max=y), torch.clamp(x, y, y + 1))
        yield Suite(f"special_{str(dtype)[6:]}", rows, [list(pairs(dtype))], None, 1.0, True)


def int_suites(g: torch.Generator) -> Iterator[Suite]:
    """The ends of each type's range among random numbers, by divisors that are never 0."""
    for dtype in INTS:
        low = 0 if dtype is torch.uint8 else -40
        x = torch.randint(low, 40, (5, 33), generator=g).to(dtype)
        y = torch.randint(1, 9, (5, 33), generator=g).to(dtype) * (
            1 if low == 0 else 2 * torch.randint(0, 2, (5, 33), generator=g).to(dtype) - 1
        )
        edge = torch.iinfo(dtype)
        x[0, :4] = torch.tensor([edge.min, edge.max, edge.min + 1, edge.max - 1], dtype=dtype)
        y[0, :4] = torch.tensor([2, 3, 7, 5], dtype=dtype)
        yield Suite(f"int_{str(dtype)[6:]}", int_rows(), [[x, y]])


def unsigned_suites() -> Iterator[Suite]:
    """The ends of each type's range among small numbers."""
    for dtype in UNSIGNED:
        g = torch.Generator().manual_seed(5)
        x, y = (torch.randint(0, 40, (5, 33), generator=g).to(dtype) for _ in range(2))
        top = torch.iinfo(dtype).max
        x[0, :5] = torch.tensor([0, top, top - 1, top // 2, top // 2 + 1], dtype=dtype)
        x[3, 7:9] = torch.tensor([top // 2 + 3, top - 9], dtype=dtype)
        y[0, :4] = torch.tensor([top, 3, 1, top], dtype=dtype)
        yield Suite(f"unsigned_{str(dtype)[6:]}", unsigned_rows(), [[x, y]])


def bool_suite(g: torch.Generator) -> Suite:
    b = torch.rand(4, 37, generator=g) > 0.5
    c = torch.rand(4, 37, generator=g) > 0.5
    dynamic = ({0: Dim.AUTO, 1: Dim.AUTO},) * 2
    return Suite("bool", bool_rows(), [[b, c], [b[:0], c[:0]], [b[:1, :1], c[:1, :1]]], dynamic)


def cast_suites(g: torch.Generator) -> Iterator[Suite]:
    values = torch.randint(-100, 100, (3, 37), generator=g)
    sources = [values.to(d) if d not in (torch.uint8, *UNSIGNED) else values.abs().to(d) for d in DTYPES[:-1]]
    sources[:4] = [s + torch.rand(3, 37, generator=g).to(s.dtype) for s in sources[:4]]
    yield Suite("casts", cast_rows(), [[*sources, values > 0]])
    beside_ties = 1 + torch.tensor([s * 2.0**-k for k in (8, 9, 11, 12) for s in (1, -1)], dtype=torch.float64)
    beside_ties = torch.cat([beside_ties + 2.0**-40, beside_ties - 2.0**-40])
    yield Suite("casts_by_way_of_f32", {"halves": lambda x: (x.half(), x.bfloat16(), (x * 3).half())}, [[beside_ties]])
    far = torch.tensor(OUTSIDE, dtype=torch.float64)
    to_int = {k: f for k, f in cast_rows().items() if "float" in k.split("_to_")[0] and "int" in k.split("_to_")[1]}
    # eager's loops over vectors and over single elements differ in what uint32 does not hold
    narrow = {k: f for k, f in to_int.items() if not k.endswith("uint32")}
    yield Suite("casts_outside", narrow, [[*(far.to(d) for d in FLOATS)]])
    inside = torch.tensor([2.0**32 - 2.0**24, 2.0**31, 3e9, 65535.5, 7.9, -0.9, -3.5, -(2.0**30)], dtype=torch.float64)
    wide = {k: f for k, f in to_int.items() if k.endswith("uint32") and "float16" not in k}
    yield Suite("casts_uint32", wide, [[*(inside.to(d) for d in FLOATS)]])
    tops = [torch.iinfo(d).max - torch.arange(9).to(torch.int64) * 4099 % 60000 for d in UNSIGNED]
    of_top = {k: f for k, f in cast_rows().items() if k.startswith(("torch.uint16_to", "torch.uint32_to"))}
    whole = [torch.zeros(9, dtype=d) for d in (*FLOATS, *INTS)]
    yield Suite("casts_unsigned", of_top, [[*whole, *(t.to(d) for t, d in zip(tops, UNSIGNED, strict=True))]])


def creation_suites(g: torch.Generator) -> Iterator[Suite]:
    x = torch.randn(5, 7, generator=g)
    yield Suite("creation", creation_rows(), [[x]])
    yield Suite("creation_dynamic", creation_rows(), [[x], [x[:1, :1]], [x[:2, :4]]], ({0: Dim.AUTO, 1: Dim.AUTO},))


def bitcast_rows() -> dict[str, Function]:
    """The bits of one dtype as another of its size."""
    return {
        "views": lambda x, y: (
            x.view(torch.int32),
            (x * 2).view(torch.int32) & 255,
            y.view(torch.float32),
            (y >> 1).view(torch.float32),
        ),
        "unsigned": lambda x, y: (
            x.view(torch.uint32),
            y.view(torch.uint32).view(torch.float32),
            x.bfloat16().view(torch.uint16),
            (y.to(torch.int16) * 3).view(torch.uint16).view(torch.float16),
            x.view(torch.uint32) & 0xFFFF,
        ),
        "halves": lambda x, y: [
            z
            for half in (torch.float16, torch.bfloat16)
            for z in (
                x.to(half).view(torch.int16),
                (x.to(half) * 3).view(torch.int16) + 1,
                y.to(torch.int16).bitwise_and(0x3FFF).view(half),
                x.to(half).view(torch.float16).view(torch.bfloat16) * 2,
            )
        ],
    }


def suites() -> Iterator[Suite]:
    """All suites of this file."""
    g = torch.Generator().manual_seed(3)
    yield from float_suites()
    yield from special_suites()
    yield from int_suites(g)
    yield from unsigned_suites()
    yield bool_suite(g)
    yield from cast_suites(g)
    yield from creation_suites(g)
    x, y = torch.randn(3, 20, generator=g), torch.randint(0, 1 << 30, (3, 20), generator=g, dtype=torch.int32)
    yield Suite("bitcast", bitcast_rows(), [[x, y]])
