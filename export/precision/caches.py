"""Which states of a model are caches of keys and values, told by what graphs do with them, and why others are none."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph import Graph, TensorType
from hardtack.codegen.ir.graph_infer_nn import CODES
from hardtack.codegen.ir.graph_ops import is_view
from hardtack.codegen.ir.types import DType
from hardtack.exporter.rewrite.edit import Facts

CACHES = dict(zip(("int8", "fp8"), CODES, strict=True))
"""What a cache may be stored as, by the word that Options.cache has for it."""
SCALE = DType.F32
"""The dtype of the scale of a row, its elements along the last dimension."""
_FLOATS = (DType.F32, DType.BF16, DType.F16)
_PRODUCTS = ("attention", "matmul")
_PICKS = ("take", "gather", "cast")


@dataclass(frozen=True)
class Cache:
    """A state whose rows are stored as codes; dtype: of its elements before."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    codes: DType

    @property
    def scales(self) -> str:
        """The state that has the scales of its rows, its shape with 1 as the last dimension."""
        return f"{self.name}.scales"

    @property
    def nbytes(self) -> int:
        """Before."""
        return self._numel * self.dtype.nbytes

    @property
    def stored_nbytes(self) -> int:
        """Of codes and scales."""
        return self._numel * self.codes.nbytes + self._numel // self.shape[-1] * SCALE.nbytes

    @property
    def _numel(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class KeptState:
    """A state that stays as it is, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class CacheChoice:
    """The states of a model by name, each once. unmatched: patterns that name no cache."""

    caches: tuple[Cache, ...]
    kept: tuple[KeptState, ...]
    unmatched: tuple[str, ...]


def chosen_caches(graphs: Sequence[Graph], codes: DType, patterns: Sequence[str]) -> CacheChoice:
    """The caches of a model's entry points. A state is one if it has rows of floats, all that is written to it in any
    entry point are whole rows, and in some a product or attention reads it. patterns: of the names of caches that stay
    as they are, or of modules that have them."""
    facts = [Facts(g) for g in graphs]
    types = {s.name: g.types[s.name] for g in graphs for s in g.states}
    reasons = {name: _why_none(name, t, codes, facts) for name, t in types.items()}
    for name, t in types.items():
        scales = _cache(name, t, codes).scales
        if reasons[name] is None and scales in types:
            reasons[name] = f"there is another state {scales}, as its scales would be called"
    named: set[str] = set()
    for name in [n for n, why in reasons.items() if why is None]:
        found = [p for p in patterns if fnmatchcase(name, p) or fnmatchcase(name, f"{p}.*")]
        named.update(found)
        if found:
            reasons[name] = f"keep_cache has {found[0]!r}"
    caches = tuple(_cache(n, types[n], codes) for n, why in reasons.items() if why is None)
    kept = tuple(KeptState(n, why) for n, why in reasons.items() if why is not None)
    return CacheChoice(caches, kept, tuple(p for p in patterns if p not in named))


def _cache(name: str, t: TensorType, codes: DType) -> Cache:
    return Cache(name, t.dtype, tuple(int_value(n) or 0 for n in t.shape), codes)


def _why_none(name: str, t: TensorType, codes: DType, facts: Iterable[Facts]) -> str | None:
    """Why a state is no cache that could be stored as codes; None if it is one."""
    if t.dtype not in _FLOATS:
        return f"it is {t.dtype}; there are codes of {', '.join(map(str, _FLOATS))}"
    if len(t.shape) < 2:
        return "it has no rows: its rank is below 2"
    cache = _cache(name, t, codes)
    if cache.stored_nbytes >= cache.nbytes:
        return f"codes and scales of rows of {cache.shape[-1]} would take no fewer bytes"
    using = [f for f in facts if any(s.name == name for s in f.graph.states)]
    for f in using:
        why = _why_not_in_rows(name, f)
        if why is not None:
            return why
    values = [written_values(name, f.graph) for f in using]
    if all(len(v) == 1 for v in values):
        return "no rows are written to it"
    if not any(_is_multiplied(v, f.graph) for v, f in zip(values, using, strict=True)):
        return "no product or attention reads its rows as they are"
    return None


def written_values(name: str, graph: Graph) -> set[str]:
    """The values that a state goes through in a run: itself, and what each write makes of the one before."""
    found = {name}
    for op in graph.ops:
        if op.kind == "put" and op.inputs[0] in found:
            found.update(op.outputs)
    return found


def _why_not_in_rows(name: str, facts: Facts) -> str | None:
    """Why what a graph writes to a state is no whole rows; None if it is, or if nothing is written."""
    graph = facts.graph
    final = next(s.final for s in graph.states if s.name == name)
    values = written_values(name, graph)
    if final is not None and final not in values:
        made = facts.producer.get(final)
        return "it becomes another value as a whole" if made is None else f"{made.origin} makes all of it anew"
    last, own = len(graph.types[name].shape) - 1, _own_values(values, graph)
    for op in graph.ops:
        if op.kind != "put" or op.inputs[0] not in values:
            continue
        if op.inputs[1] in own:
            return f"{op.origin} writes what is computed of its own rows"
        if op.bool_attr("accumulate"):
            return f"{op.origin} adds to it"
        if last in op.tuple_attr("dims"):
            return f"{op.origin} writes parts of its rows"
    return None


def _own_values(values: set[str], graph: Graph) -> set[str]:
    """The values, and all that is computed of them but by an attention or by a product with something else that a run
    computes. Written to the state, these would be rounded again in each run, as a recurrent state or a running average
    would; what attention makes of a cache is no row of it."""
    fixed = {c.name for c in graph.constants}
    seen = set(values)
    for op in graph.ops:
        read = [x for x in op.inputs if isinstance(x, str)]
        if fixed.issuperset(read):
            fixed.update(op.outputs)
        elif seen.intersection(read) and not (op.kind in _PRODUCTS and fixed.isdisjoint(read)):
            seen.update(op.outputs)
    return seen


def _is_multiplied(values: set[str], graph: Graph) -> bool:
    """True if a product or attention takes the values, views of them, what is picked of them, or what these are in
    another dtype."""
    seen = set(values)
    for op in graph.ops:
        passes = is_view(op) or op.kind in _PICKS
        if passes and op.inputs[0] in seen:
            seen.update(op.outputs)
        elif op.kind in _PRODUCTS and seen.intersection(x for x in op.inputs[:3] if isinstance(x, str)):
            return True
    return False
