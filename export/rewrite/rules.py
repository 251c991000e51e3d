"""Graph -> Graph simplifications, in a fixed order; each rule is a pure function, and the graph is verified after
each that changes it.

Folding comes first, so that rules see constants; scales and shifts move into products before attention is looked
for, so that a model's own batch norms do not hide it; folding and cleaning come last.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.ir.graph_verify import verify_graph
from hardtack.exporter.rewrite.affine import distribute_scale, fold_scale, fold_shift, merge_shifts
from hardtack.exporter.rewrite.basic import common_subexpressions, merge_views, permute_as_reshape, remove_dead
from hardtack.exporter.rewrite.constant_folding import fold
from hardtack.exporter.rewrite.fused_attention import recognise_attention
from hardtack.exporter.rewrite.padding import fold_padding
from hardtack.exporter.rewrite.part_writes import write_parts
from hardtack.exporter.rewrite.picked_columns import turn_picked_columns


@dataclass(frozen=True)
class Rule:
    """A named simplification."""

    name: str
    apply: Callable[[Graph, ConstantStore], Graph]


def _plain(rule: Callable[[Graph], Graph]) -> Rule:
    return Rule(rule.__name__, lambda graph, store: rule(graph))


_FOLD = Rule("fold", fold)
_CLEAN = (_plain(merge_views), _plain(common_subexpressions), _plain(remove_dead))

RULES: tuple[Rule, ...] = (
    _plain(remove_dead),
    _plain(common_subexpressions),  # so that folding sees all that reads a converted weight
    _FOLD,
    *_CLEAN,
    _plain(fold_padding),
    Rule("distribute_scale", distribute_scale),
    _plain(remove_dead),
    Rule("fold_scale", fold_scale),
    _FOLD,
    _plain(merge_shifts),
    _plain(remove_dead),
    _FOLD,
    _plain(fold_shift),
    _FOLD,
    _plain(remove_dead),
    Rule("recognise_attention", recognise_attention),
    _plain(write_parts),
    _plain(turn_picked_columns),
    _plain(permute_as_reshape),
    *_CLEAN,
    _FOLD,
    *_CLEAN,
)
"""The rules, in order."""
CLEANING: tuple[Rule, ...] = (_FOLD, *_CLEAN)
"""Behind what changes a graph that is simple already."""


def simplify(graph: Graph, store: ConstantStore, rules: Sequence[Rule] = RULES) -> Graph:
    """A verified graph after the rules, in order."""
    for rule in rules:
        found = rule.apply(graph, store)
        graph = found if _same(found, graph) else verify_graph(found)
    return graph


def _same(a: Graph, b: Graph) -> bool:
    """True if a rule has changed nothing. Ops must be the same objects: equal ones may hold 0.0 and -0.0."""
    ops = len(a.ops) == len(b.ops) and all(map(operator.is_, a.ops, b.ops))
    return ops and replace(a, ops=()) == replace(b, ops=())
