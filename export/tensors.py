"""The parameters and buffers of a module by name, and the names of states and constants that entry points share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from hardtack.codegen.ir.constants import ModuleTensor
from hardtack.codegen.ir.graph import Constant, Graph
from hardtack.codegen.ir.graph_verify import verify_graph
from hardtack.exporter.dtypes import TORCH_DTYPE, from_torch
from hardtack.exporter.errors import InputSpecError
from hardtack.exporter.interface import lifted_tensor, plain_name
from hardtack.exporter.rewrite.edit import Edit

_KINDS = (InputKind.PARAMETER, InputKind.BUFFER)


def module_tensors(programs: Iterable[ExportedProgram]) -> dict[str, ModuleTensor]:
    """Name -> dtype, shape and aliases, over all programs; without names whose content differs between programs."""
    found: dict[str, ModuleTensor] = {}
    seen: dict[str, torch.Tensor] = {}
    differing: set[str] = set()
    for ep in programs:
        tensors = dict(_named(ep))
        for name, t in tensors.items():
            if name in seen and not _same(seen[name], t):
                differing.add(name)
            aliases = {n for n, other in tensors.items() if n != name and _place(other) == _place(t) is not None}
            before = found[name].aliases if name in found else ()
            found[name] = ModuleTensor(from_torch(t.dtype), tuple(t.shape), tuple(sorted({*before, *aliases})))
        seen.update(tensors)
    return {name: t for name, t in found.items() if name not in differing}


def state_names(programs: Mapping[str, ExportedProgram], changed: Collection[str]) -> dict[str, str]:
    """Buffer -> the name of the state that it is, in every entry point the same: its own, or with `.state` behind it
    where an argument of some entry point is called so. changed: the buffers that some entry point changes.

    Raises InputSpecError where an entry point has such a buffer under another name, by which it would not be shared.
    """
    arguments: set[str] = set()
    places: dict[tuple[object, ...], tuple[str, str]] = {}
    for entry, ep in programs.items():
        arguments.update(s.arg.name for s in ep.graph_signature.input_specs if s.kind is InputKind.USER_INPUT)
        for target, t in _read(ep):
            place = _place(t)
            if target in changed and place is not None:
                places.setdefault(place, (entry, target))
    for entry, ep in programs.items():
        for target, t in _read(ep):
            first, name = places.get(_place(t) or (), ("", target))
            if target not in changed and name != target:
                raise InputSpecError(
                    f"{target} of entry point {entry} is the buffer that entry point {first} has as {name}, which is "
                    "changed by a run: entry points share states by name",
                    fix=f"register it as {name} there, too",
                )
    return {target: f"{target}.state" if target in arguments else target for target in changed}


def constants_apart(graphs: Iterable[Graph]) -> Iterator[Graph]:
    """The graphs with constants renamed where an earlier graph has another content under the name: entry points share
    their constants by name, and what folding makes is named after an op, which each of them may have.
    """
    contents: dict[str, str] = {}
    for graph in graphs:
        edit = Edit(graph)
        constants: list[Constant] = []
        for c in graph.constants:
            content = " ".join(x.key for x in (c, *c.parts()))
            constants.append(replace(c, name=_named_apart(edit, contents, c.name, content)))
        for op in graph.ops:
            edit.keep(op)
        yield verify_graph(replace(edit.done(), constants=tuple(constants)))


def _named_apart(edit: Edit, contents: dict[str, str], value: str, content: str) -> str:
    """A name that no other content has, which is the value's from now on; `contents`: by name, in all graphs so far."""
    name = value
    while contents.get(name, content) != content or (name != value and name in edit.types):
        name = f"{name}.{edit.graph.name}"
    contents[name] = content
    if name != value:
        edit.renamed[value] = name
        edit.types[name] = edit.types.pop(value)
    return name


def _named(ep: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    for name, t in ep.state_dict.items():
        if t.dtype in TORCH_DTYPE.values():
            yield plain_name(name), t
    for spec in ep.graph_signature.input_specs:
        if spec.kind in _KINDS and spec.target is not None and spec.target not in ep.state_dict:
            t = lifted_tensor(ep, spec)
            if t.dtype in TORCH_DTYPE.values():
                yield plain_name(spec.target), t


def _read(ep: ExportedProgram) -> Iterator[tuple[str, torch.Tensor]]:
    """The buffers and parameters that the program's graph is given, by name."""
    for spec in ep.graph_signature.input_specs:
        if spec.kind in _KINDS and spec.target is not None:
            yield plain_name(spec.target), lifted_tensor(ep, spec)


def _place(t: torch.Tensor) -> tuple[object, ...] | None:
    """What two names of one tensor have in common; None for a tensor without elements or memory."""
    return (t.data_ptr(), t.dtype, t.shape, t.stride()) if t.numel() and t.data_ptr() else None


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return _place(a) == _place(b) or torch.equal(a, b)
