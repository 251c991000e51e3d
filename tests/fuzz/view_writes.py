"""Writes in place through a view of a view, each pair of views, of tensors laid out in each way.

Eager mode decides by sizes and strides whether ravel(), reshape() or contiguous() is a view, and so whether a write is
seen by others; a compiler sees the strides of one example. Each combination is a program, run at sizes from 0 on.
"""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.cases import case
from tests.fuzz.combinations import combination, in_turn, number_of
from tests.fuzz.families.forms import rows
from tests.fuzz.program import Program

TENSORS = rows("""
    x0[n,3] dense
    x0[n,1] dense
    x0[1,n] dense
    x0[n,4,2] dense
    x0[2,1,n] dense
    x0[3,n,1] dense
    x0[n,3,2,2] channels_last
    x0[2,n,3,1] channels_last
    x0[1,2,n,1] channels_last
    x0[2,1,3,n] channels_last
    x0[n,2,1,1] channels_last
""")
"""The input, with its layout."""

SOURCES = rows("""
    x0 * 2
    x0.clone()
    x0.transpose(0, -1) * 2
    x0.mT.clone()
    x0.mT.contiguous() + 1
    x0[1:] + 1
    x0[..., :1].expand_as(x0) * 2
    torch.cat([x0, x0.flip(0)], -1)
    x0.new_zeros(x0.shape[::-1]) + 1
    torch.empty_like(x0).copy_(x0)
    x0
""")
"""{y} is made by one; x0 itself is written to, too."""

VIEWS = rows("""
    {a}
    {a}.ravel()
    {a}.flatten()
    {a}.flatten(0, 1)
    {a}.reshape(-1)
    {a}.reshape(-1, 1)
    {a}.reshape({a}.shape[::-1])
    {a}.reshape(-1, {a}.shape[-1])
    {a}.view(-1)
    {a}.view_as({a})
    {a}.contiguous()
    {a}.mT
    {a}.mT.reshape(-1)
    {a}.transpose(0, -1)
    {a}.permute(*range({a}.dim() - 1, -1, -1))
    {a}.movedim(0, -1)
    {a}[1:]
    {a}[:1]
    {a}[-1:]
    {a}[::2]
    {a}[..., 1:]
    {a}[..., ::2]
    {a}[0]
    {a}.select(-1, 0)
    {a}.narrow(-1, 0, 1)
    {a}.diagonal()
    {a}.unsqueeze(1)
    {a}.squeeze()
    {a}.unflatten(0, (1, -1))
    {a}.unflatten(-1, (-1, 1)).flatten(-2)
    {a}.unbind(0)[-1]
    {a}.chunk(2)[-1]
    {a}.split(2)[0]
    {a}.tensor_split(2, -1)[0]
    {a}.unfold(0, 1, 1)
    {a}.sum_to_size({a}.shape)
    {a}.to({a}.dtype)
    {a}.broadcast_to({a}.shape)
    {a}.expand_as({a})
    {a}.type_as({a})
    {a}.detach()
    {a}.positive()
    F.dropout({a}, 0.5, False)
    torch.atleast_2d({a})
""")

WRITES = rows("""
    .mul_(0.5)
    .add_(1)
    .zero_()
    .exp_()
    .copy_({w} * 3)
    .masked_fill_({w} > 0, 3)
    .sub_({w}.mean())
    .clamp_(-1, 1)
    .add_({w})
    .copy_({w}.flip(0))
""")

RESULTS = rows("""
    {y}, {v}, {w}
    {y} + 1, {w} * 2
    {w}, {y}
    {y}.reshape(-1)
    {y} + 0, v3 -> v3 = {v} * 2
    {y}, v3 -> v3 = {v}.ravel(); !v3.mul_(2)
""")

KINDS = ("auto", "open", "named", "auto", "")
EXAMPLES = (5, 2, 3, 8)
ROWS = ((0,), (1,), (2,), (3,), (4,), (7,))

COUNT = number_of(TENSORS, SOURCES, VIEWS, VIEWS)


def view_write(seed: int) -> Program:
    """The program of a seed: COUNT of them, then the same again with another write, example and result."""
    turn, (tensor, source, outer, inner) = combination(seed, TENSORS, SOURCES, VIEWS, VIEWS)
    spec, layout = tensor.split()
    write = in_turn(WRITES, seed + turn).replace("{w}", "v2")
    outputs, _, more = in_turn(RESULTS, seed // len(WRITES) + turn).partition(" -> ")
    names = {"{y}": "v0", "{v}": "v1", "{w}": "v2"}
    statements = [source, outer.replace("{a}", "v0"), inner.replace("{a}", "v1"), f"!v2{write}"]
    statements += [s.removeprefix("v3 = ") for s in more.split("; ") if s]
    text = f"{spec} : {'; '.join(statements)} -> {outputs}"
    for name, value in names.items():
        text = text.replace(name, value)
    found = case(text, seed)
    kind, example = in_turn(KINDS, seed + turn), in_turn(EXAMPLES, seed // 3 + turn)
    return replace(
        found,
        inputs=tuple(replace(i, layout=layout) for i in found.inputs),
        sizes=(("n", example),),
        dynamic=kind,
        rows=tuple((("n", n),) for (n,) in ROWS) if kind else (),
    )
