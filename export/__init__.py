"""hardtack.exporter: PyTorch modules become Graphs. The only package of Hardtack that imports torch.

exported = to_graphs(module.eval(), (example,), dynamic_shapes=({0: Dim("batch", max=64)},))
exported.entries["forward"].graph, exported.store
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.export import ExportedProgram

from hardtack.codegen.ir.constants import ConstantStore, ModuleTensor
from hardtack.codegen.notes import InternalError, ours
from hardtack.exporter.capture.capture import Captured
from hardtack.exporter.capture.capture import capture as _capture  # not to hide the package capture
from hardtack.exporter.errors import (
    CaptureError,
    ExportError,
    InputSpecError,
    MutationError,
    PluginError,
    RangeError,
    SourceLine,
    TrainingModeError,
    Unsupported,
    UnsupportedOpError,
)
from hardtack.exporter.extensions import Extensions
from hardtack.exporter.precision import (
    CACHES,
    CacheChoice,
    Precision,
    Reads,
    Report,
    chosen_caches,
    matching,
    narrow,
    with_codes,
)
from hardtack.exporter.program import EntryGraph, changed_buffers, to_entry, written_inputs
from hardtack.exporter.rewrite.rules import RULES, Rule
from hardtack.exporter.tensors import constants_apart, module_tensors, state_names

Module = nn.Module | ExportedProgram | Callable[..., Any]


@dataclass(frozen=True)
class Exported:
    """The entry points of one model by name, the constants that they share, and the tensors of the module by name."""

    entries: dict[str, EntryGraph]
    store: ConstantStore
    tensors: dict[str, ModuleTensor]


_LISTS_OF_PARAMETERS = r"The tensor attributes (self(\.\w+)*\._flat_weights\[\d+\](, )?)+ were assigned during export"


def to_graphs(
    module: Module | Mapping[str, Module],
    args: tuple[Any, ...] | Mapping[str, tuple[Any, ...]] = (),
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    strict: bool = False,
    rules: Sequence[Rule] = RULES,
    extensions: Extensions | None = None,
    written: Collection[str] = (),
) -> Exported:
    """Convert a module (entry point "forward"), an ExportedProgram, or a dict of them by entry name.

    args, kwargs: example inputs; dynamic_shapes: as for torch.export.export. For a dict of modules they are dicts by
    entry name, too; ready ExportedPrograms need none. Buffers that any entry point changes are states of all that
    use them. rules: what simplifies the graphs. extensions: what the user brings, which notes what it had a part in.
    written: the inputs that forward may write to, in the caller's memory.
    Raises ExportError and its subclasses, and InternalError for what is a bug of Hardtack.
    """
    brought = Extensions() if extensions is None else extensions
    with ours("the export", ExportError), warnings.catch_warnings():
        # torch warns about its own way of copying pytrees, and about lists that its own recurrent modules keep of their
        # parameters; users can do nothing about either
        warnings.filterwarnings("ignore", category=FutureWarning, message=".*treespec.*")
        warnings.filterwarnings("ignore", category=UserWarning, message=_LISTS_OF_PARAMETERS)
        captured: dict[str, Captured] = {}
        if isinstance(module, Mapping):
            _check_entries(module, args=args, kwargs=kwargs, dynamic_shapes=dynamic_shapes)
            for name, part in module.items():
                captured[name] = _capture(
                    part, _of(args, name, ()), _of(kwargs, name), _of(dynamic_shapes, name), strict, brought
                )
        else:
            captured["forward"] = _capture(module, args, kwargs, dynamic_shapes, strict, brought)  # type: ignore[arg-type]
        _check_written(written, [c.ep for c in captured.values()])
        store = ConstantStore()
        changed = frozenset[str]().union(*(changed_buffers(c.ep) for c in captured.values()))
        states = state_names({name: c.ep for name, c in captured.items()}, changed)
        entries = {name: to_entry(name, c, store, states, rules, brought, written) for name, c in captured.items()}
        graphs = constants_apart(e.graph for e in entries.values())
        entries = {name: replace(e, graph=g) for (name, e), g in zip(entries.items(), graphs, strict=True)}
        return Exported(entries, _used(entries, store), module_tensors(c.ep for c in captured.values()))


def narrowed(exported: Exported, precision: Precision) -> tuple[Exported, Report]:
    """The same model with the products of f32 computed in precision's dtype where that is safe, and what became of
    each. The model that is given can still be used; constants of the new one are put to its store, too.

    Raises InputSpecError for a pattern of keep_f32 that no product's module has.
    """
    report = Report()
    with ours("the choice of precisions", ExportError):
        made = [narrow(e.graph, exported.store, precision, report) for e in exported.entries.values()]
        for pattern in precision.keep_f32:
            if not any(matching(module, (pattern,)) for module in report.modules):
                raise InputSpecError(
                    f"keep_f32 has {pattern!r}, but no product of the model stands in such a module",
                    fix="name a module as named_modules() does; * stands for any part of a path",
                )
        graphs = zip(exported.entries.items(), constants_apart(made), strict=True)
        entries = {name: replace(e, graph=g) for (name, e), g in graphs}
        return Exported(entries, _used(entries, exported.store), exported.tensors), report


def with_caches(exported: Exported, word: str, keep: Sequence[str]) -> tuple[Exported, CacheChoice, Reads]:
    """The same model with its caches of keys and values stored as codes, which states these are, and what reads them.
    The model that is given can still be used. word: "int8" or "fp8"; keep: patterns of the names of states that stay as
    they are.

    Raises InputSpecError for a model without such caches, and for a pattern that names none.
    """
    with ours("the choice of caches", ExportError):
        graphs = [e.graph for e in exported.entries.values()]
        choice = chosen_caches(graphs, CACHES[word], keep)
        _check_caches(choice, word)
        store = ConstantStore(dict(exported.store.data), set(exported.store.inlined))
        reads = Reads()
        made = constants_apart([with_codes(g, store, choice.caches, reads) for g in graphs])
        entries = {name: replace(e, graph=g) for (name, e), g in zip(exported.entries.items(), made, strict=True)}
        return Exported(entries, _used(entries, store), exported.tensors), choice, reads


def _check_caches(choice: CacheChoice, word: str) -> None:
    if not choice.caches and not choice.kept:
        raise InputSpecError(
            f"the model has no states, and so no cache of keys and values that could be stored as {word}",
            fix="keep the cache in buffers that forward writes in place, or leave the option cache out",
        )
    for pattern in choice.unmatched:
        raise InputSpecError(
            f"keep_cache has {pattern!r}, but no cache has such a name",
            fix="name a buffer as named_buffers() does, or a module that has it; * stands for any part of a path",
        )
    if not choice.caches:
        listed = "; ".join(f"{k.name}: {k.reason}" for k in choice.kept[:_MOST_NAMED])
        more = f"; and {len(choice.kept) - _MOST_NAMED} more" if len(choice.kept) > _MOST_NAMED else ""
        raise InputSpecError(
            f"no state of the model is a cache of keys and values that could be stored as {word}: {listed}{more}",
            fix="write whole rows along the last dimension to the cache, in place, or leave the option cache out",
        )


_MOST_NAMED = 4
"""States that an error names."""
_ENTRY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def _check_entries(module: Mapping[str, Any], **given: Any) -> None:
    """InputSpecError for a dict of modules with none, with a name that a bundle cannot hold (a state dict has tensors),
    or with arguments that are no dict.
    """
    if not module:
        raise InputSpecError("there is no entry point to export", fix="pass a module, or a dict of modules by name")
    for name, part in module.items():
        if not isinstance(name, str) or not _ENTRY_NAME.fullmatch(name):
            raise InputSpecError(f"an entry point cannot be called {name!r}", fix="use letters, digits, _, - and .")
        if not callable(part) and not isinstance(part, ExportedProgram):
            raise InputSpecError(f"entry {name} is a {type(part).__name__}", fix="pass modules, not their weights")
    for what, value in given.items():
        if value and not isinstance(value, Mapping):
            raise InputSpecError(
                f"{what} is a {type(value).__name__}, but there are entry points", fix=f"pass {what} as a dict by entry"
            )


def _check_written(written: Collection[str], programs: Sequence[ExportedProgram]) -> None:
    """InputSpecError for an input that is declared as written, and that no entry point writes to."""
    found = {name for ep in programs for name in written_inputs(ep)}
    for name in written:
        if name not in found:
            there = f"; it writes to {', '.join(sorted(found))}" if found else "; it writes to none of its inputs"
            raise InputSpecError(
                f"written_inputs has {name!r}, but the module does not write to such an input{there}",
                fix="name the inputs that forward changes in place, and no others",
            )


def _of(given: Any, name: str, default: Any = None) -> Any:
    """What is given for entry `name`, `default` for nothing."""
    found = given.get(name) if isinstance(given, Mapping) else None
    return default if found is None else found


def _used(entries: Mapping[str, EntryGraph], store: ConstantStore) -> ConstantStore:
    """The store without what folding has left unused."""
    keys = {x.key for e in entries.values() for c in e.graph.constants for x in (c, *c.parts())}
    keys |= {s.init for e in entries.values() for s in e.graph.states if s.init is not None}
    return ConstantStore({k: v for k, v in store.data.items() if k in keys}, store.inlined)


__all__ = [
    "CaptureError",
    "EntryGraph",
    "ExportError",
    "Exported",
    "InputSpecError",
    "InternalError",
    "MutationError",
    "PluginError",
    "RangeError",
    "SourceLine",
    "TrainingModeError",
    "Unsupported",
    "UnsupportedOpError",
    "narrowed",
    "to_graphs",
    "with_caches",
]
