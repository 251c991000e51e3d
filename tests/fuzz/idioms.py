"""Numbers that models make of a size, each with every way in which they go on with it.

A size of an input becomes a number by an expression, and the number decides a branch, cuts a tensor, makes one or
counts in a product: each pair is a program, run at sizes from 0 on. Sizes of 0 and 1 are where compilers generalise
from an example that had neither.
"""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.cases import case
from tests.fuzz.families.forms import rows
from tests.fuzz.program import Program

NUMBERS = rows("""
    {s}
    {s} - 1
    {s} + 1
    {s} - 2
    3 - {s}
    2 * {s}
    {s} // 2
    ({s} + 1) // 2
    {s} - {s} // 2
    {s} // 2 * 2
    -(-{s} // 4)
    {s} % 2
    {s} % 3 + 1
    -{s} % 4
    {s} >> 1
    {s} & 1
    ({s} - 1) // 2 + 1
    ({s} + 2 - 3) // 2 + 1
    min({s}, 2)
    min({s}, 1)
    min(1, {s} - 1)
    max({s}, 2)
    max({s} - 2, 0)
    max(1, {s} // 2)
    max(min({s}, 5), 1)
    abs({s} - 3)
    abs(1 - {s})
    {s} * {s}
    {s} ** 2 - {s}
    int({s} * 0.5)
    int({s} / 2)
    math.ceil({s} / 2)
    int({s} ** 0.5)
    round({s} / 3)
    divmod({s}, 3)[1]
    int({s} > 1)
    int({s} == 1) + 1
    1 + ({s} > 2)
    {s} if {s} > 1 else 2
    1 if {s} == 2 else {s}
    len(x0)
    x0.numel() // 3
    x0.numel() - 3
    x0[1:].shape[0]
    x0[:1].size(0)
    x0[::2].shape[0]
    x0[:-1].shape[0] + 1
    x0.t().size(-1)
    x0.unsqueeze(0).shape[1]
    torch.cat([x0, x0]).shape[0] - {s}
    min({s}, {t})
    max({s}, {t})
    {s} - {t}
    {s} + {t} - 2
    {s} * {t}
    {s} // ({t} + 1)
    int({s} == {t})
    {t} if {s} > {t} else {s}
""")
"""{s} and {t}: the rows of x0 and of x1, of dynamic size."""

