"""A captured program becomes a Graph: interface, ops, outputs, guards; then simplification."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.graph import Graph, Guard, SymBinding
from hardtack.codegen.ir.graph_verify import verify_graph
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.content import ComplexPorts
from hardtack.exporter.aliases import CHANGES
from hardtack.exporter.capture.capture import Captured
from hardtack.exporter.capture.conditions import fixing_line, program_guards, without_implied
from hardtack.exporter.constants import store_tensor
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.complex import pairs_of
from hardtack.exporter.convert.philox import RNG_STATE, state_behind
from hardtack.exporter.convert.table import ComplexValue, Value
from hardtack.exporter.convert.walk import Failure, Walk, raise_failures
from hardtack.exporter.decompose.user_decompositions import check_called
from hardtack.exporter.errors import InputSpecError, MutationError, RangeError
from hardtack.exporter.extensions import Extensions
from hardtack.exporter.interface import Interface, add_made, plain_name, read_inputs, states_of
from hardtack.exporter.origin import source_of
from hardtack.exporter.rewrite.rules import Rule, simplify
from hardtack.exporter.rewrite.user_passes import run_user_passes
from hardtack.exporter.sizes.found import found_sizes
from hardtack.exporter.sizes.literals import state_literals
from hardtack.exporter.sizes.lower_bounds import raised
from hardtack.exporter.sizes.own_example import check_example, check_fixed, place_text
from hardtack.exporter.sizes.ranges import Declared, check_guard
from hardtack.exporter.sizes.shapes import Sizes, sympy_of
from hardtack.exporter.tree import Tree, const_leaf, describe, leaf_names


@dataclass(frozen=True)
class EntryGraph:
    """One entry point. in_tree describes (args, kwargs), out_tree what forward returns; see tree.py. texts: what each
    of the users' passes left (rewrite/user_passes.py). complex: what callers see as complex numbers."""

    graph: Graph
    in_tree: Tree
    out_tree: Tree
    texts: Mapping[str, str] = field(default_factory=dict)
    complex: ComplexPorts = field(default_factory=ComplexPorts)


def changed_buffers(ep: ExportedProgram) -> frozenset[str]:
    """The buffers, and parameters, that a run of the program changes."""
    specs = ep.graph_signature.output_specs
    return frozenset(plain_name(s.target) for s in specs if s.kind in CHANGES and s.target is not None)


def to_entry(
    name: str,
    captured: Captured,
    store: ConstantStore,
    state_names: Mapping[str, str],
    rules: Sequence[Rule],
    extensions: Extensions,
    written: Collection[str] = (),
) -> EntryGraph:
    """Convert a program. Constants go to `store`; the buffers in state_names become states of these names; rules
    simplify it, before the users' passes. written: the inputs that it may write to. Raises MutationError for others."""
    ep, declared = captured.ep, captured.declared
    _refuse_undeclared_writes(ep, written)
    _refuse_specialised(ep, declared)
    while True:
        found = _convert(name, captured, declared, store, state_names, extensions)
        higher = raised(found.graph.guards, found.graph.syms)
        if not higher:
            break
        # again, with bounds that conversion itself can use; each turn raises one, and none beyond what a guard asks
        declared = replace(declared, least={**declared.least, **higher})
    check_example(found.graph, declared)
    verify_graph(found.graph)
    graph, texts = run_user_passes(simplify(found.graph, store, rules), store, extensions)
    return replace(found, graph=graph, texts=texts)


