"""Conditions between sizes: halves joined again, parts counted from either end, one size cut to another. With dynamic
sizes a program then holds for some of them only, or two sizes are equal that torch writes by different expressions.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.fuzz.draw import Draft, Drawer, Family
from tests.fuzz.families.forms import filled, rows

FORMS = rows("""
    torch.cat({a}.chunk(2, {d})[::-1], {d})  *3
    torch.cat([{a}.chunk(2, {d})[1] * -1, {a}.chunk(2, {d})[0]], {d}) * {a}  *2
    torch.cat([{a}[{at}{s} // 2:], {a}[{at}:{s} // 2]], {d}) + {a}  *2
    {a}.narrow({d}, 0, {s} // 2) + {a}.narrow({d}, {s} // 2, {s} // 2)  *2
    {a}.narrow({d}, {s} // 2, {s} - {s} // 2)
    {a}.narrow({d}, {s} // 4, {s} // 2).flip({d})
    {a}[{at}:{s} // 2]
    {a}[{at}-({s} // 2):]
    {a}.unflatten({d}, (-1, 2)).sum({d})  *2
    {a}.unflatten({d}, (2, -1))
    {a}.unflatten({d}, (-1, 2, 1)).sum({d})
    {a}.unflatten({d}, (2, -1)).movedim({d}, -1).flatten(-2) * 2
    torch.stack([{a}.flatten(), {a}.view(-1, 2).flatten()])
    torch.stack([{a}, {a}.unflatten({d}, (-1, 2)).flip(0).reshape({a}.shape)])
    torch.stack([{a}[..., 1::2], {a}[..., ::2]], -1).flatten(-2) - {a}  *2
    {a}[{at}1::2] - {a}[{at}:-1:2]
    torch.cat([{a}[{at}::2], {a}[{at}1::2]], {d})
    torch.cat([{a}[{at}:2], {same}, {a}[{at}2:]], {d})  *2
    torch.cat([{a}[{at}1:], {a}[{at}:1]], {d})
    torch.cat([{a}[{at}:1], {a}[{at}1:-1], {a}[{at}-1:]], {d}) * {a}
    {a}[{at}1:] - {a}[{at}:-1]  *2
    {a}[{at}2:] * {a}[{at}:-2] + {a}[{at}1:-1]
    torch.stack([{a}[..., :-1], {a}[..., 1:]], -1).flatten(-2)
    {a}.unfold({d}, 4, 2).sum(-1)
    {a}.unfold({d}, 3, 1).amax(-1) + {a}.narrow({d}, 1, {s} - 2)
    torch.cat([{a}[{at}:7], {same}[{at}:7]], {d})
    {a}[{at}:7] + {same}.narrow({d}, 0, min(7, {s}))
    torch.stack([{a}.narrow({d}, 0, min({s}, {size})), {same}[{at}:{size}]])
    {a}[{at}-{size}:]
    {a}[{at}:{size}].cumsum({d})
    torch.cat([{a}, {same}], {d}).narrow({d}, {s}, {s}) + {a}  *2
    torch.cat([{a}[{at}:3], {same}], {d})[{at}3:]
    torch.cat([{a}, {same}], {d}).unflatten({d}, (2, -1)).sum({d})  *2
    torch.cat([{a}, {same}], {d})[{at}1::2] * 2 + {a}
    torch.split(torch.cat([{a}, {same}[{at}1:]], {d}), [{s}, {s} - 1], {d})[1]
    torch.cat([t.sum({d}, keepdim=True) for t in {a}.tensor_split(3, {d})], {d})
    torch.cat(list({a}.tensor_split(2, {d}))[::-1], {d}) + {a}
    torch.cat({a}.split(4, {d}), {d}) * {a}
    torch.cat([{a}] * 3, {d}).narrow({d}, {s}, {s}) - {a}
    {a}.select({d}, {s} // 2)
    {a}.select({d}, {s} - 1) - {a}.select({d}, -2)
    {a}.roll({s} // 2, {d})
    {a}.repeat_interleave(2, {d}).narrow({d}, 0, {s}) + {a}
    {a}.repeat_interleave(2, {d})[{at}::2] - {a}
    F.pad({a}, (0, -{last} % 4)).unflatten(-1, (-1, 4)).sum(-1)  *2
    F.pad({a}, (1, 1))[..., 2:] + {a}
    F.pad({a}, (0, {size}))[..., {size}:]
    F.pad({a}, (0, {size} - {last}))
    F.avg_pool1d({a}.flatten()[None], 2)[0] + {a}.flatten()[::2][:{a}.numel() // 2]
    F.max_pool1d({a}.flatten()[None], 2, ceil_mode=True)[0] + {a}.flatten()[::2]
    torch.slice_scatter(torch.cat([{a}, {same}], {d}), {a} * 2, {d}, {s}, 2 * {s})
    torch.slice_scatter({a}, {a}[{at}1:], {d}, 0, {s} - 1)
    torch.arange({s}) < {size}
    torch.ones({s}, {size}).tril({size} - {s})
    {a}.masked_fill(torch.arange({last}) >= {size}, 0.5)
    {a} * {s} / ({size} + 1)
    {a} * ({s} // 2 + {s} % 3)
    {a}.sum({d}) / {s}
    {a} * 2 if {s} > 4 else {a} * 3
    {a} + 1 if {s} == {size} else {a} - 1
    {a}.view(-1)[:{s} * 2].view(2, -1)
    {a}.reshape({s}, -1)
    {a}.reshape(-1, {last})
    {a}.flatten().unflatten(0, ({first}, -1)) + 1
    {a}.diagonal(1, 0, -1) if {a}.dim() > 1 else torch.diag({a}, 1)
    {a}.flatten()[1:].view(-1, 2)[:, 0]
""")
TABLES = rows("""
    {a} + {w}[:{last}]  *3
    {a} * {w}.narrow(0, 1, {last})
    {a} + {w}[{size}:{size} + {last}]
    torch.cat([{w}[:3], {a}.flatten(), {w}[3:]])
    F.linear({a}, {w}[:{last}][None])
""")


def _condition(g: Drawer) -> Iterator[Draft]:
    """One to three lines, each about the value of the line before it."""
    a = g.pick(g.has_symbols, 0.4) or g.anything()
    for _ in range(g.r.choice((1, 1, 2, 2, 3))):
        before, a = a, g.next_name()
        form = g.r.choice(FORMS)
        if g.value(before).is_floating_point() and g.r.random() < 0.12:
            form = g.r.choice(TABLES).replace("{w}", g.weight((g.r.choice((24, 64, 300)),), g.value(before).dtype))
        yield Draft(filled(g, form, before))


FAMILIES = (Family("conditions", 3, _condition),)
