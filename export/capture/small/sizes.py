"""Comparisons of sizes in the model's code, and numbers made of sizes, that small sizes would decide otherwise.

torch gives every dynamic size a range from 2, and takes a comparison that holds from there on for decided, without a
condition: of `a(x) if x.shape[0] > 1 else b(x)` only a is captured. While a module is captured each such comparison is
noted (torch_patches/size_comparisons.py) with the sizes that fail it; runs.py finds out for which of these the
program is wrong.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hardtack.exporter.capture.stride_questions import StrideQuestions
from hardtack.exporter.capture.torch_patches.guard_lines import asking_frame
from hardtack.exporter.errors import SourceLine
from hardtack.exporter.origin import asked_line
from hardtack.exporter.sizes.shapes import NO_NUMBER

COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], type]] = {
    "__lt__": (operator.lt, sympy.Lt),
    "__le__": (operator.le, sympy.Le),
    "__gt__": (operator.gt, sympy.Gt),
    "__ge__": (operator.ge, sympy.Ge),
    "__eq__": (operator.eq, sympy.Eq),
    "__ne__": (operator.ne, sympy.Ne),
}
NUMBERS: dict[str, Callable[..., Any]] = {"__sym_max__": max, "__sym_min__": min, "__abs__": abs}

SMALL = (0, 1)
_TOGETHER = 3
"""Of how many symbols small sizes are tried at once."""
_MOST = 8
"""How many such trials there are, first those with the fewest sizes of 0, of which there is nothing to see, then the
largest.
"""

Trial = tuple[tuple[str, int], ...]
"""Names of symbols, each with a size that it might have; the others are as in the example."""


@dataclass(frozen=True)
class Decision:
    """A condition on sizes that torch took to hold. `where` is the user's line that asked, `fails` says where it does
    not hold. `asked`: the model asked; else sizes that eager refuses, too, tell nothing.
    """

    expr: sympy.Basic
    where: SourceLine | None
    fails: tuple[Trial, ...]
    asked: bool = True


@dataclass
class Watch:
    """What was decided while a module was captured, by condition, and what it asked of strides."""

    decisions: dict[sympy.Basic, Decision] = field(default_factory=dict)
    strides: StrideQuestions = field(default_factory=StrideQuestions)
    _seen: set[tuple[sympy.Basic, bool]] = field(default_factory=set)
    """Of torch's own comparisons, and whether they held."""

    def evaluated(self, env: ShapeEnv, expr: sympy.Basic, given: Any) -> None:
        """Note a comparison that torch has answered, or a number that an op takes as a constant.

        What torch asks for itself is noted of several sizes only, for small_shapes.py to look at.
        """
        if not expr.free_symbols:
            return
        asked = True
        if isinstance(given, (int, sympy.Integer)) and not isinstance(given, bool):
            holds = sympy.Eq(expr, given, evaluate=False)
            fails = _trials(env, expr.free_symbols, lambda at: expr.xreplace(at) != given)
        elif given in (True, False):
            answer, asked = bool(given), asking_frame() is not None
            if not asked and not self._is_new(expr, answer):
                return
            holds = expr if answer else sympy.Not(expr)
            fails = _trials(env, expr.free_symbols, lambda at: bool(expr.xreplace(at)) is not answer)
        else:
            return
        if not any(g.expr == holds for g in env.guards):
            self._note(env, holds, fails, asked)

    def _is_new(self, expr: sympy.Basic, answer: bool) -> bool:
        """Whether a comparison of several sizes, which torch asks thousands of times, comes for the first time."""
        new = len(expr.free_symbols) > 1 and (expr, answer) not in self._seen
        self._seen.add((expr, answer))
        return new

    def compared(self, name: str, sizes: tuple[Any, ...], given: Any) -> None:
        """Note a comparison that has become constant, because sympy knows that sizes are positive."""
        constant = given.node.expr if isinstance(given, torch.SymBool) else given
        if constant not in (True, False) or asking_frame() is None:
            return
        env, answer = sizes[0].node.shape_env, bool(constant)
        x, y = map(_expr, sizes)
        compare, relation = COMPARISONS[name]
        fails = _trials(env, x.free_symbols | y.free_symbols, lambda at: _compare(compare, x, y, at) is not answer)
        unevaluated = relation(x, y, evaluate=False)
        self._note(env, unevaluated if answer else sympy.Not(unevaluated, evaluate=False), fails)

    def computed(self, name: str, sizes: tuple[Any, ...], given: Any) -> None:
        """Note the larger or smaller of two sizes, or a magnitude, that sympy decided because sizes are positive."""
        if asking_frame() is None:
            return
        env, found, number = sizes[0].node.shape_env, _expr(given), NUMBERS[name]
        exprs = [_expr(size) for size in sizes]
        symbols = {str(s): s for e in exprs for s in e.free_symbols}
        fails = _trials(
            env, symbols.values(), lambda at: found.xreplace(at) != number(*(e.xreplace(at) for e in exprs))
        )
        for trial in fails:
            apart = [sympy.Ne(symbols[s], size, evaluate=False) for s, size in trial]
            self._note(env, sympy.Or(*apart), (trial,))

    def _note(self, env: ShapeEnv, holds: sympy.Basic, fails: tuple[Trial, ...], asked: bool = True) -> None:
        known = self.decisions.get(holds)
        if fails and (known is None or (asked and not known.asked)):
            self.decisions[holds] = Decision(holds, asked_line(env._get_sloc()), fails, asked)


def _expr(size: Any) -> Any:
    return size.node.expr if isinstance(size, (torch.SymInt, torch.SymFloat)) else sympy.sympify(size)


def _compare(compare: Callable[[Any, Any], Any], x: Any, y: Any, at: dict[Any, Any]) -> bool:
    return bool(compare(x.xreplace(at), y.xreplace(at)))


def equals(e: sympy.Basic, at: Mapping[Any, Any], number: int) -> bool:
    """Whether e is this number where its symbols are those. False where it is none: n // (n // 2) is not at n = 1."""
    try:
        return bool(e.xreplace(at) == number)
    except NO_NUMBER:
        return False


def _trials(env: ShapeEnv, symbols: Iterable[Any], differs: Callable[[dict[Any, Any]], bool]) -> tuple[Trial, ...]:
    """Small sizes for which `differs`: of one symbol, the others as in the example, then of all."""
    named = {str(s): s for s in sorted(symbols, key=str)}
    examples = env.backed_var_to_val

    def fails(trial: Trial) -> bool:
        try:
            return differs({s: examples[s] for s in named.values()} | {named[s]: sympy.Integer(n) for s, n in trial})
        except NO_NUMBER:
            return False

    alone = [trial for name in named for size in SMALL if fails(trial := ((name, size),))]
    if len(named) > _TOGETHER:
        return tuple(alone)
    rows = list(itertools.product(range(8 - 2 * len(named)), repeat=len(named)))
    rows.sort(key=lambda row: (row.count(0), -sum(row)))
    together = (tuple(zip(named, row, strict=True)) for row in rows if sum(n in SMALL for n in row) > 0)
    new = [t for t in together if len(t) > 1 and not any((pair,) in alone for pair in t) and fails(t)]
    return (*alone, *dict.fromkeys(new[k * (len(new) - 1) // (_MOST - 1)] for k in range(_MOST) if new))
