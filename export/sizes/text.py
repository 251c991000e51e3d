"""torch's expressions of sizes and conditions on them as a reader of the model writes them."""

from __future__ import annotations

from collections.abc import Mapping

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from hardtack.codegen.ir.expr import Expr, to_text

_RELATIONS = {"Equality": "==", "Unequality": "!="}


class _Printer(StrPrinter):  # type: ignore[misc]
    """`int(0.7*n)` for TruncToInt(0.7*ToFloat(n)), `a/b` for IntTrueDiv(a, b)."""

    def _print_ToFloat(self, e: sympy.Basic) -> str:
        return str(self.parenthesize(e.args[0], PRECEDENCE["Atom"], strict=True))

    def _print_TruncToInt(self, e: sympy.Basic) -> str:
        return f"int({self._print(e.args[0])})"

    def _print_FloorToInt(self, e: sympy.Basic) -> str:
        return f"floor({self._print(e.args[0])})"

    def _print_CeilToInt(self, e: sympy.Basic) -> str:
        return f"ceil({self._print(e.args[0])})"

    def _print_RoundToInt(self, e: sympy.Basic) -> str:
        return f"round({self._print(e.args[0])})"

    def _quotient(self, e: sympy.Basic) -> str:
        a = self.parenthesize(e.args[0], PRECEDENCE["Mul"], strict=True)
        return f"{a}/{self.parenthesize(e.args[1], PRECEDENCE['Atom'], strict=True)}"

    _print_IntTrueDiv = _print_FloatTrueDiv = _quotient

    def _print_Relational(self, e: sympy.Rel) -> str:
        return f"{self._print(e.lhs)} {_RELATIONS.get(type(e).__name__, e.rel_op)} {self._print(e.rhs)}"


def size_text(e: sympy.Basic, names: Mapping[sympy.Symbol, Expr]) -> str:
    """A size or a condition, about the inputs' sizes by their names."""
    named = {s: sympy.Symbol(to_text(names[s])) for s in e.free_symbols if s in names}
    return str(_Printer({"full_prec": False}).doprint(e.xreplace(named)))
