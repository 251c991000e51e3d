"""How graph ops are lowered: each rule is registered where it stands, in a file of this folder.

    @lowers("conv", on=Cpu)
    def lower_conv(low: Lowering, op: Op) -> None: ...

A rule without a machine is every backend's that has none of its own for the kind. Views (views.py) have no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from hardtack.codegen.discovery import load_modules
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.lower.builder import Lowering
from hardtack.codegen.machine.machine import Cpu, Gpu

Rule = Callable[[Lowering, Op], None]
_RULES: dict[tuple[str, type[Cpu] | type[Gpu] | None], Rule] = {}


def lowers(*kinds: str, on: type[Cpu] | type[Gpu] | None = None) -> Callable[[Rule], Rule]:
    """Registers the rule of these kinds of graph ops, on machines of one class or on all."""

    def register(rule: Rule) -> Rule:
        for kind in kinds:
            assert (kind, on) not in _RULES, f"{kind} has a rule already"
            _RULES[kind, on] = rule
        return rule

    return register


@cache
def rules_on(machine: type[Cpu] | type[Gpu]) -> dict[str, Rule]:
    """Graph op kind -> its rule on machines of this class."""
    load_modules(__package__)
    shared = {kind: rule for (kind, on), rule in _RULES.items() if on is None}
    return shared | {kind: rule for (kind, on), rule in _RULES.items() if on is machine}