def _convert(
    name: str,
    captured: Captured,
    declared: Declared,
    store: ConstantStore,
    state_names: Mapping[str, str],
    extensions: Extensions,
) -> EntryGraph:
    """The entry's graph, as it was captured."""
    ep = captured.ep
    b, sizes = Builder(), Sizes(captured.folded)
    state_literals(ep, sizes)
    face = read_inputs(ep, b, sizes, store, state_names, declared)
    failures: list[Failure] = []
    sizes.found = found_sizes(ep)
    b.reserved = frozenset(s.sym.name for s in face.syms)
    walk = Walk(b, sizes, failures, ep.graph_module, extensions)
    walk.env.update(face.env)
    walk.run(ep.graph.nodes)
    raise_failures(failures)
    for what in ("lowering", "kernel"):
        check_called(captured.source, extensions, what)
    counted = _counted_draws(face, b, store)
    add_made(face, b, store)
    values, out_tree, finals, complex_outputs = _outputs(ep, walk, face)
    bindings = (*face.syms, *(SymBinding(s, None, None) for s in b.reads))
    graph = Graph(
        name=name,
        inputs=tuple(replace(i, final=face.finals.get(i.name)) for i in face.inputs),
        outputs=tuple(v.name for v in values),
        output_names=tuple(_unique(leaf_names(out_tree, "output"))),
        constants=tuple(face.constants),
        states=states_of(face, {**finals, **counted}, lambda key: not store[key].array.any()),
        ops=tuple(b.ops),
        syms=bindings,
        guards=_guards(captured, sizes, b, bindings),
        types=dict(b.types),
    )
    ports = ComplexPorts(frozenset(face.complex_inputs), complex_outputs, frozenset(face.complex_states))
    return EntryGraph(graph, _in_tree(ep, face), out_tree, complex=ports)


def _counted_draws(face: Interface, b: Builder, store: ConstantStore) -> dict[str, str]:
    """The state of random numbers, if the program draws any, and its value behind the run."""
    if b.rng is None:
        return {}
    face.states[RNG_STATE] = (b.rng.name, store_tensor(store, torch.zeros(2, dtype=torch.int64)))
    b.label = "drawn"
    return {RNG_STATE: state_behind(b).name}


def _in_tree(ep: ExportedProgram, face: Interface) -> Tree:
    spec = ep.call_spec.in_spec
    assert spec is not None
    return describe(spec, face.leaves, "inputs")


def _unique(names: list[str]) -> list[str]:
    """Names with repeats numbered: two different paths may read the same."""
    seen: dict[str, int] = {}
    out: list[str] = []
    for n in names:
        seen[n] = seen.get(n, -1) + 1
        out.append(n if not seen[n] else f"{n}.{seen[n]}")
    return out


def written_inputs(ep: ExportedProgram) -> tuple[str, ...]:
    """The inputs that a run of the program changes."""
    specs = ep.graph_signature.output_specs
    return tuple(str(s.target) for s in specs if s.kind is OutputKind.USER_INPUT_MUTATION)


def _refuse_undeclared_writes(ep: ExportedProgram, declared: Collection[str]) -> None:
    """MutationError where the program writes to inputs that are not declared as written: it changes callers' memory."""
    found = [s for s in ep.graph_signature.output_specs if s.kind is OutputKind.USER_INPUT_MUTATION]
    hidden = [s for s in found if s.target not in declared]
    if not hidden:
        return
    node = next((n for n in ep.graph.nodes if n.name == hidden[0].arg.name), None)
    names = tuple(str(s.target) for s in hidden)
    all_names = tuple(dict.fromkeys((*declared, *names)))
    raise MutationError(
        f"the module writes to its input{'s' if len(names) > 1 else ''} {', '.join(names)}",
        source_of(node) if node is not None else None,
        f"declare it, with Options(written_inputs={all_names}) or "
        f"{' '.join(f'--written-input {n}' for n in all_names)}, and runs write to the caller's memory; or work on a "
        "clone of the input and return it, or make it a registered buffer",
    )


def _refuse_specialised(ep: ExportedProgram, declared: Declared) -> None:
    """RangeError where a dimension declared dynamic has become constant, or two that have different names the same."""
    nodes = {n.name: n for n in ep.graph.nodes if n.op == "placeholder"}
    users = {s.arg.name for s in ep.graph_signature.input_specs if s.kind is InputKind.USER_INPUT}
    owner: dict[Any, tuple[str, str]] = {}
    for (name, dim), found in declared.dims.items():
        value = nodes[name].meta.get("val") if name in users else None
        size = value.shape[dim] if isinstance(value, torch.Tensor) and dim is not None else value
        place = place_text((name, dim))
        fixed = _fixed_size(size)
        if fixed is not None:
            check_fixed((name, dim), fixed, found, fixing_line(ep, fixed))
        if fixed is not None and found.kind != "auto":
            raise RangeError(
                f"{place} was declared {found.text}, but the program holds only for size {fixed}",
                fixing_line(ep, fixed),
                f"declare it static, or change the line that needs {fixed}",
            )
        if fixed is None and isinstance(size, torch.SymInt) and found.kind == "named" and found.formula is None:
            first = owner.setdefault(size.node.expr, (found.name, place))
            if first[0] != found.name:
                raise RangeError(
                    f"{first[1]} and {place} were declared {first[0]} and {found.name}, but must be equal",
                    None,
                    "declare both by the same Dim",
                )


