"""The program's interface: symbols and inputs, constants and states, outputs, from an ExportedProgram's signature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, TensorArgument
from torch.fx import Node

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.constants import ConstantStore, Recipe
from hardtack.codegen.ir.graph import Constant, Input, State, SymBinding, TensorType
from hardtack.codegen.ir.types import DType
from hardtack.exporter.constants import parts_of, store_tensor, tensor_type
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.complex import of_pairs
from hardtack.exporter.convert.table import ComplexValue, Value
from hardtack.exporter.dtypes import from_torch, part_dtype
from hardtack.exporter.errors import InputSpecError, Refusal
from hardtack.exporter.origin import WRAPPED
from hardtack.exporter.sizes.ranges import Declared
from hardtack.exporter.sizes.shapes import LARGEST_INT, Sizes, new_symbol, sympy_of
from hardtack.exporter.sizes.strides import contract_strides, row_major
from hardtack.exporter.tree import Tree, const_leaf


@dataclass
class Interface:
    """What a program takes: filled by `read_inputs`."""

    inputs: list[Input] = field(default_factory=list)
    leaves: list[Tree] = field(default_factory=list)  # one a leaf of the input tree
    syms: list[SymBinding] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    states: dict[str, tuple[str, str]] = field(default_factory=dict)  # buffer name -> (value name, init key)
    env: dict[Node, Any] = field(default_factory=dict)
    complex_inputs: set[str] = field(default_factory=set)  # value names, whose values have pairs
    complex_states: set[str] = field(default_factory=set)
    named: dict[str, str] = field(default_factory=dict)  # tensor inputs: placeholder -> value name
    finals: dict[str, str] = field(default_factory=dict)  # written inputs: value name -> the value behind the run


def read_inputs(
    ep: ExportedProgram,
    b: Builder,
    sizes: Sizes,
    store: ConstantStore,
    state_names: Mapping[str, str],
    declared: Declared,
) -> Interface:
    """Declare the program's inputs, constants and states in the builder and bind its symbols."""
    out = Interface()
    nodes = {n.name: n for n in ep.graph.nodes if n.op == "placeholder"}
    users = [s for s in ep.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    _bind_symbols(out, users, nodes, sizes, declared, b)
    for spec in users:
        _user_input(out, spec, nodes, b, sizes)
    for spec in ep.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            _lifted(out, ep, spec, nodes, b, store, state_names)
    return out


def _dims(value: Any) -> Iterable[tuple[int | None, Any]]:
    """(dim, size) of an input's sizes; an integer input is (None, itself)."""
    if isinstance(value, torch.Tensor):
        yield from enumerate(value.shape)
    elif isinstance(value, torch.SymInt):
        yield None, value


def _bind_symbols(
    out: Interface, users: list[InputSpec], nodes: Mapping[str, Node], sizes: Sizes, declared: Declared, b: Builder
) -> None:
    """Every symbol is bound by the first dimension that is that symbol alone; then those that stand in sums and
    products. An integer that the program has for a number, or for what other inputs say, is bound, too, and compared:
    nothing else reads what callers give there.
    """
    compound: list[tuple[str, int | None, sympy.Basic]] = []
    given: list[tuple[str, sympy.Basic]] = []
    for spec in users:
        for dim, size in _dims(nodes[spec.arg.name].meta.get("val")):
            e = sympy_of(size) if isinstance(size, torch.SymInt) else None
            if e is None:
                continue
            if isinstance(e, sympy.Symbol) and e not in sizes.symbols:
                _bind(out, sizes, declared, spec.arg.name, dim, e)
            elif dim is None:
                given.append((spec.arg.name, e))
            elif not isinstance(e, sympy.Symbol) and not e.is_number:
                compound.append((spec.arg.name, dim, e))
    for name, dim, e in [*compound, *((name, None, e) for name, e in given)]:
        unbound = [s for s in e.free_symbols if s not in sizes.symbols]
        if unbound:
            _bind_derived(out, sizes, declared, name, dim, e, unbound, b)
        elif dim is None:
            _bind_known(out, sizes, declared, name, e, b)
    b.examples.update(_examples(out, nodes))


def _examples(out: Interface, nodes: Mapping[str, Node]) -> dict[str, int]:
    """The sizes that torch traced with, by symbol, as far as it has kept them."""
    found: dict[str, int] = {}
    for binding in out.syms:
        assert binding.input is not None
        value = nodes[binding.input].meta["val"]
        size = value if binding.dim is None else value.shape[binding.dim]
        if size.node.has_hint():
            found[binding.sym.name] = int(size.node.hint)
    return found


def _bind(out: Interface, sizes: Sizes, declared: Declared, name: str, dim: int | None, e: sympy.Symbol) -> None:
    wish, lo, hi = declared.symbol(name, dim, len(out.syms))
    sized = [s for s in out.syms if s.dim is not None and dim is not None]
    twin = next((s.sym for s in sized if s.input and declared.same_dim((s.input, s.dim), (name, dim))), None)
    if twin is not None:
        sizes.bind(e, twin)
        return
    taken = {s.sym.name for s in out.syms}
    if dim is None:
        hi = LARGEST_INT if hi is None else min(hi, LARGEST_INT)
    sym = new_symbol(wish if wish not in taken else f"{wish}_{len(out.syms)}", lo, hi)
    sizes.bind(e, sym, is_int=dim is None)
    out.syms.append(SymBinding(sym, name, dim))


def _bind_derived(
    out: Interface,
    sizes: Sizes,
    declared: Declared,
    name: str,
    dim: int | None,
    e: sympy.Basic,
    unbound: list[sympy.Symbol],
    b: Builder,
) -> None:
    """A dimension of size a * s + b binds s = (size - b) / a, with a guard that the division is exact."""
    slope = sympy.diff(e, unbound[0])
    rest = sympy.expand(e - slope * unbound[0])
    if len(unbound) > 1 or not slope.is_Integer or int(slope) < 1 or rest.free_symbols - set(sizes.symbols):
        raise InputSpecError(
            f"dimension {dim} of input {name} has the size {e}, which does not tell {unbound[0]}",
            fix="make one dimension dynamic by a Dim of its own",
        )
    hidden = sympy.Symbol(f"_{name}_{dim}", integer=True, positive=True)
    _bind(out, sizes, declared, name, dim, hidden)
    size, a = sizes.of(hidden), int(slope)
    offset = size - sizes.of(rest)
    sizes.bind(unbound[0], ex.floordiv(offset, a))
    b.require("eq", ex.mod(offset, a), 0, f"dimension {dim} of input {name} is {e}")


def _bind_known(out: Interface, sizes: Sizes, declared: Declared, name: str, e: sympy.Basic, b: Builder) -> None:
    """An integer input whose value other inputs, or the program, tell: a symbol of its own, which must be equal."""
    own = sympy.Symbol(f"_{name}", integer=True)
    _bind(out, sizes, declared, name, None, own)
    b.require("eq", sizes.of(own), sizes.of(e), f"input {name}")


def _user_input(out: Interface, spec: InputSpec, nodes: Mapping[str, Node], b: Builder, sizes: Sizes) -> None:
    node = nodes[spec.arg.name]
    value = node.meta.get("val")
    if isinstance(spec.arg, ConstantArgument) or not isinstance(value, (torch.Tensor, torch.SymInt)):
        constant = spec.arg.value if isinstance(spec.arg, ConstantArgument) else value
        out.leaves.append(const_leaf(constant, "inputs"))
        out.env[node] = constant
        return
    out.leaves.append({"kind": "leaf", "index": len(out.inputs)})
    if isinstance(value, torch.SymInt):
        made = b.declare(spec.arg.name, TensorType(DType.I64, ()))
        out.inputs.append(Input(made.name, ()))
        out.env[node] = sizes.of(value)
        return
    try:
        pairs = value.is_complex()
        part, shape = from_torch(part_dtype(value.dtype)), sizes.shape(value.shape)
        type_ = TensorType(part, (*shape, ex.const(2)) if pairs else shape)
        strides = row_major(type_.shape) if pairs else contract_strides(value, type_.shape)
    except Refusal as refusal:
        raise InputSpecError(f"input {spec.arg.name}: {refusal}") from refusal
    made = b.declare(spec.arg.name, type_)
    out.inputs.append(Input(made.name, strides))
    out.named[spec.arg.name] = made.name
    out.env[node] = _complex(b, made) if pairs else made
    if pairs:
        out.complex_inputs.add(made.name)


def _complex(b: Builder, pairs: Value) -> ComplexValue:
    """What an input or state holds whose elements are complex."""
    b.label = f"{pairs.name}_parts"
    return of_pairs(b, pairs)


def _lifted(
    out: Interface,
    ep: ExportedProgram,
    spec: InputSpec,
    nodes: Mapping[str, Node],
    b: Builder,
    store: ConstantStore,
    state_names: Mapping[str, str],
) -> None:
    """A parameter, buffer or lifted tensor: a constant, or a state if some entry point changes it."""
    node, target = nodes[spec.arg.name], user_name(spec)
    if spec.kind is InputKind.TOKEN:
        return  # orders effects of ops that are refused, each by its name
    if spec.kind is InputKind.CUSTOM_OBJ or not isinstance(spec.arg, TensorArgument):
        raise InputSpecError(
            f"the module holds {target}, which is no tensor but a custom object", fix="keep only tensors as attributes"
        )
    content = lifted_tensor(ep, spec)
    if not node.users and target not in state_names:
        return
    pairs = content.is_complex()
    if pairs and target not in state_names:
        out.env[node] = _complex_constant(out, b, store, target, content)
        return
    try:
        plain = parts_of(content) if pairs else content
        key = store_tensor(store, plain)
        made: Value = b.declare(state_names.get(target, target), tensor_type(plain))
    except Refusal as refusal:
        raise InputSpecError(f"{target}: {refusal}", fix=f"convert {target} to a supported element type") from refusal
    out.env[node] = _complex(b, made) if pairs else made
    if target in state_names:
        out.states[target] = (made.name, key)
        out.complex_states.update({made.name} if pairs else ())
    else:
        named = spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
        out.constants.append(Constant(made.name, key, (target,) if named else (), Recipe(target) if named else None))


def _complex_constant(
    out: Interface, b: Builder, store: ConstantStore, target: str, content: torch.Tensor
) -> ComplexValue:
    """A complex tensor that no run changes: a constant for each part."""
    try:
        parts = parts_of(content)
    except Refusal as refusal:
        raise InputSpecError(f"{target}: {refusal}", fix=f"convert {target} to a supported element type") from refusal
    return ComplexValue(*(_constant(out, b, store, f"{target}.{p}", parts[..., i]) for i, p in enumerate(_PARTS)))


_PARTS = ("real", "imag")


def _constant(out: Interface, b: Builder, store: ConstantStore, name: str, content: torch.Tensor) -> Value:
    made = b.declare(name, tensor_type(content))
    out.constants.append(Constant(made.name, store_tensor(store, content)))
    return made


def add_made(out: Interface, b: Builder, store: ConstantStore) -> None:
    """The constants that conversion itself has made."""
    for value, content in b.made.values():
        out.constants.append(Constant(value.name, store_tensor(store, content)))


def user_name(spec: InputSpec) -> str:
    """The qualified name of a parameter or buffer in the user's module."""
    return plain_name(spec.target or spec.arg.name)


def plain_name(target: str) -> str:
    """A qualified name without the wrapper that capture may have put around the module."""
    return target.removeprefix(f"{WRAPPED}.")


def lifted_tensor(ep: ExportedProgram, spec: InputSpec) -> torch.Tensor:
    """The tensor behind a lifted input."""
    target = spec.target or ""
    found = ep.state_dict.get(target)
    if found is None:
        found = ep.constants.get(target)
    if not isinstance(found, torch.Tensor):
        raise InputSpecError(f"the program holds no tensor for {target}", fix="export it again from the module")
    return found


def states_of(out: Interface, finals: Mapping[str, str], zero: Any) -> tuple[State, ...]:
    """The State of each buffer that some entry point changes."""
    made: list[State] = []
    for target, (name, key) in out.states.items():
        made.append(State(name, None if zero(key) else key, finals.get(target)))
    return tuple(made)
