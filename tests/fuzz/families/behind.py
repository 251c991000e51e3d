"""Products and convolutions with what stands behind them: scales along any dimension, themselves at other places, rows by
an index, parts of them written, pieces of something larger. What is folded into a product, or computed as it is stored,
is drawn here.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.draw import Draft, Drawer, Family, Unfit
from tests.fuzz.families.forms import filled, rows
from tests.fuzz.families.layers import convolution
from tests.fuzz.families.products import COLUMNS

BEHIND = rows("""
    {a} * {scale}  *4
    {a} * {scale} + {scale}  *2
    ({a} + {scale}) * {scale}  *2
    {scale} - {a}
    {a} / ({scale}.abs() + 0.5)
    {a} * {x}
    {a}.relu() * {x} + {b}
    {a} + {there}  *3
    {a} * {there}  *2
    {a}.relu() - {there}
    torch.maximum({a} * 2, {there})
    torch.where({a} > 0, {a}, {there})
    {a}[{one}]  *3
    {a}[{one}] + 1  *2
    {a}[{one}[0]] * 2
    {a}.index_select(0, {one})
    {a}[..., :1].tanh()
    {a}[-1:] + {x}
    {a}.transpose({d}, {e}) + 1
    {a}.select({d}, -1)
    {a}.cumsum({d})
    {a}.softmax({d})
    {a}.sum({ds}) * 2
    {a} - {a}.mean({d}, keepdim=True)
    torch.cat([{a} * 2, {there}], {d})  *2
    torch.stack([{a}, {a}.sin()], {d})
    F.pad({a}.relu(), (1, 0))
    tuple({a}.chunk(2, {d}))
    {a}.to(torch.bfloat16) * {x}
    {a}.flatten() + 1
""")
WRITES = ("{a}[:1].mul_(2)", "{a}.select({d}, -1).zero_()", "{a}.narrow({d}, 0, 1).copy_({x})", "{a}[{one}] = 0.5")


def _product(g: Drawer) -> str:
    r = g.r
    if r.random() < 0.25:
        m, a, _ = convolution(g, r.choice((1, 2)))
        return f"{m}({a})"
    a = g.floats(rank=2) if r.random() < 0.6 else g.floats(least=1)
    t = g.value(a)
    depth = t.shape[-1]
    if g.is_symbolic(depth):
        if t.dim() < 2:
            raise Unfit
        return f"{a} @ {a}.mT"
    square = t.dim() > 1 and r.random() < 0.25 and not g.is_symbolic(t.shape[-2])
    n = t.shape[-2] if square else r.choice(COLUMNS)
    wide, deep, bias = g.weight((n, depth), t.dtype), g.weight((depth, n), t.dtype), g.weight((n,), t.dtype)
    return r.choice(
        (f"F.linear({a}, {wide})", f"F.linear({a}, {wide}, {bias})", f"{a} @ {deep}", f"({a} @ {deep}).relu()")
    )


def _behind(g: Drawer) -> Iterator[Draft]:
    """A product, then one to three lines, each behind it or behind the line before."""
    r, product = g.r, g.next_name()
    yield Draft(_product(g))
    if r.random() < 0.12:
        yield Draft(filled(g, r.choice(WRITES), product), True)
    a = product
    for _ in range(r.choice((1, 1, 2, 2, 3))):
        before, a = a, g.next_name()
        yield Draft(filled(g, r.choice(BEHIND), product if r.random() < 0.4 else before))


FAMILIES = (Family("behind products", 2.5, _behind),)