DECISIONS = rows("""
    x0 + 1 if {e} == 1 else x0 - 1
    x0 + 1 if {e} != 1 else x0 - 1
    x0 + 1 if {e} > 1 else x0 - 1
    x0 + 1 if {e} >= 1 else x0 - 1
    x0 + 1 if {e} < 2 else x0 - 1
    x0 + 1 if {e} <= 1 else x0 - 1
    x0 + 1 if {e} == 0 else x0 - 1
    x0 + 1 if {e} > 0 else x0 - 1
    x0 + 1 if {e} < 0 else x0 - 1
    x0 + 1 if {e} == 2 else x0 - 1
    x0 + 1 if 2 < {e} else x0 - 1
    x0 + 1 if 1 < {e} < 4 else x0 - 1
    x0 + 1 if {e} in (1, 3) else x0 - 1
    x0 + 1 if {e} == 1 or {e} == 5 else x0 - 1
    x0 + 1 if {e} > 1 and {e} % 2 else x0 - 1
    x0 + 1 if {e} else x0 - 1
    x0 + 1 if not {e} else x0 - 1
    x0 + 1 if bool({e}) else x0 - 1
    x0 + 1 if {e} == x0.shape[1] else x0 - 1
    x0 + 1 if {e} == x0.shape[0] else x0 - 1
    x0 + 1 if p0[:{e}].numel() else x0 - 1
    x0 + 1 if p0[:{e}].shape == (1, 3) else x0 - 1
    x0 + 1 if len(p0[:{e}]) > 1 else x0 - 1
    x0 + 1 if p0[:{e}].is_contiguous() else x0 - 1
    x0 + 1 if p0[:, :{e}].is_contiguous() else x0 - 1
    x0 + (3 if {e} == 1 else 4)
    x0 + ({e} or 7)
    x0 + ({e} and 7)
    x0 * ({e} > 1)
    x0 * int({e} == 1)
    x0 + min({e}, 2)
    x0 + max({e}, 1)
    x0 + sorted([{e}, 1, 3])[1]
    x0 + abs({e} - 1)
    x0 + sum([1, {e}, 3])
""")
COUNTS = rows("""
    x0 + {e}
    x0 * float({e})
    x0 / max({e}, 1)
    x0 * math.sqrt(abs({e}))
    x0 * max({e}, 1) ** -0.5
    x0.pow({e})
    x0.clamp(max={e})
    torch.tensor({e})
    torch.tensor([{e}, 1]) + 1
    torch.full((2,), {e}) + 1
    torch.arange(5) < {e}
    torch.arange(5) // max({e}, 1)
    torch.arange(x0.shape[0])[:, None] * x0 == {e}
    torch.add(x0, x0, alpha={e})
    x0.masked_fill(torch.arange(x0.shape[0])[:, None] < {e}, 0.)
    torch.where(torch.arange(3) == {e}, x0, x0 * 2)
""")
CUTS = rows("""
    x0[:{e}]
    x0[{e}:]
    x0[-({e}):]
    x0[:-({e})]
    x0[::max({e}, 1)]
    x0[{e}]
    x0[{e} - 1]
    x0[-({e})]
    x0[:, {e}:]
    x0[:{e}] + 1 + x0[:{e}]
    x0[:{e}] + x0[-({e}):]
    x0.narrow(0, 0, {e})
    x0.narrow(0, {e}, 1)
    x0.select(0, {e})
    x0.split([{e}, x0.shape[0] - ({e})])[1]
    x0.split({e})[0]
    torch.cat([x0[{e}:], x0[:{e}]])
    torch.cat([x0[{e}:], x0[:{e}]]) + x0
    x0.roll({e}, 0)
    x0.unflatten(0, (-1, {e}))
    x0.unflatten(0, ({e}, -1))
    x0.reshape({e}, -1)
    x0.view(-1, {e})
    x0.flatten()[{e}:].view(-1, 1)
    x0.index_select(0, torch.arange({e}))
    x0[torch.arange({e})]
    x0.unfold(0, {e}, 1)
    x0.unfold(0, 1, max({e}, 1))
    x0.tril({e})
    x0.triu(1 - ({e}))
    x0.diagonal({e})
    F.pad(x0, (0, 0, 0, {e}))
    F.pad(x0, (0, 0, {e}, 1)) * 2
    F.pad(x0, (0, 0, 0, -({e})))
    F.pad(x0.t(), ({e}, 1), mode="replicate")
    F.pad(x0.t()[None], ({e}, 1), mode="reflect")
    x0.slice_scatter(p0[:{e}], 0, 0, {e})
    torch.cat([x0[:1], p0[:{e}], x0[1:]])
    x0.repeat({e}, 1)
    x0.repeat_interleave({e}, 0)
    x0.topk({e}, 0)[0]
""")
MADE = rows("""
    torch.zeros({e}, 3) + 1
    torch.ones({e}, 3) + p0[:1]
    torch.ones({e}, 3) + p0[:5]
    torch.ones({e}, 3) * x0
    torch.ones({e}, 3) + x0[:1]
    torch.ones({e}, 1) + x0.t()[None, 0]
    torch.ones(3, {e}) + torch.ones({e}, 3).t()
    torch.arange({e})
    torch.arange(0, {e}, 2)
    torch.arange({e}, {e} + 3)
    torch.arange({e}, 0, -1)
    torch.linspace(0, 1, {e})
    torch.eye({e})
    torch.ones({e}, {e}).tril()
    x0.new_full(({e}, 2), 3.)
    p0[0].expand({e}, 3)
    p0[:1].expand({e}, 3) * 2
    p0[:{e}].expand(2, -1, -1)
    p0[:{e}, None].expand(-1, 2, -1)
    p0[:{e}].expand({e}, 3)
    p0[:{e}]
    p0[{e}:].sum(0)
    p0[:{e}] + x0
    p0[:{e}] + x0[:{e}]
    torch.where(p0[:{e}] > 0, p0[:1], 2.)
    torch.cat([x0, torch.zeros({e}, 3)])
    torch.cat([p0[:{e}], x0])
    torch.stack([p0[:{e}], p0[:{e}] * 2])
    torch.stack([p0[:{e}], x0])
    p0[:{e}].squeeze(0)
    p0[:{e}].squeeze()
    p0[:{e}].squeeze() + p0[:{e}]
    p0[:{e}][0]
    p0[:{e}][-1]
    p0[:{e}].t().contiguous()
    p0[:{e}].t().reshape(-1)
    p0[:{e}].t().view(3, {e}, 1)
    p0[:{e}].view(-1, 1, 3)
    p0[:{e}].flip(0)
    p0[:{e}].repeat_interleave(2, 0)
    p0[:{e}].diagonal()
    p0[:{e}].unfold(0, 2, 1)
    p0[:{e}].chunk(2)[0]
    p0[:{e}].tensor_split(2)[1]
    torch.zeros({e}, 3).index_put((torch.arange({e}),), p0[:{e}])
    torch.zeros({e}, 3).scatter(0, torch.zeros(1, 3, dtype=torch.int64), p0[:1])
    torch.zeros({e}, 3).copy_(p0[:1])
    torch.zeros({e} + 1, 3).slice_scatter(p0[:{e}], 0, 1)
    p0[torch.arange({e})]
    F.one_hot(torch.arange({e}) % 2, 2)
    torch.outer(torch.arange({e}), torch.arange({e}))
    torch.meshgrid(torch.arange({e}), torch.arange(3), indexing="ij")[0]
    torch.atleast_3d(p0[:{e}])
    torch.broadcast_to(p0[:{e}], (2, {e}, 3))
    torch.broadcast_tensors(p0[:{e}], p0[:1])[1]
    p0[:{e}].expand_as(p0[:{e}]) + p0[:1].expand_as(p0[:{e}])
""")
COMPUTED = rows("""
    p0[:{e}].sum(0)
    p0[:{e}].mean(0)
    p0[:{e}].amax(0)
    p0[:{e}].argmax(0)
    p0[:{e}].var(0)
    p0[:{e}].softmax(0)
    p0[:{e}].cumsum(0)
    p0[:{e}].sort(0)[0]
    p0[:{e}].topk(1, 0)[0]
    p0[:, 0].topk({e})[0]
    p0[:{e}].norm(dim=0)
    (p0[:{e}] - p0[:{e}].mean(0)).square().sum()
    F.layer_norm(p0[:{e}], (3,))
    F.layer_norm(p0[:{e}].t(), ({e},))
    p0[:{e}] @ p0[:4].t()
    p0[:{e}].t() @ p0[:{e}]
    p0[:{e}] @ p0[:{e}].t()
    p0[:4] @ p0[:{e}].t() + 1
    p0[:{e}] @ p0[0]
    p0[:{e}].t() @ x0
    p0[:{e}] * p0[:{e}, :1] @ p0[:3]
    p0[:{e}, None] @ p0[:15].view(5, 3, 1)
    p0[:{e}, None] @ p0[:3]
    p0[:{e}, None] @ x0.t()
    torch.bmm(p0[:{e}, None], p0[:{e}, :, None])
    torch.einsum("ij,ik->jk", p0[:{e}], p0[:{e}])
    torch.addmm(p0[:{e}, :1], p0[:{e}], p0[:2].t())
    F.linear(x0, p0[:{e}])
    F.linear(x0, p0[:{e}], p0[:{e}, 0])
    F.conv1d(p0[:{e}, None], p0[None, :2, :2].transpose(0, 1))
    F.conv1d(p0.t()[None, :, :{e}], p0[:12].view(2, 3, 6)[..., :2], padding=1)
    F.conv1d(p0[:24].view(1, 3, 8), p0[:{e}, :, None])
    F.avg_pool1d(p0.t()[None, :, :{e}], 2)
    F.max_pool1d(p0.t()[None, :, :{e}], 2, padding=1)
    F.interpolate(p0.t()[None, :, :{e}], size=5)
    F.interpolate(p0.t()[None], size={e})
    F.interpolate(p0.t()[None, :, :{e}], scale_factor=2, mode="linear")
    F.adaptive_avg_pool1d(p0.t()[None], {e})
    F.adaptive_avg_pool1d(p0.t()[None, :, :{e}], 2)
    F.scaled_dot_product_attention(p0[None, :{e}], x0[None], x0[None])
    F.scaled_dot_product_attention(x0[None], p0[None, :{e}], p0[None, :{e}])
    F.scaled_dot_product_attention(p0[None, :{e}], p0[None, :{e}], p0[None, :{e}], is_causal=True)
    F.embedding(torch.arange({e}), p0)
    F.glu(p0[:{e}], 0)
    F.pixel_shuffle(p0[:{e}].view(-1, 3, 1, 1).expand(-1, -1, 2, 2).reshape(-1, 12, 1, 1), 2)
    torch.cdist(p0[:{e}], x0)
    p0[:{e}].relu() if p0[:{e}].shape[0] > 1 else p0[:{e}].sigmoid()
""")
STATES = rows("""
    x0 + p1.clone() + 0 * (p1.add_(1) if {e} > 1 else p1)
    x0 + p1.clone() + 0 * (p1 if {e} > 1 else p1.sub_(1))
    x0 + p1.clone() + 0 * p1.add_(1 if {e} > 1 else 2)
    x0 + p1.clone() + 0 * p1.add_({e})
    x0 + p1.clone() + 0 * p1.copy_(p0[:{e}].sum(0))
    x0 + p1.clone() + 0 * p1[:{e}].add_(1).sum()
    x0 + p1.clone() + 0 * p0[:{e}, :1].t().reshape(-1).add_(p1.add_(1)[0]).sum() + p0[:1]
""")
"""What a call leaves behind, of which only the next one tells."""
USES = DECISIONS + COUNTS + CUTS + MADE + COMPUTED + STATES
"""{e}: the number. What eager refuses at a size is no program there."""

