"""Indexing: gathers and scatters of every spelling, with indices that are weights, inputs or computed."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Drawer, Drawn, Family, Unfit
from tests.fuzz.families.forms import filled, table


def _indices(g: Drawer, shape: tuple[int, ...], n: int, least: int = 0) -> str:
    """Integers below n: a buffer, an input, or computed from one."""
    kind = g.r.choice(("buffer", "buffer", "input", "computed"))
    if kind == "buffer":
        return g.weight(shape, torch.int64, "index", (least, n), "buffer")
    given = g.input(shape, torch.int64, "index", (least, n))
    return given if kind == "input" or least < 0 else f"(({given} + 1) % {n})"


def _indexed(g: Drawer) -> tuple[str, torch.Tensor, int, int]:
    """A value to be indexed: its name, itself, a dimension that is not empty, and its size."""
    a = g.anything()
    t = g.value(a)
    d = g.dim(a) % t.dim()
    if t.shape[d] == 0:
        raise Unfit
    return a, t, d, t.shape[d]


def _gathers(g: Drawer) -> Drawn:
    r, (a, t, d, n) = g.r, _indexed(g)
    if g.is_symbolic(n):
        raise Unfit
    k = r.choice((1, 1, 2, 3, 5))
    at = _indices(g, (k,), n, -n if r.random() < 0.3 else 0)
    plain = _indices(g, (k,), n)
    pre = ":, " * d
    forms = [
        f"{a}.index_select({d}, {plain})",
        f"{a}[{pre}{at}]",
        f"{a}[{pre}{at}]",
        f"{a}[{pre}{at}[:, None], ...]",
        f"{a}[{pre}{at}.view(1, -1)]",
        f"{a}[{pre}{at}[0]]",
        f"torch.take({a}, {plain})",
        f"F.one_hot({plain} % {n}, {n})",
    ]
    if d == 0:
        forms += [f"{a}[{at}] * {a}[{at}.flip(0)]", f"{a}[{at}][..., :1]", f"{a}[{at}, ...].mean(0)"]
    if t.dim() == 2 and d == 0:
        forms += [f"F.embedding({plain}, {a})"] * 2
    if t.dim() > 1 and not g.has_symbols(t) and t.numel():
        forms += [
            f"{a}[{plain} % {t.shape[0]}, {plain} % {t.shape[1]}]",
            f"{a}[{plain} % {t.shape[0]}, ..., 0]",
            f"{a}[{plain}[:, None] % {t.shape[0]}, {plain} % {t.shape[1]}]",
            f"{a}[torch.arange({t.shape[0]}), {_indices(g, (t.shape[0],), t.shape[1])}]",
        ]
    return r.choice(forms)


def _along(g: Drawer) -> Drawn:
    """gather and scatter, whose indices have the rank of the operand."""
    r, (a, t, d, n) = g.r, _indexed(g)
    if g.has_symbols(t):
        raise Unfit
    k = r.choice((1, 2, 3, 5))
    shape = tuple(k if e == d else m if r.random() < 0.7 else max(1, m - 1) for e, m in enumerate(t.shape))
    at = _indices(g, shape, n)
    distinct = g.weight((min(k, n),), torch.int64, "permutation", (n,), "buffer")
    spread = f"{distinct}.reshape({[min(k, n) if e == d else 1 for e in range(t.dim())]})"
    region = tuple(min(k, n) if e == d else m for e, m in enumerate(t.shape))
    source = g.weight(region, t.dtype)
    kind = r.choice(("sum", "amax", "amin", "mean", "prod"))
    forms = [
        f"torch.take_along_dim({a}, {at}, {d})",
        f"{a}.gather({d}, {at})",
        f"{a}.gather({d}, {at})",
        f"{a}.scatter({d}, {at}, 2)",
        f"{a}.scatter({d}, {spread}.expand({list(region)}), {source})",
        f"{a}.scatter_add({d}, {at}, {a}.gather({d}, {at}))",
        f"{a}.scatter_reduce({d}, {at}, {a}.gather({d}, {at}), '{kind}', include_self={r.random() < 0.5})",
        f"{a}.index_copy({d}, {distinct}, {source})",
        f"{a}.index_add({d}, {distinct}, {source}, alpha=2)",
        f"{a}.index_fill({d}, {distinct}, 3)",
        f"{a}.index_fill({d}, {distinct}, torch.tensor(1, dtype={a}.dtype))",
        f"{a}.scatter({d}, {spread}.expand({list(region)}), {source}, reduce='add')",
        f"{a}.scatter({d}, {spread}.expand({list(region)}), 2, reduce='multiply')",
        f"torch.put({a}, {distinct}, {source}.flatten()[: {min(k, n)}])",
        f"{a}.select_scatter({source}.select({d}, 0), {d}, -1)",
        f"torch.slice_scatter({a}, {source}, {d}, {n - min(k, n)}, {n})",
    ]
    return r.choice(forms)


def _puts(g: Drawer) -> Drawn:
    """index_put: where a place is named twice, the values are added or equal."""
    r, a = g.r, g.anything()
    t = g.value(a)
    n = t.shape[0]
    if n == 0 or g.is_symbolic(n) or t.dtype is torch.bool:
        raise Unfit
    k = min(r.choice((1, 2, 3, 5)), n)
    distinct = g.weight((k,), torch.int64, "permutation", (n,), "buffer")
    repeated = _indices(g, (r.choice((2, 4)),), n)
    forms = [
        f"torch.index_put({a}, ({distinct},), {a}[{distinct}] * 2)",
        f"torch.index_put({a}, ({repeated},), {a}[{repeated}] * 2, accumulate=True)",
        f"torch.index_put({a}, ({distinct},), torch.ones_like({a}[:1]))",
        f"{a}.index_add(0, {repeated}, {a}[{repeated}])",
        f"torch.index_put({a}, ({a} > 1,), torch.tensor(0.5, dtype={a}.dtype))",
    ]
    if t.dim() > 1 and not g.has_symbols(t) and t.shape[1]:
        columns = g.weight((k,), torch.int64, "index", (0, t.shape[1]), "buffer")
        forms.append(f"torch.index_put({a}, ({distinct}, {columns}), {a}[{distinct}, {columns}] + 1)")
        forms.append(f"torch.index_put({a}, (None, {columns}[:1]), {a}[:, {columns}[:1]] * 2)")
    return r.choice(forms)


def _embeddings(g: Drawer) -> Drawn:
    r = g.r
    n, e = r.choice((5, 10, 33)), r.choice((1, 3, 8, 17, 64))
    table_ = g.weight((n, e))
    dtype = r.choice((torch.int64, torch.int32))
    x = g.input(g.shape(r.choice((1, 2))), dtype, "index", (0, n))
    forms = [f"F.embedding({x}, {table_})", f"F.embedding({x}, {table_}, padding_idx=0) * 2", f"{table_}[{x}.long()]"]
    if g.value(x).dim() == 2:
        forms.append(f"F.embedding_bag({x}, {table_}, mode='{r.choice(('sum', 'mean', 'max'))}')")
    y = g.pick(lambda t: t.dtype in (torch.int64, torch.int32))
    if y is not None:
        forms.append(f"F.embedding({y}.abs() % {n}, {table_})")
    return r.choice(forms)


def _searches(g: Drawer) -> Drawn:
    a = g.floats()
    t = g.value(a)
    dtype = t.dtype if g.r.random() < 0.6 else g.r.choice((torch.float32, torch.float64, torch.bfloat16, torch.int64))
    sorted_ = f"{g.weight((7,), dtype)}.sort()[0]"
    right = g.r.random() < 0.5
    return g.r.choice(
        (f"torch.searchsorted({sorted_}, {a}, right={right})", f"torch.bucketize({a}, {sorted_}, right={right})")
    )


def _of_products(g: Drawer) -> Drawn:
    """One row, a few rows or a diagonal of a product, by indices that are data."""
    r = g.r
    a = g.floats(rank=2) if r.random() < 0.5 else g.floats(least=2)
    t = g.value(a)
    m, depth = t.shape[-2], t.shape[-1]
    if m == 0 or g.has_symbols(t):
        raise Unfit
    n = r.choice((1, 2, 5, 16, 17, 33))
    w = g.weight((n, depth), t.dtype)
    first = t.shape[0]
    k = r.choice((1, 1, 1, 2, 3))
    rows = _indices(g, (k,), first)
    product = r.choice((f"F.linear({a}, {w})", f"({a} @ {w}.t())", f"F.linear({a}, {w}).relu()"))
    forms = [
        f"{product}[{rows}]",
        f"{product}.index_select(0, {rows})",
        f"{product}[{rows}] + 1",
        f"{product}[-1]",
        f"{product}[..., -1:, :]",
        f"{product}.diagonal(0, 0, 1)",
        f"{product}.index_select(-1, {_indices(g, (k,), n)})",
        f"{product}.gather(-1, {_indices(g, (*t.shape[:-1], 1), n)})",
        f"{product}[torch.arange({first}), {_indices(g, (first,), m if t.dim() > 2 else n)}]",
        f"torch.index_put({product}, ({g.weight((1,), torch.int64, 'index', (0, first), 'buffer')},), torch.tensor(1.0, dtype={g.value(a).dtype}))",
    ]
    if t.dim() == 2:
        forms.append(f"F.embedding({rows}, {product})")
    return r.choice(forms)


SCALARS = table(
    "indices in the program",
    1,
    lambda g: g.anything(),
    """
    {a}[0]
    {a}[-1] * 2
    {a}[torch.tensor([0])]
    {a}[torch.tensor(0)]
    {a}.index_select(0, torch.tensor([0, 0]))
    {a}[torch.arange({a}.shape[0]).flip(0)]
    {a}[torch.arange({a}.shape[0]) // 2]
    torch.unravel_index(torch.tensor([1]), (2, 3))[0]
    """,
)


def _computed(g: Drawer) -> Drawn:
    """Indices that the program finds itself."""
    a = g.floats(least=1)
    form = g.r.choice(
        (
            "{a}.gather({d}, {a}.argmax({d}, keepdim=True))",
            "{a}.gather({d}, {a}.argsort(dim={d}, stable=True))",
            "torch.take_along_dim({same}, {a}.sort(dim={d}, stable=True)[1], {d})",
            "{a}.index_select(0, {a}.flatten(1).sum(1).argmax().reshape(1))",
            "{a}[{a}.flatten(1).sum(1).argsort(stable=True)]",
        )
    )
    return filled(g, form, a)


FAMILIES = (
    Family("gathers", 4, _gathers),
    Family("gathers and scatters along", 3, _along),
    Family("puts", 1.5, _puts),
    Family("embeddings", 1, _embeddings),
    Family("searches", 0.8, _searches),
    Family("indices of products", 1.5, _of_products),
    Family("computed indices", 1, _computed),
    SCALARS,
)
