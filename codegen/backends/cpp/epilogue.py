"""The epilogue functor of a template kernel: what happens to each finished vector of results.

Sizes in it are parameters, not literals: layers that differ in nothing but their sizes share one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hardtack.codegen.backends.cpp.cpp_body import Body, Place, storage_type
from hardtack.codegen.backends.cpp.cpp_loops import indent
from hardtack.codegen.backends.cpp.cpp_spelling import register_type, rounded, symbol
from hardtack.codegen.ir.expr import ONE, Const, Expr, Sym, children, const, sym
from hardtack.codegen.ir.expr_walk import free_syms, rebuild
from hardtack.codegen.ir.loops import Buffer, Index, Load, Stmt, Store, dtypes, exprs_of
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.passes.shared.inline import cost

SMALLEST_PARAMETER = 4
"""Constants from here on become parameters of the kernel; smaller ones are strides of interleaved data and the like."""


@dataclass
class Parameters:
    """The kernel's integer parameters: C++ name -> the Expr that the launch passes."""

    ints: dict[str, Expr] = field(default_factory=dict)
    _by_value: dict[int, Sym] = field(default_factory=dict)

    def add(self, name: str, value: Expr | int) -> str:
        """A named parameter."""
        self.ints[name] = value if isinstance(value, Expr) else const(value)
        return name

    def lift(self, e: Expr) -> Expr:
        """e with its large constants replaced by parameters."""
        if isinstance(e, Const):
            if abs(e.value) < SMALLEST_PARAMETER:
                return e
            if e.value not in self._by_value:
                # no user's symbol starts with a digit
                s = sym(f"{len(self._by_value)}", e.value, e.value)
                self._by_value[e.value] = s
                self.ints[symbol(s)] = e
            return self._by_value[e.value]
        parts = children(e)
        return rebuild(e, tuple(self.lift(c) for c in parts)) if parts else e


def lifted(s: Stmt, parameters: Parameters) -> Stmt:
    """A statement whose Exprs have parameters in place of constants."""
    if isinstance(s, Index):
        return replace(s, expr=parameters.lift(s.expr))
    if isinstance(s, (Load, Store)):
        return replace(s, index=tuple(parameters.lift(e) for e in s.index))
    return s


@dataclass(frozen=True)
class Epilogue:
    """C++ text: the functor's definition, and its construction inside the kernel."""

    definition: list[str]
    construction: str


def epilogue(kernel: Kernel, buffers: Mapping[str, Buffer], parameters: Parameters) -> Epilogue:
    """The functor `Epilogue` of a template kernel."""
    anchor = kernel.anchor
    assert anchor is not None
    places = _places(kernel, buffers)
    before = set(parameters.ints)
    for s in _symbols(kernel):
        parameters.add(symbol(s), s)
    lines = _point(kernel, places, buffers, parameters)
    names = [n for n in parameters.ints if n not in before]
    fields: list[str] = []
    values: list[str] = []
    for k, b in enumerate(kernel.buffers):
        if places[b.name].pointer and _touched(kernel, b.name):
            const_ = "" if b.name in kernel.writes else "const "
            fields.append(f"{const_}{storage_type(b.dtype)}* __restrict b{k};")
            values.append(f"b{k}")
    fields += [f"int64_t {n};" for n in names]
    values += names
    sums = register_type(buffers[anchor.result].dtype)
    definition = [
        "struct Epilogue {",
        *indent(fields),
        "  ht::Status* failures;",
        f"  static constexpr int kOperations = {sum(cost(n.nest) for n in kernel.nests)};",
        f"  static constexpr bool kOneRow = {'true' if kernel.outer[1].extent is ONE else 'false'};",
        "  struct Row {",
        "    int64_t batch;",
        "  };",
        "  HT_MEMBER Row row(int64_t batch, int64_t) const { return {batch}; }",
        "  template <class C>",
        f"  HT_MEMBER void point(int64_t batch, int64_t m, int64_t n, C cnt, {sums} acc) const {{",
        "    static_cast<void>(batch), static_cast<void>(m), static_cast<void>(cnt);",
        "    ht::Status& status = *failures;",
        "    static_cast<void>(status);",
        *indent(lines, 2),
        "  }",
        f"  HT_MEMBER void operator()(const Row& r, int64_t m, int64_t n, int count, {sums} acc) const {{",
        "    if (count == ht::W) point(r.batch, m, n, ht::Full{}, acc);",
        "    else part(r, m, n, count, acc);",
        "  }",
        f"  HT_MEMBER void part(const Row& r, int64_t m, int64_t n, int count, {sums} acc) const {{",
        "    point(r.batch, m, n, ht::Part{count}, acc);",
        "  }",
        "};",
    ]
    return Epilogue(definition, "const Epilogue epilogue{" + ", ".join([*values, "&status"]) + "};")


def _symbols(kernel: Kernel) -> list[Sym]:
    """The graph's symbols in the epilogue's own expressions."""
    found: set[Sym] = set()
    for n in kernel.nests:
        for s in n.nest.body:
            for e in exprs_of(s):
                found |= free_syms(e)
    for axis in kernel.outer[1:]:  # the result's own place: (batch * m + row) * n + column
        found |= free_syms(axis.extent)
    return sorted((s for s in found if s.extent is None), key=lambda s: s.name)


def _touched(kernel: Kernel, buffer: str) -> bool:
    """True if the epilogue itself reads or writes the buffer."""
    assert kernel.anchor is not None
    inside = {s.buffer for n in kernel.nests for s in n.nest.body if hasattr(s, "buffer")}
    return buffer in inside or buffer == kernel.anchor.result


def _places(kernel: Kernel, buffers: Mapping[str, Buffer]) -> dict[str, Place]:
    memory = [b.name for b in kernel.buffers]
    assert kernel.anchor is not None
    places: dict[str, Place] = {}
    for k, (name, where) in enumerate(kernel.storage.items()):
        pointer = f"b{memory.index(name)}" if where.kind == "memory" else ""
        inside = name in kernel.writes or where.kind == "register"
        places[name] = Place(buffers[name].dtype, pointer, f"g{k}" if inside else "")
    result = places[kernel.anchor.result]
    result.register, result.written, result.summed = "acc", True, True
    return places


def _point(
    kernel: Kernel, places: dict[str, Place], buffers: Mapping[str, Buffer], parameters: Parameters
) -> list[str]:
    anchor = kernel.anchor
    assert anchor is not None
    batch, m, n = kernel.outer
    lines = [f"{register_type(p.dtype)} {p.register};" for p in places.values() if p.register and p.register != "acc"]
    result = places[anchor.result]
    if result.pointer:
        row = m.sym if batch.extent is ONE else batch.sym * m.extent + m.sym
        offset = parameters.lift(row * n.extent + n.sym)
        body = Body(places, {}, n.sym)
        lines.append(f"ht::st({result.pointer} + {body.scalar(offset)}, acc, cnt);")
    if kernel.nests and result.dtype.is_half:
        lines.append(f"acc = {rounded('acc', result.dtype)};")  # as it is in memory, whatever is fused
    for k, nest in enumerate(kernel.nests):
        statements = [lifted(s, parameters) for s in nest.nest.body]
        body = Body(places, dtypes(nest.nest.body, buffers), n.sym, prefix=f"n{k}_")
        for s in statements:
            body.write(s)
        lines += body.lines
    return lines
