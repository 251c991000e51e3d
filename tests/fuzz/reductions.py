"""Reductions, scans and sorts: each over each of its dimensions, of tensors laid out in each way, in each dtype.

What a sum, a maximum or a median of nothing is, which of equals an index names, where a half type is rounded and which
dtype comes out is said op by op in torch. Each combination is a program, run at sizes from 0 on. A median is taken of a
copy: of an expanded tensor eager reads memory that is not the tensor's.
"""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.cases import case
from tests.fuzz.combinations import combination, in_turn, number_of
from tests.fuzz.families.forms import rows
from tests.fuzz.program import Program

DIMS = ("0", "1", "-1", "(0, 1)", "(-1, 0)", "()", "None")
ONE_DIM = DIMS[:3]

OVER_DIMS = rows("""
    {a}.sum({d})
    {a}.sum({d}, keepdim=True)
    {a}.sum({d}, dtype=torch.float64)
    {a}.mean({d})
    {a}.mean({d}, keepdim=True, dtype=torch.float32)
    {a}.amax({d})
    {a}.amin({d}, keepdim=True)
    {a}.any({d})
    {a}.all({d}, keepdim=True)
    {a}.std({d})
    {a}.std({d}, correction=0, keepdim=True)
    {a}.var({d}, correction=2)
    torch.var_mean({a}, {d})[0]
    torch.var_mean({a}, {d}, keepdim=True)[1]
    torch.std_mean({a}, {d}, correction=0)[0]
    torch.logsumexp({a}, {d})
    torch.nansum({a}, {d})
    torch.nanmean({a}, {d}, keepdim=True)
    torch.count_nonzero({a}, {d})
    torch.linalg.vector_norm({a}, 2, {d})
    torch.linalg.vector_norm({a}, 3, {d}, keepdim=True)
    torch.linalg.vector_norm({a}, float("inf"), {d})
    torch.norm({a}, 1, {d})
    {a}.flip({d})
""")

OVER_ONE = rows("""
    {a}.prod({d})
    {a}.prod({d}, keepdim=True)
    {a}.argmax({d})
    {a}.argmin({d}, keepdim=True)
    {a}.max({d})[0]
    {a}.max({d}, keepdim=True)[1]
    {a}.min({d})[1]
    torch.aminmax({a}, dim={d})[0]
    torch.aminmax({a}, dim={d}, keepdim=True)[1]
    {a}.contiguous().median({d})[0]
    {a}.contiguous().nanmedian({d}, keepdim=True)[0]
    {a}.kthvalue(1, {d})[0]
    {a}.topk(1, {d})[0]
    {a}.topk(1, {d}, largest=False)[1]
    {a}.sort({d})[0]
    {a}.sort({d}, descending=True, stable=True)[1]
    {a}.argsort({d}, stable=True)
    {a}.softmax({d})
    {a}.log_softmax({d})
    F.softmin({a}, {d})
    {a}.softmax({d}, dtype=torch.float32)
    {a}.cumsum({d})
    {a}.cumsum({d}, dtype=torch.float32)
    {a}.cumprod({d})
    {a}.cummax({d})[0]
    {a}.cummin({d})[1]
    torch.logcumsumexp({a}, {d})
    torch.diff({a}, dim={d})
    torch.diff({a}, n=2, dim={d})
    torch.trapezoid({a}, dim={d})
    torch.cumulative_trapezoid({a}, dim={d})
    F.normalize({a}, dim={d})
    F.cosine_similarity({a}, {a}.flip(0), dim={d})
    {a}.renorm(2, {d}, 1.5)
    {a}.roll(1, {d})
    {a}.unbind({d})[0]
    {a}.select({d}, 0)
    {a}.index_select({d}, torch.tensor([0, 0]))
    {a}.repeat_interleave(2, {d})
    torch.stack([{a}, {a}], {d})
    {a}.unique_consecutive(dim={d})
    {a}.tensor_split(2, {d})[1]
    {a}.quantile(0.3, {d})
""")

REDUCTIONS = [form.replace("{d}", d) for form in OVER_DIMS for d in DIMS]
REDUCTIONS += [form.replace("{d}", d) for form in OVER_ONE for d in ONE_DIM]

SOURCES = rows("""
    x0 * 1
    x0.clone()
    x0.mT
    x0[:, ::2]
    x0[1:]
    x0.unsqueeze(1)
    x0.expand(2, *x0.shape)
    x0.flip(0)
    x0[:0]
    x0.permute(*range(x0.dim())[::-1])
    x0.clamp(-1, 1)
    (x0 > 0)
""")

SHAPES = ("n,5", "4,n", "n,1", "3,n,2", "1,n")
DTYPES = ("", "f16", "bf16", "f64", "i64", "i32", "u8", "bool")
KINDS = ("auto", "open", "named", "")
EXAMPLES = (6, 3, 4, 9)
ROWS = (0, 1, 2, 3, 5, 17)

COUNT = number_of(SHAPES, SOURCES, REDUCTIONS, DTYPES)


def reduction(seed: int) -> Program:
    """The program of a seed: COUNT of them, then the same again at another example, with sizes declared otherwise."""
    turn, (shape, made, form, dtype) = combination(seed, SHAPES, SOURCES, REDUCTIONS, DTYPES)
    found = case(f"x0[{shape}]{dtype} : {made}; {form.replace('{a}', 'v0')}", seed)
    kind = in_turn(KINDS, seed + turn)
    return replace(
        found,
        sizes=(("n", in_turn(EXAMPLES, seed // len(KINDS) + turn)),),
        dynamic=kind,
        rows=tuple((("n", n),) for n in ROWS) if kind else (),
    )
