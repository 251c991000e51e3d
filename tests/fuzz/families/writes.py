"""Writes in place, into values, into views of them, into buffers that live from call to call."""

from __future__ import annotations

import torch

from tests.fuzz.draw import Draft, Drawer, Drawn, Family, Unfit

PARTS = (
    "{a}", "{a}[0]", "{a}[..., ::2]", "{a}.select({d}, -1)", "{a}[1:]", "{a}.transpose(0, -1)", "{a}.mT", "{a}.diagonal()",
    "{a}.tensor_split(2, {d})[1]", "{a}.tensor_split(3)[0]", "{a}.unsafe_chunk(2, {d})[0]", "{a}.chunk(2, {d})[-1]",
    "{a}.split(2, {d})[0]", "{a}.unbind({d})[-1]", "{a}.unflatten(0, (1, -1))[0]", "{a}.swapaxes(0, -1)[:1]",
    "{a}[..., :1].squeeze(-1)", "{a}.view(-1)", "{a}.unsqueeze(0)[:, :1]", "{a}.narrow({d}, 0, 1)", "{a}.flatten(0)",
    "{a}.ravel()", "{a}.reshape(-1, 1)", "{a}.contiguous()",
)  # fmt: skip
WRITES = (
    ".add_(1)", ".mul_(0.5)", ".relu_()", ".copy_(X)", ".zero_()", ".fill_(2)", ".sub_((X).mean())", ".neg_()", ".clamp_(-1, 1)",
    ".masked_fill_(X > 0, 3)", ".add_(X)", ".exp_().mul_(.1)", ".div_(3)", ".sigmoid_()", ".cumsum_(0)", ".addcmul_(X, X)",
    ".lerp_(X, .25)", ".copy_((X).flip(0))", ".index_fill_(0, torch.tensor([0]), 1)", ".tanh_()", ".round_()",
)  # fmt: skip


def _written(g: Drawer) -> Drawn:
    r = g.r
    a = g.pick(lambda t: g.writable(t) and t.dim() > 0 and t.is_floating_point())
    if a is None:
        return f"{g.floats(least=1)}.clone()"
    part = r.choice(PARTS).format(a=a, d=g.dim(a))
    k = r.random()
    if k < 0.15:
        return Draft(r.choice((f"{a}[..., 0] = {a}[..., -1]", f"{a}[::2] *= 2", f"{a}[:, 1:] = 0.5")), True)
    if k < 0.25:
        return Draft(f"{a}[{a} > 1] = 0.25", True)
    if k < 0.32:
        return Draft(f"{a}[:1] = {a}[-1:].clone()", True)
    if k < 0.5 and g.value(a).dim() > 1:
        # what torch makes of {a} for such a write may have other strides than {a} has
        across, copy = f"{a}.transpose(0, -1)", g.next_name()
        flat = r.choice((f"{copy}.flatten()", f"{copy}.ravel()", f"{copy}.reshape(-1)", f"{copy}.contiguous()"))
        across_first = [Draft(f"{across}.masked_fill_({across} > 0, 3)", True)] if r.random() < 0.7 else []
        if r.random() < 0.4:  # whether `flat` is a view shows behind a write to what it is of
            return [*across_first, Draft(f"{a}.clone()"), Draft(flat), Draft(f"{copy}[:1].mul_(0.5)", True)]
        return [*across_first, Draft(f"{a}.clone()"), Draft(f"{flat}.mul_(0.5)", True)]
    return Draft(part + r.choice(WRITES).replace("X", part), True)


def _state(g: Drawer) -> Drawn:
    """A buffer is read, changed, and read again."""
    r, a = g.r, g.floats(least=1)
    t = g.value(a)
    if g.has_symbols(t):
        raise Unfit
    p = g.state(t.shape, t.dtype)
    before = r.choice((f"{p}.clone()", f"{p} * 1", f"{p} + {a}"))
    change = r.choice(
        (
            f"{p}.mul_(0.5).add_({a} * 0.1)",
            f"{p}.copy_({a})",
            f"{p}[:1].add_(1)",
            f"{p}[..., -1:].copy_({a}[..., :1])",
            f"{p}.add_({a}, alpha=0.1)",
            f"{p}.lerp_({a}, 0.3)",
            f"{p}.copy_(torch.cat([{p}[1:], {a}[:1]]))",
            f"{p}.copy_({p}.roll(1, 0))",
            f"{p}.index_copy_(0, torch.tensor([0]), {a}[:1])",
        )
    )
    after = r.choice((f"{p} + 1", f"{p}.sum(0)", f"{p}.clone()", f"{p} * {p}", f"{p} + {a}"))
    return [Draft(before), Draft(change, True), Draft(after)]


def _counter(g: Drawer) -> Drawn:
    """A number of calls, kept in a buffer, and a value that depends on it."""
    p = g.state((1,), torch.int64)
    a = g.floats(least=1)
    return [Draft(f"{p}.add_(1)", True), Draft(f"{a} + {p}.to({g.value(a).dtype}) % 3")]


FAMILIES = (Family("writes in place", 4, _written), Family("states", 1, _state), Family("counters", 0.3, _counter))
