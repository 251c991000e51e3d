"""ExportedProgram -> Graph: walks the nodes, looks each op up in the table, collects everything that is refused."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from hardtack.codegen.ir.expr import Expr, const, int_value
from hardtack.codegen.ir.graph import Graph, Input, TensorType
from hardtack.codegen.notes import InternalError
from hardtack.codegen.ops import UndefinedOp
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.complex import COMPLEX, complex_result, convert_complex, has_complex, of_pairs
from hardtack.exporter.convert.cuda_kernels import convert_cuda_kernel
from hardtack.exporter.convert.kernels import convert_kernel
from hardtack.exporter.convert.launches import convert_launch
from hardtack.exporter.convert.numbers import ITEMS, item, number_of, refuse_as_size
from hardtack.exporter.convert.registry import CONVERTERS, REFUSED
from hardtack.exporter.convert.symfloat import bool_scalar, float_scalar
from hardtack.exporter.convert.table import ComplexValue, Number, Value
from hardtack.exporter.dtypes import from_torch
from hardtack.exporter.errors import (
    ExportError,
    PluginError,
    Refusal,
    SourceLine,
    Unsupported,
    UnsupportedOpError,
    ValueSize,
)
from hardtack.exporter.extensions import TORCH_NAMESPACES, CudaUserKernel, Extensions, Given, is_triton_op
from hardtack.exporter.functional_ops import original
from hardtack.exporter.kernels.own_kernels import has_own_kernel, own_kernel
from hardtack.exporter.origin import origin_of, source_of
from hardtack.exporter.sizes.shapes import Sizes, sympy_of
from hardtack.exporter.sizes.strides import row_major
from hardtack.exporter.triton_calls.launch_ops import launch_of


@dataclass
class Failure:
    """A refused node."""

    op: str
    reason: str
    node: Node


class Walk:
    """The conversion of one fx graph (the program's, or a branch's) into a Builder; `node` is where it stands."""

    def __init__(
        self, builder: Builder, sizes: Sizes, failures: list[Failure], owner: GraphModule, extensions: Extensions
    ) -> None:
        self.builder, self.sizes, self.failures, self.owner = builder, sizes, failures, owner
        self.extensions = extensions
        self.env: dict[Node, Any] = {}
        self.node: Node | None = None
        self._without: set[Node] = set()
        self._otherwise: set[Node] = set()
        """What has another dtype than torch states: an op of _STATED_OTHERWISE, or what is made of its results."""

    def run(self, nodes: Iterable[Node]) -> None:
        """Convert every node but placeholders and output."""
        for node in nodes:
            if node.op == "call_function":
                self.env[node] = self._node(node)
            elif node.op == "get_attr":
                self.env[node] = operator.attrgetter(str(node.target))(self.owner)

    def operand(self, x: Any) -> Any:
        """An fx argument as convert functions take it."""
        if isinstance(x, Node):
            return self.env[x]
        if isinstance(x, (list, tuple)):
            return [self.operand(i) for i in x]
        if isinstance(x, slice):
            return slice(self.operand(x.start), self.operand(x.stop), self.operand(x.step))
        return x

    def branch(self, module: GraphModule, operands: list[Value], name: str) -> Graph:
        """The fx graph of a branch or loop body as a Graph whose inputs are `operands`' types."""
        builder = Builder()
        builder.examples, builder.inside = self.builder.examples, True
        inner = Walk(builder, self.sizes, self.failures, module, self.extensions)
        inputs: list[Input] = []
        places = [n for n in module.graph.nodes if n.op == "placeholder"]
        for place, operand in zip(places, operands, strict=True):
            value = builder.declare(place.name, operand.type)
            inputs.append(Input(value.name, row_major(operand.shape)))
            inner.env[place] = value
        inner.run(module.graph.nodes)
        output = next(n for n in module.graph.nodes if n.op == "output")
        if builder.made:
            raise Refusal(f"a constant that is made for an op, as for a Fourier transform, inside of {name}")
        results = inner.operand(output.args[0])
        values = list(results) if isinstance(results, list) else [results]
        if not all(isinstance(v, Value) for v in values):
            raise Refusal(f"{name} returns something that is no tensor")
        return Graph(
            name=name,
            inputs=tuple(inputs),
            outputs=tuple(v.name for v in values),
            output_names=tuple(f"output_{i}" for i in range(len(values))),
            constants=(),
            states=(),
            ops=tuple(builder.ops),
            syms=(),
            guards=tuple(builder.guards),
            types=builder.types,
        )

    def _node(self, node: Node) -> Any:
        value = node.meta.get("val")
        name = user_op(node)
        after_failure = bool(self._without.intersection(node.all_input_nodes))
        if after_failure:
            self._without.add(node)
        try:
            if name in ITEMS and self._is_settled(value):
                return self._settled(node, name, value)
            if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) and not self.sizes.known(value):
                if name in ITEMS and sympy_of(value) in self.sizes.found:
                    return self._size(node, name, sympy_of(value))
                return self._value_number(node, name)
            if isinstance(value, torch.SymInt):
                return _plain(self.sizes.of(value))
            if isinstance(value, torch.SymFloat):
                return float_scalar(self.builder, self.sizes, value)
            if isinstance(value, torch.SymBool) or (isinstance(value, (bool, int, float)) and not _is_torch_op(node)):
                return value
            made = self._call(node, name)
            if isinstance(value, torch.Tensor) and isinstance(made, Number):
                return Value(made.name, made.type)  # full((), n): promoted like a tensor from here on
            return made
        except (Refusal, UndefinedOp) as refusal:
            if not (isinstance(refusal, ValueSize) and after_failure):
                reason = str(refusal)
                if isinstance(refusal, UndefinedOp):  # torch.export takes what eager mode refuses when it runs
                    reason = f"it is made of others, and {refusal}: convert its operands first"
                self.failures.append(Failure(name, reason, node))
            self._without.add(node)
            return self._stand_in(node)
        except ExportError:
            raise
        except Exception as error:
            if not self.failures:  # after one, a stand-in may be what has led here
                raise InternalError(f"the conversion of {name}", error, source_of(node)) from error
            return self._stand_in(node)

    def _is_settled(self, value: Any) -> bool:
        symbolic = isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
        return self.sizes.known(value) if symbolic else isinstance(value, (bool, int, float))

    def _settled(self, node: Node, name: str, value: Any) -> Any:
        """A value that other conditions have told torch (that parts add up to a size): checked during the run."""
        self._begin(node, name)
        number = item(self.builder, self.operand(node.args[0]))
        told = _plain(self.sizes.of(value)) if isinstance(value, torch.SymInt) else value
        if isinstance(told, (bool, int, float, Expr)):
            hit = self.builder.pw("eq", number, told)
            self.builder.multi("assert", hit, message=f"{name.partition('.')[2]} is not what the sizes need")
        return told

    def _size(self, node: Node, name: str, symbol: sympy.Basic) -> Expr:
        """A number of the run that is the size of something."""
        self._begin(node, name)
        least, most = self.sizes.found[symbol]
        size = self.builder.read(item(self.builder, self.operand(node.args[0])), most, least)
        self.sizes.bind(symbol, size)
        return size

    def _sized(self, node: Node, made: Any) -> Any:
        """A node's results; torch's new symbols for their sizes mean these sizes from here on."""
        for symbol, result, dim in _new_sizes(node):
            if symbol not in self.sizes.symbols:
                found = made if result is None else made[result]
                self.sizes.bind(symbol, (found.re if isinstance(found, ComplexValue) else found).shape[dim])
        return made

    def _value_number(self, node: Node, name: str) -> Any:
        """A number that depends on the values of tensors; None for one that nothing uses, and for places in memory."""
        operands = tuple(self.operand(a) for a in node.args)
        if not node.users or name == "aten.sym_storage_offset.default" or None in operands:
            return None
        self._begin(node, name)
        return number_of(self.builder, node, operands)

    def _call(self, node: Node, name: str) -> Any:
        if node.target is operator.getitem:
            found = self.operand(node.args[0])[node.args[1]]
            if found is None and node.users:
                raise Refusal(f"output {node.args[1]} of {node.args[0]} is not supported, only its others are")
            if node.args[0] in self._otherwise and _unlike(found, self._stated(node)):
                self._otherwise.add(node)
            return found
        if isinstance(node.meta.get("val"), (bool, int, float)):
            return node.meta["val"]
        users = self.extensions.whole(name)
        if users is not None and op_name(node.target) not in _WRAPPERS:
            return self._users(node, name, users)
        if users is not None and op_name(node.target) != "with_effects":
            raise Refusal("the program was decomposed before: export the module, or what torch.export.export gave")
        launch = launch_of(node.target)
        if launch is not None:
            self._begin(node, launch.code.function)
            given, sizes = (self.operand(a) for a in node.args)
            if has_complex(given):
                raise Refusal("a Triton kernel is passed complex numbers: pass torch.view_as_real(x)")
            return convert_launch(self.builder, launch, node, given, sizes)
        convert = None if op_name(node.target) in _WRAPPERS else CONVERTERS.get(name) or COMPLEX.get(name)
        if convert is None:
            if op_name(node.target) in _WRAPPERS or not has_own_kernel(name):
                raise Refusal(_reason(node, name, self.extensions))
            return self._own(node, name)
        b = self.builder
        self._begin(node, name)
        fresh = any(symbol not in self.sizes.symbols for symbol, _, _ in _new_sizes(node))
        b.stated = () if fresh else self._stated(node)
        args = tuple(self.operand(a) for a in node.args)
        if name.startswith("aten._assert_scalar") and isinstance(args[0], torch.SymBool) and self._is_found(args[0]):
            return self._require(args[0], str(args[1]) if len(args) > 1 else "")
        if name.startswith("aten.") and not name.startswith("aten._assert"):
            args = tuple(bool_scalar(b, self.sizes, a) if isinstance(a, torch.SymBool) else a for a in args)
        refuse_as_size(node, args)
        kwargs = {k: self.operand(v) for k, v in node.kwargs.items()}
        value = node.meta.get("val")
        is_complex = isinstance(value, torch.Tensor) and value.dtype.is_complex
        becomes_complex = name == "aten._to_copy.default" and is_complex
        more = {"walk": self} if name in NEEDS_WALK else {}
        if has_complex(args) or becomes_complex or name not in CONVERTERS:
            to_real = isinstance(value, torch.Tensor) and not is_complex
            converted = self._sized(node, convert_complex(b, name, args, {**kwargs, **more}, to_real))
            return _as_stated(converted, value, self._stated(node))
        for stated in b.stated:
            b.require_sizes(stated)
        if is_complex:
            made = self._sized(node, complex_result(b, name, args, kwargs))
            return _as_stated(made, value, self._stated(node))
        stated_types = b.stated  # a body that is emitted on the way has its own
        found = convert(b, *args, **more, **kwargs)
        if fresh:
            self._sized(node, found)
            stated_types = self._stated(node)
        unlike = _unlike(found, stated_types)
        other_dtypes = name in _STATED_OTHERWISE or bool(self._otherwise.intersection(node.all_input_nodes))
        if unlike and not (other_dtypes and not _unlike(found, stated_types, dtypes=False)):
            raise ValueError(unlike)
        self._otherwise.update({node} if unlike else ())
        return found

    def _is_found(self, condition: torch.SymBool) -> bool:
        return bool(sympy_of(condition).free_symbols & self.sizes.found.keys())

    def _require(self, condition: torch.SymBool, message: str) -> None:
        """A condition on sizes that the run computes, which torch keeps in the program alone."""
        for guard in self.sizes.guards(condition):
            self.builder.require(guard.relation, guard.a, guard.b, f"a condition of the model ({message})")

    def _own(self, node: Node, name: str) -> Any:
        """The results of a kernel of Hardtack's own, which has complex numbers as pairs."""
        self._begin(node, name)
        args = tuple(self.operand(a) for a in node.args)
        kwargs = {k: self.operand(v) for k, v in node.kwargs.items()}
        value, b = node.meta.get("val"), self.builder
        tensors = _tensors_of(value)
        types = [self.type_of(t) for t in tensors]
        b.stated = tuple(
            TensorType(s.dtype, (*s.shape, const(2))) if t.is_complex() else s
            for t, s in zip(tensors, types, strict=True)
        )
        kernel = own_kernel(name, has_complex((*args, *kwargs.values())))
        found = convert_kernel(b, self.extensions, kernel, args, kwargs)
        values = tuple(of_pairs(b, v) if t.is_complex() else v for t, v in zip(tensors, found, strict=True))
        return values if isinstance(value, (tuple, list)) else values[0]

    def _users(self, node: Node, name: str, users: Given) -> Any:
        """What a user's lowering or kernel makes of an op. PluginError for what it raises, but a Refusal."""
        where, b, value = source_of(node), self.builder, node.meta.get("val")
        self._begin(node, name)
        b.stated = self._stated(node)
        args = tuple(self.operand(a) for a in node.args)
        kwargs = {k: self.operand(v) for k, v in node.kwargs.items()}
        if has_complex((*args, *kwargs.values())) or any(t.dtype.is_complex for t in _tensors_of(value)):
            raise PluginError(f"{users} cannot be taken for complex numbers", where, "give it a decomposition")
        if users.what == "kernel":
            self.extensions.note(users)
            on_gpu = isinstance(users.function, CudaUserKernel)
            values = (convert_cuda_kernel if on_gpu else convert_kernel)(b, self.extensions, users, args, kwargs)
        else:
            values = self._lowered(users, where, args, kwargs)
        return values if isinstance(value, (tuple, list)) else values[0]

    def _lowered(
        self, users: Given, where: SourceLine | None, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """What a user's lowering gives. PluginError for other types than the op's fake kernel states."""
        b = self.builder
        found = self.extensions.call(users, where, args, kwargs, (b,), (Refusal, UndefinedOp))
        values = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(values) != len(b.stated):
            raise PluginError(f"{users} gives {len(values)} results, and the op has {len(b.stated)}", where)
        for v, t in zip(values, b.stated, strict=True):
            b.require_sizes(t)
            unlike = _unlike(v, (t,)) if isinstance(v, Value) and t is not None else "something that is no Value"
            if unlike or t is None or not all(map(b.same, v.shape, t.shape)):
                unlike = unlike or f"a result of {v.type}, and torch states {t}"
                raise PluginError(f"{users} gives {unlike}", where)
        return values

    def _begin(self, node: Node, name: str) -> None:
        """What the builder says of the ops that it makes from now on."""
        b = self.builder
        b.origin, b.label = origin_of(node, name.removesuffix(".default")), node.name
        b.line, self.node = source_of(node), node

    def _stated(self, node: Node) -> tuple[TensorType | None, ...]:
        value = node.meta.get("val")
        values = value if isinstance(value, (tuple, list)) else (value,)
        return tuple(self.type_of(v) if isinstance(v, torch.Tensor) else None for v in values)

    def type_of(self, t: torch.Tensor) -> TensorType:
        """The TensorType of a fake tensor; of each part of a complex one."""
        dtype = t.dtype.to_real() if t.dtype.is_complex else t.dtype
        return TensorType(from_torch(dtype), self.sizes.shape(t.shape))

    def _stand_in(self, node: Node) -> Any:
        """A value for a refused node, so that the walk goes on and finds all refusals."""
        value = node.meta.get("val")
        values = value if isinstance(value, (tuple, list)) else (value,)
        made: list[Any] = []
        for v in values:
            if isinstance(v, torch.Tensor):
                shape = tuple(self._size_or_one(s) for s in v.shape)
                made.append(self.builder.declare(node.name, TensorType(_dtype_or_float(v.dtype), shape)))
            else:
                made.append(_NUMBERS.get(type(v), v))
        return tuple(made) if isinstance(value, (tuple, list)) else made[0]

    def _size_or_one(self, size: int | torch.SymInt) -> Expr:
        try:
            return self.sizes.of(size)
        except Refusal:
            return const(1)


def _new_sizes(node: Node) -> Iterator[tuple[sympy.Symbol, int | None, int]]:
    """(torch's symbol, the result, None for a single one, its dimension) of sizes that the run computes."""
    for symbol, path in (node.meta.get("unbacked_bindings") or {}).items():
        names = [getattr(key, "name", None) for key in path]
        if "size" in names:
            at = names.index("size")
            yield symbol, path[0].idx if at else None, path[at + 1].idx


def _tensors_of(value: Any) -> list[torch.Tensor]:
    """The fake tensors of a node's value."""
    return [v for v in (value if isinstance(value, (tuple, list)) else (value,)) if isinstance(v, torch.Tensor)]


def _unlike(found: Any, stated: tuple[TensorType | None, ...], dtypes: bool = True) -> str:
    """How the first result differs from what torch states, in dtype (if asked), rank or a constant size; "" if none
    does.
    """
    values = found if isinstance(found, (tuple, list)) else (found,)
    for value, type_ in zip(values, stated, strict=False):
        if not isinstance(value, Value) or type_ is None:
            continue
        sizes = [(int_value(a), int_value(b)) for a, b in zip(value.shape, type_.shape, strict=False)]
        apart = any(a != b for a, b in sizes if a is not None and b is not None)
        other = dtypes and value.dtype is not type_.dtype
        if other or value.rank != len(type_.shape) or apart:
            return f"a result of {TensorType(value.dtype, value.shape)}, and torch states {type_}"
    return ""


def _as_stated(found: Any, value: Any, stated: tuple[TensorType | None, ...]) -> Any:
    """What was made of a call with complex numbers, if it is what torch states: complex where that is, of its type."""
    if isinstance(value, torch.Tensor) and isinstance(found, (Value, ComplexValue)):
        parts = (found.re, found.im) if isinstance(found, ComplexValue) else (found,)
        if value.dtype.is_complex is not isinstance(found, ComplexValue):
            raise ValueError(f"a result of {len(parts)} parts, and torch states {value.dtype}")
        for part in parts:
            if unlike := _unlike(part, stated):
                raise ValueError(unlike)
    return found


_STATED_OTHERWISE = frozenset({"aten.native_group_norm.default", "aten.native_layer_norm.default"})
"""Ops of which torch states another dtype than eager gives: these moments of half types are f32."""


NEEDS_WALK = frozenset(
    {
        "cond",
        "while_loop",
        "aten.as_strided.default",
        "aten.as_strided_copy.default",
        "aten.as_strided_scatter.default",
        "aten.resize.default",
    }
)
"""Ops whose convert function also gets the Walk, as keyword `walk`: those that hold fx graphs, and those that ask how
torch lays out an operand."""


_NUMBERS: dict[type, Any] = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}


