"""Which tensors of the module can be replaced in a bundle, and how its constants are made of them.

A tensor can be replaced if every constant that was computed from it only moves its elements. One whose values were
folded into others, or decided how the graph was rewritten, cannot: a bundle would mix old and new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hardtack.codegen.ir.constants import ConstantStore, ModuleTensor, Packing, Recipe, View
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.pipeline import CompiledEntry

if TYPE_CHECKING:
    from hardtack.codegen.build import Source


def init_name(state: str) -> str:
    """The constant that a state starts from."""
    return f"{state}.init"


def replaceable(
    sources: Mapping[str, Source],
    compiled: Mapping[str, Sequence[CompiledEntry]],
    store: ConstantStore,
    tensors: Mapping[str, ModuleTensor],
) -> tuple[dict[str, ModuleTensor], dict[str, Recipe]]:
    """The tensors that can be replaced, by name in order, and constant -> recipe for what is made of them.

    compiled: every entry point as it was compiled, once for each backend.
    """
    fixed = set(store.inlined)
    recipes: dict[str, Recipe | None] = {}
    for name, source in sources.items():
        by_name = {c.name: c for c in source.graph.constants}
        for c in by_name.values():
            if c.recipe is None:
                fixed.update(c.tensors)
        for entry in compiled[name]:
            for stored in entry.constants:
                _put(recipes, fixed, stored, by_name[stored].recipe)
            for packed, request in entry.prepacks.items():
                base = by_name[request.source].recipe
                view = View(request.offset, request.shape, request.strides)
                packing = Packing(request.kind, request.params)
                _put(recipes, fixed, packed, base and replace(base, views=(*base.views, view), packing=packing))
        for s in source.graph.states:
            if s.init is not None:
                shape = tuple(int_value(n) or 0 for n in source.graph.types[s.name].shape)
                known = s.name in tensors and tensors[s.name].shape == shape
                _put(recipes, fixed, init_name(s.name), Recipe(s.name) if known else None)
    fixed.update(alias for name in tuple(fixed) if name in tensors for alias in tensors[name].aliases)
    used = {r.source for r in recipes.values() if r is not None} - fixed
    parameters = {name: tensors[name] for name in sorted(used) if name in tensors}
    return parameters, {name: r for name, r in recipes.items() if r is not None and r.source in parameters}


def _put(recipes: dict[str, Recipe | None], fixed: set[str], name: str, recipe: Recipe | None) -> None:
    """Records a recipe. Where entry points make a constant of one name in two ways, its sources cannot be replaced."""
    before = recipes.setdefault(name, recipe)
    if before != recipe:
        fixed.update(r.source for r in (before, recipe) if r is not None)
