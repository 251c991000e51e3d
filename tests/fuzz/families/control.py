"""Conditionals and loops whose course depends on data: `cond` and `while_loop` of program.space."""

from __future__ import annotations

from tests.fuzz.draw import Drawer, Drawn, Family


def _conditional(g: Drawer) -> Drawn:
    a = g.floats(least=1)
    first, second = g.r.sample(("t * 2 + 1", "t.relu() - 1", "t.flip(0)", "t.sin()", "t - t.mean()", "t.cumsum(0)"), 2)
    return f"cond({a}.sum() > {g.r.choice((0, 1000))}, lambda t: ({first},), lambda t: ({second},), ({a},))[0]"


def _loop(g: Drawer) -> Drawn:
    a = g.floats(least=1)
    step = g.r.choice(("t * 0.5 + 1", "t.roll(1, 0)", "t.tanh()", "t + t.mean()"))
    return (
        "while_loop("
        f"lambda i, t: i < {g.r.choice((0, 1, 3))}, lambda i, t: (i + 1, {step}), (torch.tensor(0), {a}.clone()))[1]"
    )


FAMILIES = (Family("conditionals", 0.6, _conditional), Family("loops", 0.4, _loop))
