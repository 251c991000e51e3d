"""Results by their strides: what an op makes of a tensor that is laid out in some way, and what a model does with that
which eager mode decides by strides.

torch traces some ops with other strides than eager gives. Elements are right either way; what contiguous(), reshape()
or ravel() give, what is_contiguous() and stride() answer, and who sees a write, is not.
"""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.cases import case
from tests.fuzz.combinations import combination, in_turn, number_of
from tests.fuzz.families.forms import rows
from tests.fuzz.program import Program

TENSORS = rows("""
    x0[n,3,4] dense
    x0[n,6] dense
    x0[2,n,3] dense
    x0[n,2,6,4] dense
    x0[n,2,6,4] channels_last
    x0[2,3,n,4] channels_last
    x0[n,3,4] permuted
    x0[n,1,5] dense
""")
LAYOUTS = rows("""
    x0 * 1
    x0.transpose(0, -1) * 1
    x0.transpose(0, -1)
    x0.mT
    x0.movedim(0, -1)
    x0[..., ::2]
    x0[..., 1:]
    x0[:, :1].expand_as(x0)
    x0.flip(0)
    x0.mT.contiguous()
""")
OPS = rows("""
    {a} + 1
    {a} + {a}.flip(0)
    {a} + {a}[:1]
    {a}.neg()
    {a}.exp()
    {a} // 2
    {a} % 0.7
    torch.copysign({a}, 1.0)
    torch.fmod({a}, 0.7)
    torch.div({a}, 0.3, rounding_mode="trunc")
    {a}.float_power(2)
    {a}.ldexp(torch.tensor(2))
    torch.lerp({a}, {a} * 2, 0.3)
    torch.addcmul({a}, {a}, {a})
    torch.where({a} > 0, {a}, 0.)
    torch.where({a} > 0, {a}, {a} * 2)
    {a}.masked_fill({a} > 0, 1.)
    {a}.clamp(-1, 1)
    torch.maximum({a}, {a} * 0.5)
    {a}.nan_to_num()
    {a}.abs()
    F.gelu({a})
    F.silu({a})
    F.relu6({a})
    F.softplus({a})
    F.elu({a})
    F.hardswish({a})
    F.prelu({a}, torch.tensor([0.2]))
    F.dropout({a}, 0.5, False)
    {a}.softmax(-1)
    {a}.softmax(0)
    {a}.log_softmax(-1)
    F.layer_norm({a}, {a}.shape[-1:])
    F.normalize({a}, dim=-1)
    F.pad({a}, (1, 1))
    {a}.cumsum(0)
    {a}.cummax(-1)[0]
    {a}.sort(-1)[0]
    {a}.topk(1, -1)[0]
    {a}.flip(-1)
    {a}.roll(1, 0)
    {a}.tril()
    {a}.sum(0, keepdim=True)
    {a}.mean(-1)
    {a}.amax(1)
    {a}.index_select(-1, torch.tensor([1, 0]))
    {a}[:, torch.tensor([1, 0])]
    {a}.gather(-1, torch.zeros({a}.shape, dtype=torch.int64))
    {a}.scatter(0, torch.zeros({a}.shape, dtype=torch.int64), 1.)
    torch.cat([{a}, {a}], -1)
    torch.cat([{a}, {a} + 1], 0)
    torch.stack([{a}, {a}])
    {a}.repeat_interleave(2, 0)
    {a}.to(torch.float64)
    {a}.half()
    {a}.type_as({a})
    {a} @ {a}.mT
    {a}.mT @ {a}
    torch.einsum("...ij->...ji", {a}) * 1
    F.linear({a}, torch.ones(2, {a}.shape[-1]))
    {a}.new_zeros({a}.shape) + {a}
    torch.zeros_like({a}) + 1
    torch.empty_like({a}).copy_({a})
    {a}.clone()
    {a}.diff(dim=0)
    {a}.unfold(-1, 2, 1) + 0
    {a}.logcumsumexp(-1)
    torch.polar({a}.abs(), {a}).real
    {a}.cdist({a})
    {a}.view_as({a})
    {a}.argsort(-1).float()
    {a}.bool().float()
    F.glu(torch.cat([{a}, {a}], -1))
    F.one_hot({a}.abs().long() % 3, 3)
    F.logsigmoid({a})
    F.threshold({a}, 0.1, 0.)
    F.rrelu({a})
    {a}.renorm(2, 0, 1.0)
    {a}.heaviside({a})
    {a}.xlogy({a}.abs())
""")
QUESTIONS = rows("""
    {b} * 2 if {b}.is_contiguous() else {b} * 3
    {b} + {b}.stride()[0]
    {b} + sum({b}.stride())
    {b} * 2 if {b}.mT.is_contiguous() else {b} * 3
    !{b}.contiguous().mul_(2)
    !{b}.reshape(-1).mul_(2)
    !{b}.ravel().add_(1)
    !{b}.flatten(1).add_(1)
    !{b}.mT.contiguous().mul_(2)
    !{b}.mT.reshape(-1).mul_(2)
    !{b}.mT.flatten().add_(1)
    !{b}[1:].reshape(-1).mul_(2)
    !{b}[..., :2].contiguous().mul_(2)
    {b}.as_strided((2,), (1,)) * 2
    {b}.view(-1) * 2
    !{b}.view(-1).mul_(2)
    !torch.empty_like({b}).ravel().copy_({b}.ravel()).add_(1)
    !{b}.to({b}.dtype, memory_format=torch.contiguous_format).mul_(2)
""")

KINDS = ("", "auto", "open", "", "named")
EXAMPLES = (5, 2, 3, 8)
ROWS = ((0,), (1,), (2,), (3,), (4,), (7,))

COUNT = number_of(TENSORS, LAYOUTS, OPS, QUESTIONS)


def stride_form(seed: int) -> Program:
    """The program of a seed: COUNT of them, then the same again at another example, with sizes declared otherwise."""
    turn, (tensor, layout, op, question) = combination(seed, TENSORS, LAYOUTS, OPS, QUESTIONS)
    spec, order = tensor.split()
    made, asked = op.replace("{a}", "v0"), question.replace("{b}", "v1")
    outputs = "v1, v1 + 1" if asked.startswith("!") else "v2, v1"
    found = case(f"{spec} : {layout}; {made}; {asked} -> {outputs}", seed)
    kind = in_turn(KINDS, seed + turn)
    return replace(
        found,
        inputs=tuple(replace(i, layout=order) for i in found.inputs),
        sizes=(("n", in_turn(EXAMPLES, seed // 3 + turn)),),
        dynamic=kind,
        rows=tuple((("n", n),) for (n,) in ROWS) if kind else (),
    )