def _dtype_or_float(dtype: torch.dtype) -> Any:
    try:
        return from_torch(dtype)
    except Refusal:
        return from_torch(torch.float32)


def _plain(size: Expr) -> int | Expr:
    value = int_value(size)
    return size if value is None else value


def _is_torch_op(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and not str(node.target).startswith("aten.sym_")


def op_name(target: Any) -> str:
    """`aten.add.Tensor`, `cond`, `getitem`."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", str(target))


_WRAPPERS = {"with_effects": 1, "auto_functionalized": 0, "auto_functionalized_v2": 0}
"""torch's wrappers of ops that have effects or write to their arguments: the position of the op."""


def user_op(node: Node) -> str:
    """The name of the op that the user's program calls: of a wrapper, that of the op inside; of a launch, the Triton
    kernel's."""
    launch = launch_of(node.target)
    if launch is not None:
        return launch.code.function
    name = op_name(original(node.target))
    at = _WRAPPERS.get(name)
    return name if at is None or at >= len(node.args) else op_name(node.args[at])


def _reason(node: Node, name: str, extensions: Extensions) -> str:
    """Why an op without a conversion is refused."""
    packet = name.rpartition(".")[0]
    known = REFUSED.get(packet) or REFUSED.get(name)
    if known is not None:
        return known
    if is_triton_op(original(node.target)):
        key = packet.replace(".", "::", 1)
        return (
            f"its Triton kernels are for GPUs: give CPUs a function of it in torch's ops, as export(decompositions="
            f"{{{key!r}: function}}), or in C++, as kernels={{{key!r}: CppKernel(...)}}, or export for GPUs alone"
        )
    if name in extensions.cuda:
        key = packet.replace(".", "::", 1)
        return (
            f"its kernel, {extensions.cuda[name].function.function}, is CUDA C++, for NVIDIA's GPUs: give CPUs a "
            f"function of it in torch's ops, as export(decompositions={{{key!r}: function}}), or in C++, as "
            f"kernels={{{key!r}: (CppKernel(...), CudaKernel(...))}}, or export for these GPUs alone"
        )
    if packet and not packet.startswith(_TORCH_OPS):
        writes = " that writes to its arguments" if op_name(node.target).startswith("auto_functionalized") else ""
        return (
            f"a custom op{writes}: its code is unknown to the compiler; give its function in torch's ops, as "
            f"export(decompositions={{{packet.replace('.', '::', 1)!r}: function}}), or call it outside"
        )
    if op_name(node.target) == "with_effects":
        return "it has an effect outside of the program, such as a print: leave it out of forward"
    return "Hardtack has no conversion for it"


_TORCH_OPS = tuple(f"{space}." for space in TORCH_NAMESPACES)


def raise_failures(failures: list[Failure]) -> None:
    """UnsupportedOpError with one entry for each (op, reason), in order of first use; nothing if there are none.

    A node that fails because of an earlier refused one is listed too only if its op differs.
    """
    if not failures:
        return
    groups: dict[tuple[str, str], list[Failure]] = {}
    for f in failures:
        groups.setdefault((f.op, f.reason), []).append(f)
    raise UnsupportedOpError(
        [Unsupported(op, reason, source_of(found[0].node), len(found)) for (op, reason), found in groups.items()]
    )
