"""Weights of MXFP4, MXFP8 and NVFP4: floats of 4 or 8 bits in blocks along K, made numbers of by a model's own ops."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.fuzz.draw import Drawer, Drawn, Family
from tests.fuzz.families.forms import rows

TABLE = "[0., .5, 1., 1.5, 2., 3., 4., 6., -0., -.5, -1., -1.5, -2., -3., -4., -6.]"
HALVES = rows("""
    torch.stack([{c} & 15, {c} >> 4], -1).flatten(1)  *3
    torch.stack([{c} >> 4, {c} & 15], -1).flatten(1)
    torch.cat([{c} & 15, {c} >> 4], -1)
    torch.cat([{c} % 16, {c} // 16], 1)
    ({c}.repeat_interleave(2, 1) >> (torch.arange({k}) % 2 * 4)) & 15
    (({c}[..., None] >> torch.tensor([0, 4], dtype=torch.uint8)) & 15).reshape({n}, {k})
""")
"""Codes of 4 bits, [n, k], of bytes."""
FLOAT4 = rows("""
    torch.tensor({table})[{h}.long()]  *2
    F.embedding({h}.int(), torch.tensor({table})[:, None]).squeeze(-1)
    torch.tensor({table}).take({h}.long())
    torch.gather(torch.tensor({table}).expand({n}, 16), 1, {h}.long())
    torch.where({h} >= 8, -1., 1.) * torch.tensor({table})[({h} & 7).long()]
    torch.where({h} & 6 == 0, ({h} & 1) * .5, (1 + ({h} & 1) * .5) * torch.exp2((({h} >> 1) & 3).float() - 1)) * (1 - 2. * ({h} >> 3))
    ((({h}.int() & 8) << 28) | (({h}.int() & 7) << 22)).view(torch.float32) * 2.**126
""")
"""What they stand for."""
SPREAD = rows("""
    ({x}.view({n}, -1, {g}) * {s}[..., None]).view({n}, {k})  *2
    ({x}.unflatten(1, (-1, {g})) * {s}.unsqueeze(2)).flatten(1)
    {x} * {s}.repeat_interleave({g}, 1)  *2
    {s}.repeat_interleave({g}, dim=-1) * {x}
    {x} * {s}[:, :, None].expand({n}, {k} // {g}, {g}).reshape({n}, {k})
    {x} * {s}[:, torch.arange({k}) // {g}]
    torch.cat([a * b for a, b in zip({x}.split({g}, 1), {s}.split(1, 1))], 1)
""")
"""Numbers times the scales of their blocks, [n, k / g]."""
PRODUCTS = rows("""
    F.linear({a}, {w})  *3
    F.linear({a}, {w}, {bias})  *2
    {a} @ {w}.t() + {bias}
    ({w} @ {a}[..., None]).squeeze(-1)
    torch.einsum("...k,nk->...n", {a}, {w})
    F.linear({a}, {w}[1:])
    F.linear({a}, {w}.view(2, -1, {k})[1])
    F.linear({a}, {w}.flip(0)) * {w}.sum()
    F.relu(F.linear({a}, {w})) @ {w}
    F.linear({a}[..., :{cut}], {w}[:, :{cut}])
    F.embedding({ids}, {w})
    {w}[{ids}].sum(1)
    {w}.index_select(0, {ids}[:, 0]) @ {a}.reshape(-1, {k}).t()
""")


@dataclass(frozen=True)
class Format:
    """Block scales: of how many codes, as what they are stored, and how many bits codes have."""

    group: int
    scales: torch.dtype
    bits: int
    factor: bool = False


FORMATS = (
    Format(32, torch.float8_e8m0fnu, 4),
    Format(32, torch.float8_e8m0fnu, 8),
    Format(16, torch.float8_e4m3fn, 4, True),
    Format(16, torch.float8_e4m3fn, 4),
    Format(8, torch.float8_e8m0fnu, 4),
)


def _block_weight(g: Drawer) -> Drawn:
    """A product with, or a pick of, such a weight of odd sizes, for one row and many."""
    r, f = g.r, g.r.choice(FORMATS)
    k, n = f.group * r.choice((1, 2, 3, 4, 5)), r.choice((2, 2, 6, 16, 34, 66, 72))
    if f.bits == 4:
        codes = g.weight((n, k // 2), torch.uint8, kind="buffer")
        halves = r.choice(HALVES).format(c=codes, n=n, k=k)
        numbers = r.choice(FLOAT4).format(h=f"({halves})", table=TABLE, n=n)
    else:
        codes = g.weight((n, k), torch.float8_e4m3fn, kind="buffer")
        numbers = f"{codes}.float()"
    w = f"({r.choice(SPREAD).format(x=f'({numbers})', s=_scales(g, f, n, k), n=n, k=k, g=f.group)})"
    dtype = r.choice((torch.float32, torch.float32, torch.bfloat16, torch.float16))
    if dtype is not torch.float32:
        w = f"{w}.to({dtype})"
    lead = r.choice(((1,), (1,), (3,), (2, 5), (33,), (g.symbol(),) if g.dynamic else (1, 1)))
    ids = g.input((3, 2), torch.int64, "index", (0, n))
    return r.choice(PRODUCTS).format(
        a=f"{g.input((*lead, k), dtype)}", w=w, k=k, cut=k - r.choice((1, 3, 8)), ids=ids, bias=g.weight((n,), dtype)
    )


def _scales(g: Drawer, f: Format, n: int, k: int) -> str:
    """[n, k / group] in float32, as it is stored, as bytes, or the other way round."""
    r, shape = g.r, (n, k // f.group)
    if f.scales is torch.float8_e8m0fnu and r.random() < 0.5:
        bits = g.weight(shape, torch.uint8, "index", (119, 135), "buffer")
        wide = r.choice(
            (
                f"{bits}.view(torch.float8_e8m0fnu).float()",
                f"torch.exp2({bits}.float() - 127)",
                f"({bits}.int() << 23).view(torch.float32)",
            )
        )
    elif r.random() < 0.2:
        wide = f"{g.weight(shape[::-1], f.scales, 'positive', kind='buffer')}.float().t()"
    else:
        wide = f"{g.weight(shape, f.scales, 'positive', kind='buffer')}.float()"
    if not f.factor:
        return f"({wide})"
    factor = r.choice((g.weight((), torch.float32, "positive"), g.weight((1,), torch.float32, "positive"), "0.0137"))
    return f"({r.choice((f'{factor} * {wide}', f'{wide} * {factor}'))})"


FAMILIES = (Family("weights of blocks", 20.0, _block_weight),)
