"""Reading a plan: canonical JSON in, RawPlan out (docs/plan.md). Form only; plan_verify.py proves the rest.

A RawPlan keeps the file's own numbering: expressions, values, kernels and origins are indices. Expressions are not
rebuilt as Expr here, because normalising what an attacker wrote can take exponential time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hardtack.codegen.ir.plan import FORMAT
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package import canonical
from hardtack.codegen.package.canonical import Fields, check_int, check_text, kind_of
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.plan_calls import MAX_RANK, RawCall, read_call

_DTYPES = tuple(d.value for d in DType)
_ACCESSES = ("read", "write", "readwrite")
_STORAGES = ("input", "output", "constant", "state", "arena")
_MAX_NESTING = 16
_MAX_DEPTH = 2 * _MAX_NESTING + 8
_LISTS = ("add", "mul", "min", "max")
_GPU_ARGS = {
    "buffer": 1, "int": 2, "status": 0, "site": 0, "scratch": 0, "null": 0, "map": 1, "map_shape": 2, "map_stride": 2,
}  # fmt: skip
"""The kinds of a GPU kernel's parameters and how much follows the kind."""


@dataclass(frozen=True)
class RawSym:
    """`dim` None: the value of the input, a rank-0 i64; `input` None: a `read` binds it."""

    name: str
    lo: int
    hi: int | None
    input: int | None
    dim: int | None


@dataclass(frozen=True)
class RawExpr:
    """`kind` as in docs/plan.md; `args`: the number of a const, the symbol of a sym, else indices of expressions."""

    kind: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class RawGuard:
    relation: str
    a: int
    b: int
    text: str


@dataclass(frozen=True)
class RawValue:
    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    storage: str
    at: int | str


@dataclass(frozen=True)
class RawMap:
    """The fixed part of a tensor map."""

    block: tuple[int, ...]
    swizzle: int
    dtype: DType


@dataclass(frozen=True)
class RawGpu:
    """How a GPU kernel is launched. `args`: (kind, two numbers); of an int the second is its width in bytes."""

    member: str
    function: str
    threads: int
    shared_nbytes: int
    cluster: int
    dependent: bool
    scratch_nbytes: int
    scratch_align: int
    args: tuple[tuple[str, int, int], ...]
    maps: tuple[RawMap, ...]


@dataclass(frozen=True)
class RawKernel:
    """`buffers`: (dtype, access) pairs; `gpu`: None on the CPU; `host`: the function of the host program that it
    calls."""

    name: str
    buffers: tuple[tuple[DType, str], ...]
    num_ints: int
    gpu: RawGpu | None
    calls: tuple[RawCall, ...]
    host: str | None


