"""Two operands of two dtypes: each op of two, with tensors, tensors without dimensions and numbers on either side.

What dtype the result has, in which one it is computed and where it is rounded is a table of its own in torch, and in
place another one.
"""

from __future__ import annotations

from tests.fuzz.cases import case
from tests.fuzz.combinations import combination, number_of
from tests.fuzz.families.forms import rows
from tests.fuzz.program import Program

OPS = rows("""
    {a} + {b}
    {a} - {b}
    {a} * {b}
    {a} / {b}
    {a} // {b}
    {a} % {b}
    {a} ** {b}
    {a} & {b}
    {a} | {b}
    {a} ^ {b}
    {a} << {b}
    {a} >> {b}
    {a} == {b}
    {a} != {b}
    {a} < {b}
    {a} >= {b}
    torch.add({a}, {b}, alpha=2)
    torch.sub({a}, {b}, alpha=0.5)
    torch.rsub({a}, {b})
    torch.div({a}, {b}, rounding_mode="trunc")
    torch.div({a}, {b}, rounding_mode="floor")
    torch.fmod({a}, {b})
    torch.remainder({a}, {b})
    torch.maximum({a}, {b})
    torch.minimum({a}, {b})
    torch.fmax({a}, {b})
    torch.fmin({a}, {b})
    torch.atan2({a}, {b})
    torch.hypot({a}, {b})
    torch.copysign({a}, {b})
    torch.nextafter({a}, {b})
    torch.logaddexp({a}, {b})
    torch.xlogy({a}, {b})
    torch.special.xlog1py({a}, {b})
    torch.ldexp({a}, {b})
    torch.gcd({a}, {b})
    torch.heaviside({a}, {b})
    torch.logical_and({a}, {b})
    torch.logical_xor({a}, {b})
    torch.isclose({a}, {b})
    torch.where({a} > 0, {a}, {b})
    torch.where({b} > 0, {a}, 2)
    torch.lerp({a}, {b}, 0.5)
    torch.addcmul({a}, {a}, {b}, value=2)
    torch.addcdiv({a}, {a}, {b}, value=0.5)
    torch.clamp({a}, min={b})
    torch.clip({a}, {b}, {b})
    torch.bucketize({a}, {b}.flatten().sort()[0])
    torch.isin({a}, {b})
    torch.cat([{a}, {b}])
    torch.stack([{a}, {b}])
    torch.outer({a}.flatten(), {b}.flatten())
    {a} @ {b}.mT
    F.mse_loss({a}, {b})
    F.l1_loss({a}, {b})
    F.smooth_l1_loss({a}, {b})
    F.prelu({a}, {b}.flatten()[:1])
    F.binary_cross_entropy_with_logits({a}, {b})
    {a}.type_as({b})
    {a}.masked_fill({a} > 0, {b})
    {a}.index_add(0, torch.tensor([0, 2]), {b}[:2])
    {a}.scatter(1, torch.zeros(3, 1, dtype=torch.int64), {b})
    {a}.cumsum(0) + {b}
    {a}.sum() + {b}
    {a}.mean(0) * {b}
    !{a}.add_({b})
    !{a}.sub_({b}, alpha=2)
    !{a}.mul_({b})
    !{a}.div_({b})
    !{a}.floor_divide_({b})
    !{a}.remainder_({b})
    !{a}.pow_({b})
    !{a}.copy_({b})
    !{a}.clamp_(max={b})
    !{a}.fill_({b})
    !{a}.masked_fill_({a} > 1, {b})
    !{a}.eq_({b})
    !{a}.bitwise_or_({b})
    !{a}.lerp_({b}, 0.25)
    !{a}.addcmul_({a}, {b})
    !{a}[0] = {b}
""")

DTYPES = ("", "f16", "bf16", "f64", "i64", "i32", "u8", "bool")
OTHERS = (*(f"x1[3,4]{d}" for d in DTYPES), *(f"x1[]{d}" for d in DTYPES), "2", "-3", "0.5", "1e10", "True", "300")

COUNT = number_of(OPS, OTHERS, DTYPES)


def dtype_pair(seed: int) -> Program:
    """The program of a seed: COUNT of them, then the same again with operands that trade places."""
    turn, (text, given, dtype) = combination(seed, OPS, OTHERS, DTYPES)
    tensor = given.startswith("x1")
    a, b = ("x1" if tensor else f"({given})"), "v0"
    if text.startswith("!") or turn % 2 == 0:
        a, b = b, a
    text = text.replace("{a}", a).replace("{b}", b)
    outputs = "v0" if text.startswith("!") else "v1"
    return case(f"x0[3,4]{dtype} {given if tensor else ''} : x0.clone(); {text} -> {outputs}", seed)
