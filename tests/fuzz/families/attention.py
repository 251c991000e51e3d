"""Attention: the op, and written out by hand."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Drawer, Drawn, Family


def _attention(g: Drawer) -> Drawn:
    r = g.r
    batch, heads = r.choice((1, 2)), r.choice((1, 2, 4))
    queries, keys = r.choice((1, 1, 3, 5, 17, 33, 65)), r.choice((1, 4, 7, 17, 65, 130))
    width, value_width = r.choice((4, 8, 16, 17, 64)), r.choice((4, 8, 9, 64))
    if g.dynamic:
        queries, keys = r.choice((11, queries)), r.choice((11, keys))
    fewer = r.choice((heads, heads, 1)) if heads > 1 else heads
    # over no keys at all, eager gives the query's batch instead of the one that it broadcasts to
    q = g.input((batch if g.dynamic else r.choice((1, batch)), heads, queries, width), g.main, "normal")
    k = g.input((batch, fewer, keys, width), g.main, "normal")
    v = g.input((batch, fewer, keys, value_width), g.main, "normal")
    mask, causal = "None", False
    kind = r.choice(("none", "none", "bool", "float", "causal", "row"))
    if kind == "bool":
        mask = g.input((queries, keys), torch.bool)
    elif kind == "float":
        mask = g.input((batch, 1, queries, keys), g.main, "normal")
    elif kind == "row":
        mask = g.input((batch, 1, 1, keys), torch.bool)
    causal = kind == "causal"
    scale = r.choice(("None", "0.3"))
    if r.random() < 0.35 and fewer == heads:
        return _written_out(g, q, k, v, mask, kind)
    grouped = ", enable_gqa=True" if fewer != heads else ""
    return (
        f"F.scaled_dot_product_attention({q}, {k}, {v}, attn_mask={mask}, is_causal={causal}, scale={scale}{grouped})"
    )


def _written_out(g: Drawer, q: str, k: str, v: str, mask: str, kind: str) -> str:
    scores = g.r.choice((f"({q} * 0.4) @ {k}.mT", f"({q} @ {k}.mT) * 0.25", f"{q} @ {k}.transpose(-1, -2) / 3"))
    if kind in ("bool", "row"):
        mask = f"({mask} | (torch.arange({k}.shape[-2]) == 0))"  # a query without keys is 0 here, NaN in eager
        scores = f"({scores}).masked_fill(~{mask}, {g.r.choice(('-inf', '-1e30', '-3.0'))})"
    if kind == "float":
        scores = f"{scores} + {mask}"
    return g.r.choice(
        (f"({scores}).softmax(-1) @ {v}", f"torch.matmul(F.softmax({scores}, dim=-1), {v}).transpose(1, 2).flatten(2)")
    )


def _block(g: Drawer) -> Drawn:
    """A layer of a transformer around a value."""
    r = g.r

    def fits(t: torch.Tensor) -> bool:
        even = t.dim() == 3 and t.shape[-1] % 2 == 0 and t.shape[-1] > 0 and not g.is_symbolic(t.shape[-1])
        return even and t.dtype == g.main and t.numel() <= 20_000

    a = g.operand(fits, lambda: g.input((r.choice((1, 2)), g.size() % 100, r.choice((2, 4, 8, 16))), g.main))
    t = g.value(a)
    width = t.shape[-1]
    w, o = g.weight((3 * width, width), t.dtype), g.weight((width, width), t.dtype)
    heads = r.choice((1, 2))
    parts = f"F.linear({a}, {w}).unflatten(-1, (3, {heads}, {width // heads})).permute(2, 0, 3, 1, 4)"
    joined = (
        f"F.scaled_dot_product_attention(*{parts}.unbind(0), is_causal={r.random() < 0.5}).transpose(1, 2).flatten(2)"
    )
    return r.choice(
        (joined, f"{a} + F.linear({joined}, {o})", f"F.layer_norm({a} + F.linear({joined}, {o}), ({width},))")
    )


FAMILIES = (Family("attention", 2, _attention), Family("transformer layers", 0.6, _block))