@dataclass(frozen=True)
class RawMapSource:
    """What a launch gives a tensor map; `buffer` counts the launch's buffers, the rest are expressions."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class RawInstr:
    """One instruction; the fields that its `op` lacks are empty."""

    op: str
    path: str
    origin: int
    kernel: int = -1
    buffers: tuple[int, ...] = ()
    ints: tuple[int, ...] = ()
    shared: int = -1
    per_worker: int = -1
    grid: tuple[int, ...] = ()
    maps: tuple[RawMapSource, ...] = ()
    src: int = -1
    dst: int = -1
    bits: int = 0
    cond: int = -1
    cond_body: tuple[RawInstr, ...] = ()
    body: tuple[RawInstr, ...] = ()
    orelse: tuple[RawInstr, ...] = ()
    sym: int = -1
    arena: int = -1


@dataclass(frozen=True)
class RawOrigin:
    file: str
    line: int
    op: str
    module: str
    source: str


@dataclass(frozen=True)
class RawPlan:
    """See docs/plan.md; `where` names the member, for errors."""

    where: str
    entry: str
    target: str
    syms: tuple[RawSym, ...]
    exprs: tuple[RawExpr, ...]
    guards: tuple[RawGuard, ...]
    values: tuple[RawValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    kernels: tuple[RawKernel, ...]
    body: tuple[RawInstr, ...]
    origins: tuple[RawOrigin, ...]
    arena: int

    def instructions(self) -> Iterator[RawInstr]:
        """All instructions, nested ones after the one that holds them."""
        stack = list(reversed(self.body))
        while stack:
            i = stack.pop()
            yield i
            stack.extend(reversed((*i.cond_body, *i.body, *i.orelse)))


def parse(data: bytes, where: str) -> RawPlan:
    """The plan in `data`. Raises LoadError, placed at `where`, for a wrong form or an index out of range."""
    return _Reader(Fields(canonical.loads(data, where, _MAX_DEPTH), where)).plan()


class _Reader:
    def __init__(self, top: Fields) -> None:
        self.top = top
        self.where = top.where
        self.counts = {
            k: len(top.items(k)) for k in ("syms", "exprs", "values", "kernels", "origins", "inputs", "outputs")
        }

    def plan(self) -> RawPlan:
        top = self.top
        version = top.integer("format")
        if version != FORMAT:
            advice = "export the model again" if version < FORMAT else "update hardtack"
            top.refuse(f"is {version}; this reader knows format {FORMAT}: {advice}", "format")
        plan = RawPlan(
            where=self.where,
            entry=top.text("entry"),
            target=top.text("target"),
            syms=tuple(self._sym(f) for f in top.each("syms")),
            exprs=tuple(self._expr(i, e) for i, e in enumerate(top.items("exprs"))),
            guards=tuple(self._guard(f) for f in top.each("guards")),
            values=tuple(self._value(f) for f in top.each("values")),
            inputs=self._indices(top, "inputs", "values"),
            outputs=self._indices(top, "outputs", "values"),
            kernels=tuple(self._kernel(f) for f in top.each("kernels")),
            body=self._body(top, "body", 0),
            origins=tuple(self._origin(i, o) for i, o in enumerate(top.items("origins"))),
            arena=self._index(top, "arena", "exprs"),
        )
        top.done()
        return plan

    def _index(self, f: Fields, key: str, table: str) -> int:
        return self._check_index(f.raw(key), f.where, f"{f.path}.{key}" if f.path else key, table)

    def _check_index(self, value: object, where: str, path: str, table: str) -> int:
        index = check_int(value, where, path)
        if not 0 <= index < self.counts[table]:
            raise LoadError(f"{path} is {index}; {table} has {self.counts[table]} items", where)
        return index

    def _indices(self, f: Fields, key: str, table: str) -> tuple[int, ...]:
        return f.all(key, lambda v, w, p: self._check_index(v, w, p, table))

    def _sym(self, f: Fields) -> RawSym:
        lo = f.integer("lo", 0)
        hi = f.optional_integer("hi", lo)
        dim = f.optional_integer("dim", 0)
        bound = None if f.raw("input") is None else self._index(f, "input", "inputs")
        sym = RawSym(f.text("name"), lo, hi, bound, dim)
        if bound is None and dim is not None:
            f.refuse("is a dimension of no input", "dim")
        f.done()
        return sym

    def _expr(self, index: int, value: object) -> RawExpr:
        path = f"exprs[{index}]"
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            raise LoadError(f"{path} is {kind_of(value)}, not an expression", self.where)
        kind, rest = value[0], value[1:]
        if kind in ("const", "sym") and len(rest) == 1:
            number = check_int(rest[0], self.where, f"{path}[1]")
            if kind == "sym":
                self._check_index(number, self.where, f"{path}[1]", "syms")
            return RawExpr(kind, (number,))
        if kind in ("div", "mod") and len(rest) == 2:
            parts = rest
        elif kind in _LISTS and len(rest) == 1 and isinstance(rest[0], list) and len(rest[0]) >= 2:
            parts = rest[0]
        else:
            raise LoadError(f"{path} is not an expression: {str(value)[:60]}", self.where)
        args = tuple(check_int(p, self.where, path) for p in parts)
        for arg in args:
            if not 0 <= arg < index:
                raise LoadError(f"{path} uses expression {arg}, which does not come before it", self.where)
        return RawExpr(kind, args)

    def _guard(self, f: Fields) -> RawGuard:
        relation = f.choice("relation", ("eq", "ne", "lt", "le"))
        guard = RawGuard(relation, self._index(f, "a", "exprs"), self._index(f, "b", "exprs"), f.text("text"))
        f.done()
        return guard

    def _value(self, f: Fields) -> RawValue:
        shape, strides = self._indices(f, "shape", "exprs"), self._indices(f, "strides", "exprs")
        if len(shape) != len(strides):
            f.refuse(f"has {len(strides)} strides for {len(shape)} dimensions")
        if len(shape) > MAX_RANK:
            f.refuse(f"has {len(shape)} dimensions; at most {MAX_RANK} are known", "shape")
        storage = f.items("storage")
        if len(storage) != 2 or storage[0] not in _STORAGES:
            f.refuse("is not one of input, output, constant, state and arena with its place", "storage")
        kind, path = str(storage[0]), f"{f.path}.storage[1]"
        if kind in ("constant", "state"):
            at: int | str = check_text(storage[1], self.where, path)
        else:
            at = self._check_index(storage[1], self.where, path, {"arena": "exprs"}.get(kind, kind + "s"))
        value = RawValue(f.text("name"), DType(f.choice("dtype", _DTYPES)), shape, strides, kind, at)
        f.done()
        return value

    def _kernel(self, f: Fields) -> RawKernel:
        buffers: list[tuple[DType, str]] = []
        num_ints = 0
        for i, param in enumerate(f.items("params")):
            if param == ["int"]:
                num_ints += 1
                continue
            if not isinstance(param, list) or len(param) != 3 or param[0] != "buffer":
                f.refuse("is neither a buffer with dtype and access nor an int", f"params[{i}]")
            if param[1] not in _DTYPES or param[2] not in _ACCESSES:
                f.refuse("has an unknown dtype or access", f"params[{i}]")
            if num_ints:
                f.refuse("is a buffer after an int", f"params[{i}]")
            buffers.append((DType(param[1]), param[2]))
        gpu = self._gpu(Fields(f.raw("gpu"), f.where, f"{f.path}.gpu")) if f.has("gpu") else None
        calls = tuple(read_call(c, self._check_expr, len(buffers), num_ints) for c in f.each("calls"))
        if gpu is not None and f.has("host"):
            f.refuse("is of a kernel for a GPU", "host")
        host = f.text("host") if f.has("host") else None
        kernel = RawKernel(f.text("name"), tuple(buffers), num_ints, gpu, calls, host)
        f.done()
        return kernel

    def _check_expr(self, value: object, path: str) -> int:
        return self._check_index(value, self.where, path, "exprs")

    def _gpu(self, f: Fields) -> RawGpu:
        gpu = RawGpu(
            member=f.text("member"),
            function=f.text("function"),
            threads=f.integer("threads", 0),
            shared_nbytes=f.integer("shared", 0),
            cluster=f.integer("cluster", 0),
            dependent=f.boolean("dependent"),
            scratch_nbytes=f.integer("scratch", 0),
            scratch_align=f.integer("scratch_align", 0),
            args=tuple(self._gpu_arg(f, i, a) for i, a in enumerate(f.items("args"))),
            maps=tuple(self._map(m) for m in f.each("maps")),
        )
        f.done()
        return gpu

    def _gpu_arg(self, f: Fields, index: int, value: object) -> tuple[str, int, int]:
        if not isinstance(value, list) or not value or value[0] not in list(_GPU_ARGS):
            f.refuse("is not a parameter of a GPU kernel", f"args[{index}]")
        kind, rest = str(value[0]), list(value[1:])
        if len(rest) != _GPU_ARGS[kind]:
            f.refuse(f"has {len(rest)} items after its kind {kind!r}, not {_GPU_ARGS[kind]}", f"args[{index}]")
        if kind == "int":
            if rest[1] not in ("i32", "i64"):
                f.refuse("is an int of another width than i32 and i64", f"args[{index}]")
            rest[1] = 4 if rest[1] == "i32" else 8
        numbers = [check_int(n, self.where, f"{f.path}.args[{index}]", 0) for n in rest] + [0, 0]
        return kind, numbers[0], numbers[1]

    def _map(self, f: Fields) -> RawMap:
        block = f.all("block", lambda v, w, p: check_int(v, w, p, 1, 256))
        out = RawMap(block, f.integer("swizzle", 0, 3), DType(f.choice("dtype", _DTYPES)))
        f.done()
        return out

    def _body(self, f: Fields, key: str, depth: int) -> tuple[RawInstr, ...]:
        if depth > _MAX_NESTING:
            f.refuse(f"is nested more than {_MAX_NESTING} deep", key)
        return tuple(self._instr(i, depth) for i in f.each(key))

    def _instr(self, f: Fields, depth: int) -> RawInstr:
        op = f.choice("op", ("launch", "copy", "fill", "if", "while", "read"))
        origin = self._index(f, "origin", "origins")
        if op == "launch":
            instr = self._launch(f, origin)
        elif op == "copy":
            instr = RawInstr(
                op, f.path, origin, src=self._index(f, "src", "values"), dst=self._index(f, "dst", "values")
            )
        elif op == "fill":
            instr = RawInstr(op, f.path, origin, dst=self._index(f, "dst", "values"), bits=f.integer("bits"))
        elif op == "read":
            sym, arena = self._index(f, "sym", "syms"), self._index(f, "arena", "exprs")
            instr = RawInstr(op, f.path, origin, src=self._index(f, "src", "values"), sym=sym, arena=arena)
        else:
            instr = self._structured(f, op, origin, depth)
        f.done()
        return instr

    def _launch(self, f: Fields, origin: int) -> RawInstr:
        """A launch on the CPU has workspaces, one on a GPU a grid and sources of tensor maps."""
        on_gpu = f.has("grid")
        instr = RawInstr(
            "launch",
            f.path,
            origin,
            kernel=self._index(f, "kernel", "kernels"),
            buffers=self._indices(f, "buffers", "values"),
            ints=self._indices(f, "ints", "exprs"),
            shared=-1 if on_gpu else self._index(f, "shared", "exprs"),
            per_worker=-1 if on_gpu else self._index(f, "per_worker", "exprs"),
            grid=self._indices(f, "grid", "exprs") if on_gpu else (),
            maps=tuple(self._map_source(m) for m in f.each("maps")) if on_gpu else (),
        )
        if on_gpu and len(instr.grid) != 3:
            f.refuse(f"has {len(instr.grid)} extents, not 3", "grid")
        return instr

    def _map_source(self, f: Fields) -> RawMapSource:
        source = RawMapSource(
            f.integer("buffer", 0),
            self._index(f, "offset", "exprs"),
            self._indices(f, "shape", "exprs"),
            self._indices(f, "strides", "exprs"),
        )
        f.done()
        return source

    def _structured(self, f: Fields, op: str, origin: int, depth: int) -> RawInstr:
        cond = self._index(f, "cond", "values")
        if op == "if":
            then, orelse = self._body(f, "then", depth + 1), self._body(f, "else", depth + 1)
            return RawInstr(op, f.path, origin, cond=cond, body=then, orelse=orelse)
        cond_body, body = self._body(f, "cond_body", depth + 1), self._body(f, "body", depth + 1)
        return RawInstr(op, f.path, origin, cond=cond, cond_body=cond_body, body=body)

    def _origin(self, index: int, value: object) -> RawOrigin:
        path = f"origins[{index}]"
        if not isinstance(value, list) or len(value) != 5:
            raise LoadError(f"{path} is not [file, line, op, module, source]", self.where)
        texts = [check_text(value[i], self.where, f"{path}[{i}]") for i in (0, 2, 3, 4)]
        return RawOrigin(texts[0], check_int(value[1], self.where, f"{path}[1]"), *texts[1:])
