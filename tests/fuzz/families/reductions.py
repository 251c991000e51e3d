"""Reductions, scans, sorts, softmaxes."""

from __future__ import annotations

from tests.fuzz.draw import Draft, Drawer, Drawn, Family
from tests.fuzz.families.forms import filled, table

REDUCTIONS = table(
    "reductions",
    4.5,
    lambda g: g.floats(),
    """
    {a}.sum({ds}, keepdim={k})  *4
    {a}.mean({ds}, keepdim={k})  *3
    {a}.amax({ds}, keepdim={k})  *2
    {a}.amin({ds}, keepdim={k})
    {a}.var({ds}, keepdim={k})
    {a}.std({ds}, keepdim={k})
    torch.std({a}, {ds}, correction=0, keepdim={k})
    torch.var_mean({a}, {ds}, correction={i}, keepdim={k})
    torch.std_mean({a}, {ds}, keepdim={k})
    torch.linalg.vector_norm({a}, 2, {ds}, keepdim={k})
    torch.linalg.vector_norm({a}, 1, {ds})
    torch.linalg.vector_norm({a}, inf, {ds})
    torch.linalg.vector_norm({a}, -inf, {ds})
    torch.linalg.vector_norm({a}, 0, {ds})
    {a}.norm(3, {d})
    {a}.logsumexp({ds}, keepdim={k})
    {a}.clamp(-1.5, 1.5).prod({d}, keepdim={k})
    {a}.max({d}, keepdim={k})[0]
    {a}.min({d}, keepdim={k})[0]
    tuple({a}.max({d}))
    tuple({a}.min({d}, keepdim=True))
    {a}.argmax({d}, keepdim={k})
    {a}.argmin({d}, keepdim={k})
    {a}.argmax()
    {a}.sum()
    {a}.mean()
    {a}.max()
    {a}.min()
    {a}.std()
    {a}.var()
    {a}.clamp(-1.1, 1.1).prod()
    {a}.contiguous().median()
    ({a} > 0).all({ds})
    ({a} > 1).any({ds})
    ({a} > 1).any()
    ({a} > -2).all({d}, keepdim={k})
    ({a} > 1).any({d}, keepdim={k})
    torch.count_nonzero({a} > 0, {d})
    torch.count_nonzero({a})
    tuple(torch.aminmax({a}, dim={d}, keepdim={k}))
    {a}.contiguous().median({d}, keepdim={k})[0]
    {a}.nansum({ds}, keepdim={k})
    {a}.nanmean({ds}, keepdim={k})
    {a}.sum({ds}, dtype=torch.float64)
    torch.dist({a}, {a} * 0.5)
    {a} - {a}.mean({d}, keepdim=True)
    {a} * {a}.sum({d}, keepdim=True)
    {a}.sum({d}) + {a}.amax({d})
    ({a} * {same}).sum({d}, keepdim={k})
    ({a} + {b}).mean({ds})
    torch.trapezoid({a}, dim={d})
    torch.quantile({a}, 0.3, dim={d})
    torch.histc({a}, 5, -2, 2)
    torch.histc({a}, 5, 0.1, 1.1)
    torch.histc({a}.round(), 30, -8, 14)
    torch.cov({a})
    """,
)

OF_INTEGERS = table(
    "reductions of integers",
    1.5,
    lambda g: g.ints(),
    """
    {a}.sum({d})
    {a}.sum({ds}, keepdim=True)
    {a}.prod({d})
    {a}.amax({d})
    {a}.amin({d})
    {a}.argmax({d})
    {a}.argmin({d})
    {a}.cumsum({d})
    {a}.cumprod({d})
    {a}.max({d})[0]
    {a}.sum()
    {a}.any({d})
    {a}.all({d})
    {a}.float().mean({d})
    {a}.sum({d}, dtype=torch.int32)
    {a}.to(torch.int8).sum({ds}, dtype=torch.int32)
    ({a} > 1).sum({ds}, dtype=torch.int32)
    {a}.to(torch.uint8).sum({ds}, keepdim=True, dtype=torch.int16)
    {a}.cummax({d})[0]
    tuple({a}.sort(dim={d}, stable=True))
    {a}.argsort(dim={d}, stable=True, descending=True)
    {a}.max()
    {a}.contiguous().median({d})[0]
    {a}.topk(min(2, {a}.shape[{d}]), {d})[0]
    ({a} == 2).sum({d})
    {a}.diff(dim={d})
    """,
)

