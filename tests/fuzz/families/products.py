"""Products of all spellings: matrices, vectors, batches, einsum, with weights and with each other."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Drawer, Drawn, Family
from tests.fuzz.families.forms import scale

COLUMNS = (1, 2, 3, 8, 16, 17, 33, 65, 128)


def _with_weights(g: Drawer) -> Drawn:
    r, a = g.r, g.floats(least=1)
    t = g.value(a)
    depth = t.shape[-1]
    if g.is_symbolic(depth):
        return f"{a} @ {a}.mT" if t.dim() > 1 else f"torch.dot({a}, {a})"
    n = r.choice(COLUMNS)
    w, wt, bias = g.weight((depth, n), t.dtype), g.weight((n, depth), t.dtype), g.weight((n,), t.dtype)
    forms = [
        f"{a} @ {w}",
        f"F.linear({a}, {wt}, {bias})",
        f"F.linear({a}, {wt}, {bias})",
        f"F.linear({a}, {wt})",
        f"{a} @ {wt}.t()",
        f"torch.einsum('...k,kn->...n', {a}, {w})",
        f"torch.mv({a}.reshape(-1, {depth}), {w}[:, 0])",
        f"torch.relu(F.linear({a}, {wt}, {bias}))",
        f"F.gelu(F.linear({a}, {wt}, {bias})) * 0.5",
        f"F.linear({a}, {wt}).sigmoid() * F.linear({a}, {wt} * 0.5, {bias})",
        f"F.linear({a}, {wt}, {bias}) * {bias} + {bias}",
        f"({a} @ {w}).softmax(-1)",
        f"F.linear({a}, {wt}).sum(-1)",
        f"F.linear({a}, {wt}).transpose(0, -1) + 1",
        f"F.linear(F.layer_norm({a}, ({depth},)), {wt})",
        f"F.linear({a} * {a}.sigmoid(), {wt})",
        f"torch.cat([F.linear({a}, {wt}), {a} @ {w}], -1)",
        f"tuple(F.linear({a}, {wt}, {bias}).chunk(2, -1))",
    ]
    if n % 2 == 0:
        forms += [f"(lambda t: F.silu(t[0]) * t[1])(F.linear({a}, {wt}, {bias}).chunk(2, -1))"]
    if t.dim() == 1:
        forms += [f"torch.outer({a}, {bias})", f"torch.dot({a}, {a})", f"torch.matmul({wt}, {a})"]
    if t.dim() > 1:
        one, other = (scale(g, (*t.shape[:-1], n), t.dtype) for _ in range(2))
        forms += [f"({a} @ {w}) * {one}", f"(F.linear({a}, {wt}, {bias}) + {one}) * {other}"]
    if t.dim() == 2:
        forms += [
            f"torch.addmm({bias}, {a}, {w}, beta=0.5, alpha=2)",
            f"torch.einsum('ij,kj->ik', {a}, {wt})",
            f"torch.einsum('ij,kj->ki', {a}, {wt})",
            f"torch.cdist({a}, {wt})",
            f"torch.addmv({a}[:, 0], {a}, {w}[:, 0])",
            f"{wt} @ {a}.t()",
        ]
    if t.dim() == 3:
        forms += [f"torch.einsum('bij,jk->kbi', {a}, {w})", f"torch.einsum('bij,kj->bki', {a}, {wt})"]
    return r.choice(forms)


OF_TWO = {
    0: ("{a} @ {b}.mT", "{a}.mT @ {b}", "{a} @ {a}.mT", "{a}.mT @ {a}", "({a} @ {b}.mT) * 0.5 + 1"),
    2: ("torch.mm({a}.t(), {b})", "torch.einsum('ij,ij->j', {a}, {b})", "torch.einsum('ij,kj->ikj', {a}, {b})"),
    3: (
        "torch.bmm({a}, {b}.transpose(1, 2))",
        "torch.baddbmm({a} @ {a}.mT, {a}, {a}.mT, beta=0.3, alpha=0.7)",
        "torch.einsum('bij,bkj->bik', {a}, {b})",
        "torch.einsum('bij,bkj->ikb', {a}, {b})",
        "torch.bmm({a}.mT, {b})",
        "torch.addbmm({a}[0] @ {a}[0].t(), {a}, {b}.mT)",
    ),
    4: (
        "torch.einsum('abij,cbkj->acik', {a}, {b})",
        "torch.tensordot({a}, {b}, dims=([0, 1], [0, 1]))",
        "{a}.transpose(1, 2) @ {b}.permute(0, 2, 3, 1)",
    ),
}
"""Rank -> products of two values of one shape; 0: of any rank from 2 on."""


def _with_itself(g: Drawer) -> Drawn:
    a = g.floats(least=2)
    b = g.alike(a)
    forms = (*OF_TWO[0], *OF_TWO.get(g.value(a).dim(), ()))
    return g.r.choice(forms).format(a=a, b=b)


def _between(g: Drawer) -> Drawn:
    """Two values whose sizes fit, neither of them a weight."""
    a = g.floats(least=2)
    t = g.value(a)

    def fits(u: object) -> bool:
        return isinstance(u, torch.Tensor) and u.dim() == 2 and u.dtype == t.dtype and u.shape[0] == t.shape[-1]

    b = g.operand(fits, lambda: g.input((t.shape[-1], g.r.choice(COLUMNS)), t.dtype, "normal"))
    return g.r.choice((f"{a} @ {b}", f"{a} @ {b}", f"({a} @ {b}).relu()", f"{a} @ ({b} * 2)", f"{b}.t() @ {a}.mT"))


def _long(g: Drawer) -> Drawn:
    """A product over many elements: sums are cut in parts."""
    if g.main is torch.float64:
        return None
    depth = g.r.choice((129, 512, 1000, 2049))
    rows = g.r.choice((1, 2, 7, 33))
    x = g.input((rows, depth), g.main, "normal")
    n = g.r.choice((1, 8, 33, 130))
    w = g.weight((n, depth))
    return g.r.choice(
        (
            f"F.linear({x}, {w}) * 0.1",
            f"F.linear({x}, {w}, {g.weight((n,))}).relu()",
            f"{x} @ {w}.t()",
            f"F.linear({x}.tanh(), {w})",
        )
    )


def _bilinear(g: Drawer) -> Drawn:
    a = g.floats(least=1)
    t = g.value(a)
    n = t.shape[-1]
    if g.is_symbolic(n) or n > 33:
        return None
    if g.r.random() < 0.5:
        return f"F.bilinear({a}, {a}, {g.weight((3, n, n), t.dtype)})"
    # products of two such numbers leave float16, their sums need not
    large = f"({a}.half() + 300)"
    return f"F.bilinear({large}, {large}, {g.weight((3, n, n), torch.float16)})"


FAMILIES = (
    Family("products with weights", 4, _with_weights),
    Family("products with itself", 1.8, _with_itself),
    Family("products of values", 1.2, _between),
    Family("long products", 0.8, _long),
    Family("bilinear", 0.6, _bilinear),
)
