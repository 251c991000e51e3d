"""Which tensors of the module can be replaced in a bundle, and how its constants are made of them.

A tensor can be replaced if every constant that was computed from it only moves its elements. One whose values were
folded into others, or decided how the graph was rewritten, cannot: a bundle would mix old and new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hardtack.codegen.ir.constants import COMPUTED, ConstantStore, ModuleTensor, Packing, Recipe, View
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph import Constant, Graph
from hardtack.codegen.lower.builder import Made, Prepack
from hardtack.codegen.pipeline import CompiledEntry
from hardtack.codegen.plan.prepack import sources_of

Recipes = tuple[Recipe, ...]
"""Of a constant: one for each part that is made of a tensor; empty where none is."""


def init_name(state: str) -> str:
    """The constant that a state starts from."""
    return f"{state}.init"


def replaceable(
    graphs: Mapping[str, Graph],
    compiled: Mapping[str, Sequence[CompiledEntry]],
    store: ConstantStore,
    tensors: Mapping[str, ModuleTensor],
) -> tuple[dict[str, ModuleTensor], dict[str, Recipes]]:
    """The tensors that can be replaced, by name in order, and constant -> recipes of its parts that are made of them.

    graphs: every entry point before lowering; compiled: as it was compiled, once for each backend.
    """
    fixed = set(store.inlined)
    recipes: dict[str, Recipes] = {}
    for name, graph in graphs.items():
        by_name = {x.name: x for c in graph.constants for x in (c, *c.parts())}
        signed = {p.name for c in graph.constants if c.quantized and c.quantized.signed for p in c.parts()[-1:]}
        for c in by_name.values():
            if c.recipe is None and c.quantized is None and c.name not in signed:  # those, where they are read
                fixed.update(c.tensors)
        for entry in compiled[name]:
            for stored in (*entry.constants, *(x for request in entry.prepacks.values() for x in sources_of(request))):
                if by_name[stored].recipe is None:  # what was dequantised, for one that cannot read codes
                    fixed.update(by_name[stored].tensors)
            for stored in entry.constants:
                _put(recipes, fixed, stored, _alone(by_name[stored].recipe))
            for made, request in entry.prepacks.items():
                if isinstance(request, Prepack) and request.kind in COMPUTED:
                    fixed.update(by_name[request.source].tensors)
                    continue
                _put(recipes, fixed, made, _recipes(request, by_name))
        for s in graph.states:
            if s.init is not None:
                t, own = graph.types[s.name], tensors.get(s.name)  # codes, of a cache, are another dtype
                shape = tuple(int_value(n) or 0 for n in t.shape)
                known = own is not None and (own.shape, own.dtype) == (shape, t.dtype)
                _put(recipes, fixed, init_name(s.name), _alone(Recipe(s.name) if known else None))
    fixed.update(alias for name in tuple(fixed) if name in tensors for alias in tensors[name].aliases)
    used = {r.source for parts in recipes.values() for r in parts} - fixed
    parameters = {name: tensors[name] for name in sorted(used) if name in tensors}
    kept = {name: tuple(r for r in parts if r.source in parameters) for name, parts in recipes.items()}
    return parameters, {name: parts for name, parts in kept.items() if parts}


def _alone(recipe: Recipe | None) -> Recipes:
    return () if recipe is None else (recipe,)


def _recipes(request: Made, constants: Mapping[str, Constant]) -> Recipes:
    """Of what the lowering makes of constants; their parts that have none themselves are left out."""
    if isinstance(request, Prepack):
        base = constants[request.source].recipe
        view = View(request.offset, request.shape, request.strides)
        packing = Packing(request.kind, request.params)
        return _alone(base and replace(base, views=(*base.views, view), packing=packing))
    found: list[Recipe] = []
    for part in request.parts:
        base = constants[part.source].recipe
        if base is not None:
            found.append(replace(base, views=(*base.views, part.view), packing=part.packing, into=part.into))
    return tuple(found)


def _put(recipes: dict[str, Recipes], fixed: set[str], name: str, parts: Recipes) -> None:
    """Records recipes. Where entry points make a constant of one name in two ways, its sources cannot be replaced."""
    before = recipes.setdefault(name, parts)
    if before != parts:
        fixed.update(r.source for r in (*before, *parts))