ORDERED = table(
    "scans and sorts",
    3,
    lambda g: g.floats(),
    """
    {a}.cumsum({d})  *3
    {a}.clamp(-1.2, 1.2).cumprod({d})
    {a}.cummax({d})[0]
    {a}.cummin({d})[0]
    tuple({a}.cummax({d}))
    {a}.logcumsumexp({d})
    tuple({a}.sort(dim={d}, stable=True))
    tuple({a}.sort(dim={d}, descending=True, stable=True))
    {a}.sort(dim={d}, stable=True)[1]
    torch.sort({a}, {d})[0]
    {a}.argsort(dim={d}, stable=True)
    {a}.topk(min(3, {a}.shape[{d}]), {d}, largest={k})[0]
    {a}.gather({d}, {a}.topk(min(2, {a}.shape[{d}]), {d})[1])
    {a}.diff(dim={d})
    {a}.kthvalue(1, {d})[0]
    {a}.kthvalue({a}.shape[{d}], {d}, keepdim={k})[0]
    {a}.msort()
    torch.cumulative_trapezoid({a}, dim={d})
    ({a} * 2 + 1).cumsum({d}) - {a}
    {a}.flip({d}).cumsum({d}).flip({d})
    """,
)

SOFTMAXES = table(
    "softmaxes",
    2.5,
    lambda g: g.floats(least=1),
    """
    {a}.softmax({d})  *4
    {a}.log_softmax({d})  *2
    torch.logsumexp({a}, {d}, keepdim=True)
    F.softmin({a}, {d})
    F.normalize({a}, dim={d})
    ({a} - {a}.amax({d}, keepdim=True)).exp()
    {a}.softmax({d}, dtype=torch.float32)
    F.glu(torch.cat([{a}, {same}], {d}), {d})
    {a} / ({a}.abs().sum({d}, keepdim=True) + 1)
    {a}.renorm(2, 0, 1.0)
    F.cosine_similarity({a}, {same}, {d})
    ({a} * 0.5 + {b}).softmax({d})
    {a}.softmax({d}) * {same}
    torch.special.log_softmax({a}, {d})
    """,
)


def _rows(g: Drawer) -> Drawn:
    """Rows that are made, read again in another order or as they are, and put together with what was found."""
    r, a = g.r, g.floats(least=1)
    d, row, found = g.dim(a), g.next_name(), g.next_name(1)
    made = r.choice(
        (
            "({a} - {a}.amax(D, keepdim=True)).exp()",
            "{a}.softmax(D)",
            "({a} + {b}).tanh()",
            "{a} - {a}.mean(D, keepdim=True)",
        )
    )
    order = r.choice((row, f"{row}.flip({d})", f"{row}.roll(1, {d})", f"({row} * {row}.flip({d}))"))
    read = r.choice(
        ("{x}.sum(D, keepdim=True)", "{x}.amax(D, keepdim=True)", "{x}.mean(D, keepdim=True)", "{x}.cumsum(D)", "{x}")
    )
    last = r.choice(
        (f"{row} * {found}", f"{row} - {found}", f"{row} / ({found}.abs() + 1)", f"{row}.flip({d}) + {found}")
    )
    return [
        Draft(filled(g, made.replace("D", str(d)), a)),
        Draft(read.replace("D", str(d)).format(x=order)),
        Draft(last),
    ]


def _long_sums(g: Drawer) -> Drawn:
    """Sums of many numbers of one sign, or of one number: what is lost on the way adds up."""
    r = g.r
    n, rows = r.choice(((257, 17), (1000, 3), (1025, 2), (4097, 17), (20_000, 1), (20_011, 2), (65_537, 1)))
    d = r.choice((0, 1))
    x = g.input((rows, n) if d else (n, rows), g.main, r.choice(("positive", "level")))
    form = r.choice(
        (
            "{x}.sum({d})",
            "{x}.mean({d})",
            "{x}.var({d})",
            "{x}.cumsum({d})",
            "{x}.cumsum({d})",
            "{x}.cumsum({d}) * 0.1",
            "({x} * 0.7).cumsum({d})",
            "{x}.logsumexp({d})",
            "{x}.norm(2, {d})",
        )
    )
    return form.format(x=x, d=d)


def _norms_of_one(g: Drawer) -> Drawn:
    """Norms of one number, whose power is beyond what its type holds."""
    a, r = g.floats(least=1), g.r
    of = f"{a}[..., :1] * {r.choice((1e-25, 1e25))}"
    return f"torch.linalg.vector_norm({of}, {r.choice((2, 2, 3, -1, 0.5))}, -1, {r.random() < 0.5})"


FAMILIES = (
    REDUCTIONS,
    OF_INTEGERS,
    ORDERED,
    SOFTMAXES,
    Family("rows", 1.5, _rows),
    Family("long sums", 1, _long_sums),
    Family("norms of one number", 0.4, _norms_of_one),
)