def _fixed_size(size: Any) -> int | None:
    """The number that a size has been fixed to; None for one that is still free."""
    if isinstance(size, torch.SymInt):
        return int(sympy_of(size)) if sympy_of(size).is_number else None
    return size if isinstance(size, int) else None


def _outputs(
    ep: ExportedProgram, walk: Walk, face: Interface
) -> tuple[list[Value], Tree, dict[str, str], frozenset[int]]:
    """The output values, the output tree, the value that each changed buffer takes, and which outputs are complex.
    Fills face.finals."""
    output = next(n for n in ep.graph.nodes if n.op == "output")
    values: list[Value] = []
    leaves: list[Tree] = []
    finals: dict[str, str] = {}
    pairs: set[int] = set()
    for spec, arg in zip(ep.graph_signature.output_specs, output.args[0], strict=True):
        value = walk.operand(arg)
        if isinstance(value, ComplexValue):
            if value.re.dtype.is_half:
                raise InputSpecError(
                    f"output {spec.arg.name}: element type complex32 is not supported", fix="give it as complex64"
                )
            walk.builder.label = f"{spec.arg.name}_parts"
            value = pairs_of(walk.builder, value)
            if spec.kind is OutputKind.USER_OUTPUT:
                pairs.add(len(values))
        if spec.kind in CHANGES or spec.kind is OutputKind.USER_INPUT_MUTATION:
            target = plain_name(str(spec.target))
            name = face.states[target][0] if spec.kind in CHANGES else face.named[str(spec.target)]
            # its own form of sizes that a guard makes equal
            final = walk.builder.expand(value, walk.builder.types[name].shape).name
            if spec.kind in CHANGES:
                finals[target] = final
            else:
                face.finals[name] = final
        elif isinstance(spec.arg, ConstantArgument) or not (
            isinstance(value, Value) or isinstance(spec.arg, SymIntArgument)
        ):
            leaves.append(const_leaf(spec.arg.value if isinstance(spec.arg, ConstantArgument) else value, "outputs"))
        else:
            leaves.append({"kind": "leaf", "index": len(values)})
            values.append(value if isinstance(value, Value) else _size_output(walk, value))
    spec_tree = ep.call_spec.out_spec
    assert spec_tree is not None
    return values, describe(spec_tree, leaves, "outputs"), finals, frozenset(pairs)


def _size_output(walk: Walk, size: Any) -> Value:
    """An integer output, computed from sizes, as an i64 scalar."""
    walk.builder.label = "size"
    return walk.builder.tensor(walk.builder.cast(size, DType.I64))


def _guards(captured: Captured, sizes: Sizes, b: Builder, bindings: tuple[SymBinding, ...]) -> tuple[Guard, ...]:
    """torch's conditions and those that conversion found, each checked against the declared ranges."""
    kept: dict[tuple[object, ...], Guard] = {}
    noted = program_guards(captured.ep, captured.source, captured.decided, sizes)
    stated = [*noted, *((g, b.lines[g]) for g in b.guards)]
    limits = [(g, None) for g in sizes.limits]
    read = {binding.sym for binding in bindings if binding.input is None}
    for guard, where in [*stated, *limits]:
        if not read.intersection(free_syms(guard.a) | free_syms(guard.b)):
            check_guard(guard, bindings, captured.declared, where)
        kept.setdefault((guard.relation, guard.a, guard.b), guard)
    return without_implied(tuple(kept.values()))
