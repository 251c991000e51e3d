"""Plan: the runtime's program, as data. docs/plan.md is the contract; these are its classes.

Plan   ::= entry, target, syms, guards, values, inputs, outputs, kernels, body, arena_nbytes
Value  ::= Value(name, dtype, shape, strides, storage)
Storage::= ("input", i) | ("output", i) | ("constant", name) | ("state", name) | ("arena", Expr)
Instr  ::= Launch | Copy | Fill | If | While | Read
A kernel of a GPU target has a GpuKernel: its code, its launch shape and its .param list (GpuArg, in order).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from hardtack.codegen.ir.expr import Add, Const, Expr, FloorDiv, Max, Min, Mod, Mul, Sym, children, const
from hardtack.codegen.ir.expr import to_text as expr_text
from hardtack.codegen.ir.graph import Guard, Origin
from hardtack.codegen.ir.types import DType

FORMAT = 2
Storage = tuple[str, int] | tuple[str, str] | tuple[str, Expr]


@dataclass(frozen=True)
class PlanSym:
    """A symbol and the input that binds it; `dim` None: the value of a rank-0 i64 input. `input` None: a Read binds
    it. Those that inputs bind stand first, the others in the order of their reads."""

    sym: Sym
    input: int | None
    dim: int | None


@dataclass(frozen=True)
class Value:
    """A tensor of the plan: `strides` in elements; `storage` as in the module's grammar."""

    name: str
    dtype: DType
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    storage: Storage


@dataclass(frozen=True)
class BufferParam:
    dtype: DType
    access: str  # "read" | "write" | "readwrite"


GpuArg = tuple[str] | tuple[str, int] | tuple[str, int, int] | tuple[str, int, str]
"""One .param of a GPU kernel: ("buffer", p), ("int", p, "i32" or "i64"), ("status",), ("site",), ("scratch",),
("null",), ("map", m), ("map_shape", m, d) or ("map_stride", m, d); docs/plan.md says what each holds."""


@dataclass(frozen=True)
class TensorMap:
    """The fixed part of a kernel's tensor map: `block` in elements, outermost first; `swizzle` 0 to 3: none, 32, 64 or
    128 bytes."""

    block: tuple[int, ...]
    swizzle: int
    dtype: DType


@dataclass(frozen=True)
class MapSource:
    """What a launch gives a tensor map: `buffer` counts the launch's buffers; `offset`, `shape` and `strides` are in
    elements, outermost first, the last stride being 1."""

    buffer: int
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True)
class GpuKernel:
    """How a CUDA kernel is found and launched. `threads` of a CTA; `cluster`: CTAs in a cluster; `scratch_nbytes`:
    global scratch of a CTA; `dependent`: launched with the programmatic-dependent-launch attribute."""

    member: str
    function: str
    threads: int
    shared_nbytes: int
    args: tuple[GpuArg, ...]
    cluster: int = 1
    dependent: bool = False
    scratch_nbytes: int = 0
    scratch_align: int = 1
    maps: tuple[TensorMap, ...] = ()


@dataclass(frozen=True)
class Access:
    """Elements of a buffer: from `offset` on, `shape` of them, `strides` apart. fills: the kernel writes each of them,
    whatever the data; else it touches no others, reading or writing."""

    fills: bool
    offset: Expr
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]


def span(numel: Expr, fills: bool = False) -> Access:
    """The first `numel` elements."""
    return Access(fills, const(0), (numel,), (const(1),))


@dataclass(frozen=True)
class Call:
    """What a kernel may be launched with, fields as in Launch, and what it then accesses, buffer by buffer."""

    ints: tuple[Expr, ...]
    accesses: tuple[tuple[Access, ...], ...]
    shared: Expr = const(0)
    per_worker: Expr = const(0)
    grid: tuple[Expr, Expr, Expr] | None = None


@dataclass(frozen=True)
class KernelRecord:
    """A kernel's calling contract: its buffers in order, then `num_ints` integers, and the calls that it is made for.
    `gpu` on GPU targets only. `host`: the function of the host program that it calls."""

    name: str
    buffers: tuple[BufferParam, ...]
    num_ints: int
    gpu: GpuKernel | None = None
    calls: tuple[Call, ...] = ()
    host: str | None = None


@dataclass(frozen=True)
class Launch:
    """Call `kernel`; `buffers` are value names.

    On the CPU `shared` and `per_worker` are workspace nbytes. On a CUDA target `grid` is the number of programs
    (without the cluster) in x, y and z, and `maps` feeds the kernel's tensor maps.
    """

    kernel: str
    buffers: tuple[str, ...]
    ints: tuple[Expr, ...]
    shared: Expr = const(0)
    per_worker: Expr = const(0)
    origin: Origin = field(default=Origin(), compare=False)
    grid: tuple[Expr, Expr, Expr] | None = None
    maps: tuple[MapSource, ...] = ()