COUNT = len(NUMBERS) * len(USES)
ROWS = ((1, 3), (0, 2), (2, 1), (3, 3), (4, 0), (5, 2), (6, 1), (7, 9), (16, 5), (70, 1))
EXAMPLES = ((4, 2), (11, 19), (2, 3), (5, 4), (8, 6), (9, 3), (16, 5))
KINDS = ("auto", "open", "auto", "named", "auto")


def idiom(seed: int) -> Program:
    """The program of a seed: COUNT of them, then the same again at another example, with sizes declared otherwise."""
    turn, pair = divmod(seed, COUNT)
    number, use = NUMBERS[pair // len(USES)], USES[pair % len(USES)]
    number = number.replace("{s}", "x0.shape[0]").replace("{t}", "x1.shape[0]")
    state = " p1[3]" if "p1" in use else ""
    found = case(f"x0[n,3] x1[m,3] p0[2100,3]{state} : {use.replace('{e}', f'({number})')}", seed)
    inputs = tuple(i for i in found.inputs if any(i.name in line.text for line in found.lines))
    symbols = {s for i in inputs for s in i.symbols().values()}
    named = ("n", "m")
    k = pair + pair // len(USES) + turn
    example = EXAMPLES[k % len(EXAMPLES)]
    kind = KINDS[(k // len(EXAMPLES) + turn) % len(KINDS)]
    return replace(
        found,
        inputs=inputs,
        sizes=tuple((s, n) for s, n in zip(named, example, strict=True) if s in symbols),
        dynamic=kind if symbols else "",
        rows=tuple(tuple((s, n) for s, n in zip(named, row, strict=True) if s in symbols) for row in ROWS),
    )
