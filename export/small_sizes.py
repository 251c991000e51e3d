"""Comparisons of sizes in the model's code that sizes 0 and 1 would decide otherwise.

torch gives every dynamic size a range from 2, and takes a comparison that holds from there on for decided, without a
condition: of `a(x) if x.shape[0] > 1 else b(x)` only a is captured. Inside of `watched()` each such comparison is noted
with the sizes that fail it; small_runs.py finds out for which of these the program is wrong.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hardtack.export.errors import SourceLine
from hardtack.export.guard_lines import asking_frame
from hardtack.export.origin import asked_line

_COMPARISONS: dict[str, tuple[Callable[[Any, Any], Any], type]] = {
    "__lt__": (operator.lt, sympy.Lt),
    "__le__": (operator.le, sympy.Le),
    "__gt__": (operator.gt, sympy.Gt),
    "__ge__": (operator.ge, sympy.Ge),
    "__eq__": (operator.eq, sympy.Eq),
    "__ne__": (operator.ne, sympy.Ne),
}
_EXTREMES: dict[str, Callable[[Any, Any], Any]] = {"__sym_max__": max, "__sym_min__": min}

Trial = tuple[tuple[str, int], ...]
"""Names of symbols, each with a size that it might have; the others are as in the example."""


@dataclass(frozen=True)
class Decision:
    """A condition on sizes that torch took to hold. `where` is the user's line that asked, `fails` says where it does
    not hold.
    """

    expr: sympy.Basic
    where: SourceLine | None
    fails: tuple[Trial, ...]


@dataclass
class Watch:
    """What was decided while a module was captured, by condition."""

    decisions: dict[sympy.Basic, Decision] = field(default_factory=dict)

    def evaluated(self, env: ShapeEnv, expr: sympy.Basic, given: Any) -> None:
        """Note a comparison that torch has answered."""
        if given not in (True, False) or not expr.free_symbols or asking_frame() is None:
            return
        answer = bool(given)
        holds = expr if answer else sympy.Not(expr)
        if not any(g.expr == holds for g in env.guards):
            self._note(env, holds, _trials(env, expr.free_symbols, lambda at: bool(expr.xreplace(at)) is not answer))

    def compared(self, name: str, a: Any, b: Any, given: Any) -> None:
        """Note a comparison that has become constant, because sympy knows that sizes are positive."""
        constant = given.node.expr if isinstance(given, torch.SymBool) else given
        if constant not in (True, False) or asking_frame() is None:
            return
        env, x, y, answer = a.node.shape_env, _expr(a), _expr(b), bool(constant)
        compare, relation = _COMPARISONS[name]
        fails = _trials(env, x.free_symbols | y.free_symbols, lambda at: _compare(compare, x, y, at) is not answer)
        unevaluated = relation(x, y, evaluate=False)
        self._note(env, unevaluated if answer else sympy.Not(unevaluated, evaluate=False), fails)

    def chosen(self, name: str, a: Any, b: Any, given: Any) -> None:
        """Note the larger or smaller of two sizes, if sympy has decided it because sizes are positive."""
        if asking_frame() is None:
            return
        env, x, y, found, extreme = a.node.shape_env, _expr(a), _expr(b), _expr(given), _EXTREMES[name]
        symbols = {str(s): s for s in x.free_symbols | y.free_symbols}
        fails = _trials(env, symbols.values(), lambda at: found.xreplace(at) != extreme(x.xreplace(at), y.xreplace(at)))
        for trial in fails:
            ((name, size),) = trial
            self._note(env, sympy.Ne(symbols[name], size, evaluate=False), (trial,))

    def _note(self, env: ShapeEnv, holds: sympy.Basic, fails: tuple[Trial, ...]) -> None:
        if fails:
            self.decisions.setdefault(holds, Decision(holds, asked_line(env._get_sloc()), fails))


def _expr(size: Any) -> Any:
    return size.node.expr if isinstance(size, (torch.SymInt, torch.SymFloat)) else sympy.sympify(size)


def _compare(compare: Callable[[Any, Any], Any], x: Any, y: Any, at: dict[Any, Any]) -> bool:
    return bool(compare(x.xreplace(at), y.xreplace(at)))


def _trials(env: ShapeEnv, symbols: Any, differs: Callable[[dict[Any, Any]], bool]) -> tuple[Trial, ...]:
    """The small sizes, one symbol at a time and the others as in the example, for which `differs`."""
    examples = env.backed_var_to_val
    found: list[Trial] = []
    for symbol in sorted(symbols, key=str):
        for size in (0, 1):
            try:
                if differs({**{s: examples[s] for s in symbols}, symbol: sympy.Integer(size)}):
                    found.append(((str(symbol), size),))
            except (KeyError, TypeError, ZeroDivisionError):
                continue  # a symbol of a tensor's value, or a size that the model itself divides by
    return tuple(found)


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """Inside, comparisons of sizes are noted. Not for several threads at once."""
    watch = Watch()
    evaluate = ShapeEnv.evaluate_sym_node
    saved = {(t, n): getattr(t, n) for t in (torch.SymInt, torch.SymFloat) for n in (*_COMPARISONS, *_EXTREMES)}

    def evaluated(self: ShapeEnv, sym_node: Any, *args: Any, **kwargs: Any) -> Any:
        given = evaluate(self, sym_node, *args, **kwargs)
        watch.evaluated(self, sym_node.expr, given)
        return given

    def observed(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def method(a: Any, b: Any) -> Any:
            given = original(a, b)
            if given is not NotImplemented and getattr(a.node, "shape_env", None) is not None:
                (watch.compared if name in _COMPARISONS else watch.chosen)(name, a, b, given)
            return given

        return method

    ShapeEnv.evaluate_sym_node = evaluated  # type: ignore[method-assign]
    for (type_, name), original in saved.items():
        setattr(type_, name, observed(original, name))
    try:
        yield watch
    finally:
        ShapeEnv.evaluate_sym_node = evaluate  # type: ignore[method-assign]
        for (type_, name), original in saved.items():
            setattr(type_, name, original)