@dataclass(frozen=True)
class Copy:
    src: str
    dst: str
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True)
class Fill:
    dst: str
    bits: int
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True)
class If:
    cond: str
    then: tuple[Instr, ...]
    orelse: tuple[Instr, ...]
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True)
class While:
    cond_body: tuple[Instr, ...]
    cond: str
    body: tuple[Instr, ...]
    origin: Origin = field(default=Origin(), compare=False)


@dataclass(frozen=True)
class Read:
    """The symbol takes the only element of `src`, an i64. arena_nbytes: those of the arena from here on."""

    sym: Sym
    src: str
    arena_nbytes: Expr
    origin: Origin = field(default=Origin(), compare=False)


Instr = Launch | Copy | Fill | If | While | Read


@dataclass(frozen=True)
class Plan:
    """See docs/plan.md."""

    entry: str
    target: str
    syms: tuple[PlanSym, ...]
    guards: tuple[Guard, ...]
    values: tuple[Value, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kernels: tuple[KernelRecord, ...]
    body: tuple[Instr, ...]
    arena_nbytes: Expr


class _Writer:
    """Numbers expressions and origins while the plan is written."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sym_index = {s.sym: i for i, s in enumerate(plan.syms)}
        self.value_index = {v.name: i for i, v in enumerate(plan.values)}
        self.kernel_index = {k.name: i for i, k in enumerate(plan.kernels)}
        self.exprs: list[list[object]] = []
        self.expr_index: dict[Expr, int] = {}
        self.origins: list[list[object]] = []
        self.origin_index: dict[Origin, int] = {}

    def expr(self, e: Expr) -> int:
        if e not in self.expr_index:
            parts = [self.expr(c) for c in children(e)]
            self.expr_index[e] = len(self.exprs)
            self.exprs.append(self._node(e, parts))
        return self.expr_index[e]

    def _node(self, e: Expr, parts: list[int]) -> list[object]:
        if isinstance(e, Const):
            return ["const", e.value]
        if isinstance(e, Sym):
            return ["sym", self.sym_index[e]]
        if isinstance(e, (FloorDiv, Mod)):
            return ["div" if isinstance(e, FloorDiv) else "mod", *parts]
        names: dict[type[Expr], str] = {Add: "add", Mul: "mul", Min: "min", Max: "max"}
        return [names[type(e)], parts]

    def origin(self, o: Origin) -> int:
        if o not in self.origin_index:
            self.origin_index[o] = len(self.origins)
            self.origins.append([o.file, o.line, o.op, o.module, o.source])
        return self.origin_index[o]

    def exprs_of(self, items: Iterable[Expr]) -> list[int]:
        return [self.expr(e) for e in items]

    def value(self, v: Value) -> dict[str, object]:
        kind, at = v.storage
        return {
            "name": v.name,
            "dtype": v.dtype.value,
            "shape": self.exprs_of(v.shape),
            "strides": self.exprs_of(v.strides),
            "storage": [kind, self.expr(at) if isinstance(at, Expr) else at],
        }

    def instr(self, i: Instr) -> dict[str, object]:
        values = self.value_index
        if isinstance(i, Launch):
            return self.launch(i)
        if isinstance(i, Copy):
            return {"op": "copy", "src": values[i.src], "dst": values[i.dst], "origin": self.origin(i.origin)}
        if isinstance(i, Fill):
            return {"op": "fill", "dst": values[i.dst], "bits": i.bits, "origin": self.origin(i.origin)}
        if isinstance(i, If):
            return {
                "op": "if",
                "cond": values[i.cond],
                "then": [self.instr(x) for x in i.then],
                "else": [self.instr(x) for x in i.orelse],
                "origin": self.origin(i.origin),
            }
        if isinstance(i, Read):
            return {
                "op": "read",
                "sym": self.sym_index[i.sym],
                "src": values[i.src],
                "arena": self.expr(i.arena_nbytes),
                "origin": self.origin(i.origin),
            }
        return {
            "op": "while",
            "cond_body": [self.instr(x) for x in i.cond_body],
            "cond": values[i.cond],
            "body": [self.instr(x) for x in i.body],
            "origin": self.origin(i.origin),
        }

    def launch(self, i: Launch) -> dict[str, object]:
        out: dict[str, object] = {
            "op": "launch",
            "kernel": self.kernel_index[i.kernel],
            "buffers": [self.value_index[b] for b in i.buffers],
            "ints": self.exprs_of(i.ints),
        }
        if i.grid is None:
            out |= {"shared": self.expr(i.shared), "per_worker": self.expr(i.per_worker)}
        else:
            out |= {"grid": self.exprs_of(i.grid), "maps": [self.map_source(m) for m in i.maps]}
        return out | {"origin": self.origin(i.origin)}

    def map_source(self, m: MapSource) -> dict[str, object]:
        return {
            "buffer": m.buffer,
            "offset": self.expr(m.offset),
            "shape": self.exprs_of(m.shape),
            "strides": self.exprs_of(m.strides),
        }

    def document(self) -> dict[str, object]:
        p = self.plan
        out: dict[str, object] = {
            "format": FORMAT,
            "entry": p.entry,
            "target": p.target,
            "syms": [
                {"name": s.sym.name, "lo": s.sym.lo, "hi": s.sym.hi, "input": s.input, "dim": s.dim} for s in p.syms
            ],
            "guards": [
                {"relation": g.relation, "a": self.expr(g.a), "b": self.expr(g.b), "text": g.text} for g in p.guards
            ],
            "values": [self.value(v) for v in p.values],
            "inputs": [self.value_index[n] for n in p.inputs],
            "outputs": [self.value_index[n] for n in p.outputs],
            "kernels": [self.kernel(k) for k in p.kernels],
            "body": [self.instr(i) for i in p.body],
            "arena": self.expr(p.arena_nbytes),
        }
        return out | {"exprs": self.exprs, "origins": self.origins}

    def call(self, c: Call) -> dict[str, object]:
        out: dict[str, object] = {
            "ints": self.exprs_of(c.ints),
            "accesses": [[self.access(a) for a in accesses] for accesses in c.accesses],
        }
        if c.grid is None:
            return out | {"shared": self.expr(c.shared), "per_worker": self.expr(c.per_worker)}
        return out | {"grid": self.exprs_of(c.grid)}

    def access(self, a: Access) -> list[object]:
        kind = "fill" if a.fills else "touch"
        return [kind, self.expr(a.offset), self.exprs_of(a.shape), self.exprs_of(a.strides)]

    def kernel(self, k: KernelRecord) -> dict[str, object]:
        params: list[list[object]] = [["buffer", b.dtype.value, b.access] for b in k.buffers]
        calls = [self.call(c) for c in k.calls]
        out: dict[str, object] = {"name": k.name, "params": params + [["int"]] * k.num_ints, "calls": calls}
        if k.host is not None:
            out["host"] = k.host
        return out if k.gpu is None else out | {"gpu": _gpu_document(k.gpu)}


def _gpu_document(g: GpuKernel) -> dict[str, object]:
    return {
        "member": g.member,
        "function": g.function,
        "threads": g.threads,
        "shared": g.shared_nbytes,
        "cluster": g.cluster,
        "dependent": g.dependent,
        "scratch": g.scratch_nbytes,
        "scratch_align": g.scratch_align,
        "args": [list(a) for a in g.args],
        "maps": [{"block": list(m.block), "swizzle": m.swizzle, "dtype": m.dtype.value} for m in g.maps],
    }


def to_json(plan: Plan) -> bytes:
    """The plan as canonical JSON: the same plan gives the same bytes."""
    return json.dumps(_Writer(plan).document(), sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def to_text(plan: Plan) -> str:
    """A listing for people, one line an instruction."""
    lines = [f"plan {plan.entry} for {plan.target}, arena {expr_text(plan.arena_nbytes)} bytes"]
    for v in plan.values:
        kind, at = v.storage
        place = f"{kind} {expr_text(at) if isinstance(at, Expr) else at}"
        shape, strides = (", ".join(map(expr_text, x)) for x in (v.shape, v.strides))
        lines.append(f"  {v.name}: {v.dtype}[{shape}] strides ({strides}) in {place}")
    lines += _instr_text(plan.body, "  ")
    return "\n".join(lines) + "\n"


def _instr_text(body: Iterable[Instr], indent: str) -> list[str]:
    lines: list[str] = []
    for i in body:
        if isinstance(i, Launch):
            ints = ", ".join(map(expr_text, i.ints))
            grid = "" if i.grid is None else f" over {' x '.join(map(expr_text, i.grid))} programs"
            lines.append(f"{indent}launch {i.kernel}({', '.join(i.buffers)}; {ints}){grid}   # {i.origin}")
        elif isinstance(i, Copy):
            lines.append(f"{indent}copy {i.dst} <- {i.src}   # {i.origin}")
        elif isinstance(i, Fill):
            lines.append(f"{indent}fill {i.dst} with {i.bits:#x}   # {i.origin}")
        elif isinstance(i, Read):
            lines.append(f"{indent}read {i.sym.name} from {i.src}, arena {expr_text(i.arena_nbytes)}   # {i.origin}")
        elif isinstance(i, If):
            lines += [f"{indent}if {i.cond}:", *_instr_text(i.then, indent + "  ")]
            lines += [f"{indent}else:", *_instr_text(i.orelse, indent + "  ")]
        else:
            lines += [f"{indent}while:", *_instr_text(i.cond_body, indent + "  ")]
            lines += [f"{indent}  test {i.cond}", *_instr_text(i.body, indent + "  ")]
    return lines
