"""Views, views of views, joins, paddings, tensors made from sizes."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Drawer, Drawn, Family, Unfit
from tests.fuzz.families.forms import divisor, filled, rows, table

ANY_RANK = """
    {a}.transpose({d}, {e})  *3
    {a}.unsqueeze({d})  *2
    {a}.squeeze({d})
    {a}.flatten()
    {a}.reshape(-1)
    {a}.narrow({d}, 1, {s} - 1)
    {a}.select({d}, 0)
    {a}.select({d}, -1)
    {a}[..., ::2]  *2
    {a}[1:]  *2
    {a}[-1:]
    {a}[:-1]
    {a}[..., 1:-1]
    {a}[..., -3:]
    {a}[::3]
    {a}[None]
    {a}[..., None]
    {a}.unfold({d}, 2, {i})
    {a}.unfold({d}, 3, 1)
    {a}.expand(2, *{a}.shape)
    {a}.contiguous()
    {a}.clone()
    {a}.movedim({d}, 0)
    {a}.view({a}.shape)
    tuple({a}.chunk({i}, {d}))
    tuple({a}.split({i}, {d}))
    tuple({a}.split(({s} + 1) // 2, {d}))
    tuple({a}.tensor_split(2, {d}))
    tuple({a}.unbind({d}))
    {a}.swapaxes(0, -1)
    {a}.reshape({a}.shape[0], -1)
    {a}.unflatten({d}, (-1, 1))
    {a}.reshape(*{a}.shape[1:], {a}.shape[0])  *2
    {a}.repeat_interleave(2, {d})
    {a}.tile(2)
    {a}.flip({d})
    {a}.squeeze((0, -1))
    {a}.clone(memory_format=torch.contiguous_format).as_strided(({first},), (1,))
    {a}.expand_as({same})
    {a}.new_zeros(2, {first}) + 1
    {a}.clone(memory_format=torch.contiguous_format).as_strided((2, 2), (1, 1))
    {a}.roll(1, {d})
    {a}.roll(-2, {d})
    {a}.permute(*range({a}.dim())[::-1])  *2
    {a}.broadcast_to({a}.shape)
    """

PLANES = """
    {a}.mT  *2
    {a}.diagonal(0, 0, 1)
    {a}.diagonal(1, 0, 1)
    {a}.diagonal(-1, -2, -1)
    {a}[:, ::2]
    {a}[:, 1:]
    torch.rot90({a}, 1, (0, -1))
    {a}.triu()
    {a}.tril(-1)
    {a}.triu(1)
    {a}.movedim((0, 1), (1, 0))
    {a}.diagonal_scatter({a}.diagonal() + 1) if {a}.dtype != torch.bool else {a}.diagonal_scatter({a}.diagonal())
    {a}.flatten(0, 1)
    {a}.flatten(-2)
    {a}.mT.reshape({a}.shape)
    {a}[:1].expand({a}.shape)
    torch.block_diag({a}, {a})
    {a}.repeat(*[2] * {a}.dim())
    """


def _view(g: Drawer) -> Drawn:
    a = g.anything()
    return filled(g, g.r.choice(_ROWS_2 if g.value(a).dim() > 1 else _ROWS), a)


_ROWS = rows(ANY_RANK)
_ROWS_2 = rows(ANY_RANK + PLANES)


def _permuted(g: Drawer) -> Drawn:
    a = g.anything(2)
    order = list(range(g.value(a).dim()))
    g.r.shuffle(order)
    return g.r.choice(
        (f"{a}.permute({order})", f"{a}.permute({order}).contiguous()", f"{a}.permute({order}).flatten(1)")
    )


def _sliced(g: Drawer) -> Drawn:
    """Bounds below, inside and beyond."""
    a = g.anything()
    d, t = g.dim(a), g.value(a)
    n = t.shape[d]
    if g.is_symbolic(n):  # at the other sizes these begin and end elsewhere, or the program takes those sizes not
        few = (g.r.randint(-4, 3), g.r.randint(-4, 3))
        ends = [g.r.choice(("", -n - 1, n + 1, g.r.randint(-n, n), *few)) for _ in range(2)]
        step = g.r.choice(("", "", "", ":2"))
        whole = f"{a}[{':, ' * (d % t.dim())}{ends[0]}:{ends[1]}{step}]"
        return f"{a}.narrow({d}, 0, 1)" if g.r.random() < 0.25 else whole
    lo, hi = sorted((g.r.randint(-n - 1, n + 1), g.r.randint(-n - 1, n + 1)))
    at = ":, " * (d % t.dim())
    return f"{a}[{at}{lo}:{hi}{g.r.choice(('', '', ':2', ':3'))}]"


def _joined(g: Drawer) -> Drawn:
    a = g.anything()
    t, d = g.value(a), g.dim(a)
    at = d % t.dim()

    def fits(n: str) -> bool:
        u = g.value(n)
        return u.dim() == t.dim() and all(
            x == y for k, (x, y) in enumerate(zip(u.shape, t.shape, strict=True)) if k != at
        )

    others = [n for n in g.values if fits(n)]
    parts = [a, *(g.r.choice(others) for _ in range(g.r.randint(0, 3)))]
    if g.r.random() < 0.3:
        parts = [_computed(g, n) for n in parts]
    g.r.shuffle(parts)
    form = g.r.choice(
        (
            f"torch.cat([{', '.join(parts)}], {d})",
            f"torch.cat([{', '.join(parts)}], {d})",
            f"torch.cat([{', '.join(parts)}], {d}) * 2",
            "torch.stack([{a}, {same}, {same}], {d})",
            "torch.cat([{a}[:1], {a}[1:]])",
            "torch.cat([{a}[:1], {a}[1:], {a}[:0]])",
            "torch.cat([{a}, {same} * 2, torch.relu({same})], {d})",
            "torch.hstack([{a}, {a}])",
            "torch.vstack([{a}, {same}])",
            "torch.dstack([{a}, {same}])",
            "tuple(torch.broadcast_tensors({a}, {same}[:1]))",
            "torch.cat([{a}.flip({d}), {a}], {d}).cumsum({d})",
        )
    )
    return filled(g, form, a)


def _computed(g: Drawer, a: str) -> str:
    """A value by an expression: what is computed inside the reader of a part must not be computed beside it."""
    t = g.value(a)
    if t.dtype is torch.bool:
        return f"(~{a})"
    if t.is_floating_point():
        return g.r.choice((f"({a} * 2 + {a}.sin())", f"({a} / ({a}.abs() + 0.5))", f"{a}.tanh()"))
    # a mask may put anything in a divisor's place
    by = divisor(g, a)
    quotients = (f"({a} // {by})", f"({a} % {by})", f"torch.div({a}, {by}, rounding_mode='trunc')")
    return g.r.choice((*quotients, f"torch.fmod({a}, {by})", f"({a} * 3)"))


def _padded(g: Drawer) -> Drawn:
    r, a = g.r, g.ints(least=1) if g.r.random() < 0.35 else g.anything()
    t = g.value(a)
    if r.random() < (0.35 if t.is_floating_point() else 0.7):
        a = _computed(g, a)
    mode = r.choice(("constant",) * 5 + ("reflect", "replicate", "circular"))
    if mode == "constant":
        sides = [r.choice((0, 1, 1, 2, 3, -1)) for _ in range(2 * r.randint(1, min(t.dim(), 3)))]
        value = r.choice((0, 1.5, "-inf")) if t.is_floating_point() else 1
        return f"F.pad({a}, {sides}, value={value})"
    rank = t.dim()
    if rank < 2:
        a, rank = f"{a}[None]", 2
    depth = max(1, min(rank - r.choice((1, 2)), 3))
    return f"F.pad({a}, {[r.choice((0, 1, 1, 2)) for _ in range(2 * depth)]}, mode='{mode}')"


def _bits(g: Drawer) -> Drawn:
    a = g.anything()
    same = {"float32": "int32", "float16": "int16", "bfloat16": "int16", "float64": "int64", "int32": "float32"}
    name = same.get(str(g.value(a).dtype).removeprefix("torch."))
    if name is None or name == "float32":  # int32 became float32 here
        raise Unfit
    return f"{a}.nan_to_num(0).view(torch.{name})"  # the bits of a NaN are anyone's


MADE = table(
    "creations",
    1.2,
    lambda g: g.anything(),
    """
    torch.arange({a}.shape[{d}])
    torch.arange({a}.shape[{d}], dtype={main}) * 0.5
    torch.full_like({a}, 2)
    torch.zeros({a}.shape[{d}], 3)
    torch.eye({a}.shape[{d}])
    torch.linspace(-1, 1, {a}.shape[{d}])
    torch.ones_like({a}).cumsum({d})
    torch.tensor([1.5, -2.0, 3.0])
    torch.arange(5, 0, -2)
    {a}.new_full((2, 3), 1)
    tuple(torch.meshgrid(torch.arange({a}.shape[{d}]), torch.arange(3), indexing="ij"))
    torch.ones({a}.shape[{d}], {a}.shape[{d}]).tril().bool()
    torch.tril_indices(4, 3)
    torch.triu_indices(3, 4, 1)
    {a} * {a}.shape[{d}]
    torch.scalar_tensor(2.5)
    torch.empty_like({a}).fill_(1)
    torch.zeros_like({a}, dtype=torch.int32)
    torch.arange({a}.shape[{d}])[:, None] >= torch.arange({a}.shape[{d}])
    torch.hann_window(9)
    torch.hamming_window(5, False)
    torch.bartlett_window(6)
    torch.blackman_window(7)
    torch.kaiser_window(6)
    """,
)

FAMILIES = (
    Family("views", 6, _view),
    Family("permutations", 2, _permuted),
    Family("slices", 2, _sliced),
    Family("joins", 3.5, _joined),
    Family("paddings", 2, _padded),
    Family("bits", 0.6, _bits),
    MADE,
)
