"""What a model does with a Python number that it is given: arithmetic with tensors, slices, new tensors, branches.

{n}   the number, or another computed from it      {n2}   the same or another one
{v}   the number alone
"""

from __future__ import annotations

from tests.fuzz.draw import Drawer, Drawn, Family
from tests.fuzz.families.forms import filled, rows

COMPUTED = rows("""
    {v}  *12
    {v} + 1
    {v} - 1
    -{v}  *2
    {v} * 2
    {v} // 2
    -{v} // 2
    ({v} - 4) // 3
    {v} % 3
    -{v} % 5
    ({v} - 7) % 4
    5 - {v}
    7 % ({v} + 1)
    100 // ({v} + 1)
    {v} * {v}
    {v} * {v} % 7  *2
    {v} ** 2
    max({v}, 2)
    min({v}, 5)
    max(3 - {v}, 0)
    abs({v} - 4)
    {v} / 2
    {v} * 0.5
    1 / ({v} + 1)
    0.1 * {v}
    {v} + 0.25
    float({v})
    int({v} * 0.7)
    int({v} / 3)
    math.floor({v} / 4)
    math.ceil({v} * 0.5)
    round({v} / 2)
    math.sqrt({v})
    bool({v})
    {v} > 3
    int({v} > 3)
    {v} << 1
    {v} >> 1
    {v} & 3
    {v} + {size}
    {size} - {v}
    min({v}, {size})
    max({v}, {size})
    {v} % max({size}, 1)
    {v} * {size}
    sum(range(min({v}, 4)))
""")
FORMS = rows("""
    {a} * {n}  *4
    {n} * {a}  *2
    {a} + {n}  *4
    {n} - {a}  *2
    {a} / ({n})  *2
    ({n}) / {a}
    {a} // ({n})
    {a} % ({n})
    ({n}) // {a}
    torch.fmod({a}, {n})
    torch.div({a}, {n}, rounding_mode="trunc")
    torch.div({a}, {n}, rounding_mode="floor")
    {a} ** (({n}) % 50)
    torch.pow({n}, {a})
    {a} * {n} + {n2}  *2
    {a} * ({n} * {n2})
    torch.add({a}, {b}, alpha={n})
    torch.sub({a}, {b}, alpha={n})
    torch.lerp({a}, {same}, {n})
    torch.addcmul({a}, {same}, {same}, value={n})
    torch.where({mask}, {a}, {n})  *2
    torch.where({a} > ({n}), {a}, {n2})
    {a}.masked_fill({mask}, {n})  *2
    {a}.clamp(min={n})
    {a}.clamp(max={n})
    {a}.clamp({n}, {n2})
    {a} > ({n})
    {a} == ({n})
    ({a} < ({n})) | ({a} >= ({n2}))
    F.leaky_relu({a}, {n})
    F.threshold({a}, {n}, {n2})
    F.hardtanh({a}, -abs({n}), abs({n}))
    F.pad({a}, (1, 2), value={n})
    {a}.softmax({d}) * {n}
    {a}.sum({ds}) * {n}
    {a}.cumsum({d}) / ({n} + 1)
    {a}.mean({d}, keepdim=True) - {n}
    ({a} * {n}).sum({d})
    torch.cat([{a}, {same} * {n}], {d})
    {a}.clone().mul_({n})
    {a}.clone().fill_({n})
    {a}.clone().add_({same}, alpha={n})
    torch.full_like({a}, {n})  *2
    torch.full((3,), {n})  *2
    torch.full((2, 3), {n}, dtype={a}.dtype)
    {a}.new_full((2,), {n})
    torch.tensor([{n}, {n2}])
    torch.tensor({n}, dtype={main}) * {a}
    torch.scalar_tensor({n}) + {a}
    torch.arange(5) * {n}
    torch.arange({n}, {n} + 5)
    torch.arange({n}, {n} + 9, 2)
    torch.linspace(0, {n}, 5)
    torch.arange({last}) < ({n})  *2
    {a} * (torch.arange({last}) < ({n}))  *2
    {a}.masked_fill(torch.arange({last}) >= ({n}), {x})
    {a} if {n} > 3 else -{a}  *2
    {a} * 2 if {n} == 3 else {a} * 3
    {a} + 1 if {n} else {a} - 1  *2
    {a} + 1 if {n} == {s} else {a} * 2
    {a} * {n} if {v} == {s} else {a}
    {a} * {n} if {n} < {s} else {a}
    {a}.relu() if {n} > {n2} else {a}.neg()
    {a} * sum(range(min({v}, 4)))
    {a}.roll({n}, {d})  *4
    {a}.roll(({n}, -1), ({d}, {e}))
    {a}.flatten().roll({n})
    {a}[{at}:{n}]  *3
    {a}[{at}{n}:]  *3
    {a}[{at}-({n}):]
    {a}[{at}:-({n})]
    {a}[{at}{n}:{n} + 2]  *2
    {a}[{at}:{n}].sum({d})  *2
    {a}[{at}{n}:].cumsum({d})
    {a}[{at}:min({v}, {s})] * 2
    torch.cat([{a}[{at}{n}:], {a}[{at}:{n}]], {d})  *2
    torch.cat([{a}[{at}:{n}], {same}[{at}{n}:]], {d}) + {a}
    {a}[{at}::max({v}, 1)]
    {a}.select({d}, {n})  *2
    {a}[{at}{n}]  *2
    {a}.select({d}, {v} % {s})
    {a}.narrow({d}, {n}, 1)  *2
    {a}.narrow({d}, 0, {n})
    {a}.narrow({d}, {n}, {s} - {n})
    {a}.tril({n})  *2
    {a}.triu(-({n}))
    {a}.diagonal({n}, 0, -1)
    torch.diag({a}.flatten()[:4], {n})
    torch.ones(4, {last}).tril({n}) * 2
    {a}.unfold({d}, {n}, 1).sum(-1)
    {a}.unflatten({d}, ({n}, -1))
    {a}.unflatten({d}, (-1, {n}))
    {a}.flatten()[:{n} * 2].view({n}, 2)
    {a}.split({n}, {d})[0]
    tuple({a}.tensor_split(({n},), {d}))
    {a}.index_fill(0, {one}, {n})
    {a}.index_select({d}, torch.arange({s}).roll({n}))
    torch.select_scatter({a}, {a}.select({d}, 0), {d}, {n})
    torch.slice_scatter({a}, {a}[{at}:1] * 2, {d}, {n}, {n} + 1)
    {a}.kthvalue({n}, {d})[0]
    {a}.topk({n}, {d})[0]
    {a}.repeat_interleave(2, {d}) * {n}
    F.interpolate({a}.flatten()[None, None], scale_factor=2.0) * {n}
""")
INTEGERS = rows("""
    {a} << ({n})  *2
    {a} >> ({n})  *2
    {a} & ({n})
    {a} | ({n})
    {a} ^ ({n})
    {a} // ({n})  *2
    {a} % ({n})  *2
    {a} * {n}  *3
    {a} + {n}  *2
    ({n}) << ({a} & 3)
    {a} == ({n})
    {a}.clamp(max={n})
    torch.bitwise_left_shift({a}, {n})
    ({a} * {n}).sum({d})
    {a}.bool() + {n}
    F.one_hot({a}.long().abs() % 3, 3) * {n}
""")
SIZED = rows("""
    torch.zeros({n}) + 1
    torch.full(({n}, 2), 0.5)  *2
    torch.full(({n},), {n2})
    torch.arange({n})  *2
    torch.arange({n}) * 2 - {n2}
    torch.arange(2, {n} + 2)
    torch.arange(0, {n}, 3)
    torch.arange({n}).flip(0).to({main})
    torch.linspace(0, 1, {n})
    torch.eye({n})
    torch.ones({n}, {n}).tril()
    torch.ones({n}, 3).cumsum(0)
    {a}.new_zeros({n}, 2)
    {a}.new_full(({n},), {n2})
    {a}[None].expand({n}, *{a}.shape) * 2  *2
    {a}[None].repeat({n}, *[1] * {a}.dim())
    {a}.flatten()[None].repeat_interleave({n}, 0).sum(-1)
    {a}.repeat_interleave({n}, {d})
    F.pad({a}, (0, {n}))  *2
    F.pad({a}, ({n}, 1), value=0.5)  *2
    F.pad({a}, (0, {n} - {last}))  *2
    F.pad({a}, ({n}, 0))[..., {n2}:]
    torch.cat([{a}.flatten(), torch.zeros({n}, dtype={a}.dtype)])  *2
    torch.cat([{a}.flatten(), torch.arange({n}).to({a}.dtype)])[-({n}):]
    torch.arange({n})[:, None] * {a}.flatten()  *2
    torch.arange({n})[:, None] >= torch.arange({last})
    {a}.flatten().index_select(0, torch.arange({n}) % {a}.numel())
    torch.arange({n}).roll({n} // 2)
    torch.arange({n})[::2].sum()
    {a}.unsqueeze(0).expand({n}, *{a}.shape).sum(0)
    F.interpolate({a}.flatten()[None, None], size={n})  *2
    F.adaptive_avg_pool1d({a}.flatten()[None], {n})
    F.one_hot(torch.arange({n}) % 4, 4)
    {a} @ torch.ones({last}, {n}, dtype={a}.dtype)
    torch.ones({n}, {first}, dtype={a}.dtype) @ {a}
    {a}.flatten()[:{n} * ({a}.numel() // max({v}, 1))].view({n}, -1)
    torch.ones(2 * {n}).view({n}, 2) * {n2}
    torch.zeros({n} + 1).view(-1)[1:]
    torch.zeros({n}, 4).flatten().unflatten(0, (-1, 4)) + 1
""")
COUNTS = ("{v}", "{v}", "{v}", "{v}", "{v} + 1", "{v} * 2", "{v} // 2", "{v} - 1", "min({v}, 5)", "max({v}, 2)")
"""What sizes are made of a number."""


def _number(g: Drawer) -> Drawn:
    a = g.anything()
    whole = not g.value(a).is_floating_point()
    form = g.r.choice(INTEGERS if whole and g.r.random() < 0.5 else FORMS)
    return _drawn(g, form, a, COMPUTED, sized=False)


def _size(g: Drawer) -> Drawn:
    return _drawn(g, g.r.choice(SIZED), g.anything(), COUNTS, sized=True)


def _drawn(g: Drawer, form: str, a: str, computed: list[str] | tuple[str, ...], *, sized: bool) -> str:
    """A form with its numbers, which are in brackets where they are computed."""
    number = g.python_number(sized)
    for slot, name in (("n2", g.python_number(sized)), ("n", number), ("v", number)):
        if f"{{{slot}}}" in form:
            made = "{v}" if slot == "v" else g.r.choice(computed)
            made = made.replace("{v}", name)
            form = form.replace(f"{{{slot}}}", made if made == name else f"({made})")
    return filled(g, form, a)


FAMILIES = (Family("numbers", 30, _number, numbers=True), Family("sizes by numbers", 12, _size, numbers=True))
