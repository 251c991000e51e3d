"""Proof that a plan is sound: docs/plan.md, "What is proved at load". The planner is not trusted.

What depends on a symbol without an upper bound is left to the runtime, which proves it when a session binds a shape;
here an expression is refused only when no sizes within the symbols' bounds could make it good.
"""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.canonical import INT64_MAX, INT64_MIN
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.manifest import (
    READS_SINCE,
    Dim,
    EntrySpec,
    Manifest,
    StateSpec,
    TensorSpec,
    row_major_problem,
)
from hardtack.codegen.package.plan_access import check_accesses
from hardtack.codegen.package.plan_flow import check_arena, check_flow
from hardtack.codegen.package.plan_gpu import check_gpu
from hardtack.codegen.package.plan_read import RawExpr, RawPlan, RawValue
from hardtack.codegen.package.plan_reads import arena_of_values, check_reads
from hardtack.codegen.package.weights import numel_of

MAX_NBYTES = 2**48
ARENA_ALIGNMENT = 64
Range = tuple[int | None, int | None]
"""Inclusive bounds; None: unbounded."""


@dataclass(frozen=True)
class Proof:
    """What is known of a plan's expressions: `ranges`, one an expression; `fixed`: those that no symbol is in."""

    plan: RawPlan
    ranges: tuple[Range, ...]
    fixed: tuple[bool, ...]

    def constant(self, e: int) -> int | None:
        """The value of an expression that no symbol is in; the runtime, too, counts no other as a number."""
        return self.ranges[e][0] if self.fixed[e] else None

    def constants(self, es: tuple[int, ...]) -> tuple[int, ...] | None:
        """The values of all of them, or None where one depends on the symbols."""
        out = [self.constant(e) for e in es]
        return None if None in out else tuple(x for x in out if x is not None)

    def nbytes(self, v: int) -> int | None:
        """The size of a value in bytes, where it is known at load."""
        value = self.plan.values[v]
        shape, strides = self.constants(value.shape), self.constants(value.strides)
        if shape is None or strides is None:
            return None
        if 0 in shape:
            return 0
        return (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * value.dtype.nbytes

    def refuse(self, problem: str) -> LoadError:
        return LoadError(problem, self.plan.where)


def verify(plan: RawPlan, manifest: Manifest, entry: EntrySpec, target: str) -> Proof:
    """Proves `plan` sound as the plan of `entry` for `target`. Raises LoadError."""
    proof = Proof(plan, tuple(_ranges(plan)), _fixed(plan))
    for what, found, wanted in (("entry", plan.entry, entry.name), ("target", plan.target, target)):
        if found != wanted:
            raise proof.refuse(f"{what} is {found!r}; the manifest says {wanted!r}")
    _check_names(proof)
    _check_syms(proof, entry)
    _check_read_format(proof, manifest)
    read_only = frozenset(n for n, v in enumerate(plan.values) if _is_read_only(v, entry))
    _check_values(proof, read_only)
    _check_contract(proof, entry)
    _check_dtypes(proof, manifest)
    _check_host_kernels(proof, manifest)
    _check_stored(proof, manifest)
    _check_instructions(proof)
    _check_places(proof)
    device = {t.name: t.device for t in manifest.targets}[target]
    members = {m.name for m in manifest.members}
    check_gpu(plan, device, members, proof.ranges, proof.constant, proof.nbytes)
    check_flow(plan, read_only)
    check_reads(plan)
    check_accesses(plan, proof.nbytes, proof.constant)
    check_arena(plan, proof.nbytes, proof.constant)
    return proof


def _ranges(plan: RawPlan) -> list[Range]:
    """Bounds of every expression. Raises LoadError where every value overflows or divides by less than 1."""
    out: list[Range] = []
    for index, e in enumerate(plan.exprs):
        lo, hi = _range(plan, e, out)
        if (lo is not None and lo > INT64_MAX) or (hi is not None and hi < INT64_MIN):
            raise LoadError(f"exprs[{index}] ({e.kind}) does not fit in 64 bits", plan.where)
        if e.kind in ("div", "mod"):
            top = out[e.args[1]][1]
            if top is not None and top < 1:
                raise LoadError(f"exprs[{index}] ({e.kind}) has the divisor {top}; it must be at least 1", plan.where)
        out.append((lo, hi))
    return out


def _fixed(plan: RawPlan) -> tuple[bool, ...]:
    out: list[bool] = []
    for e in plan.exprs:
        out.append(e.kind != "sym" and (e.kind == "const" or all(out[a] for a in e.args)))
    return tuple(out)


def _range(plan: RawPlan, e: RawExpr, known: list[Range]) -> Range:
    if e.kind == "const":
        return e.args[0], e.args[0]
    if e.kind == "sym":
        s = plan.syms[e.args[0]]
        return s.lo, s.hi
    parts = [known[a] for a in e.args]
    if e.kind == "add":
        los, his = [p[0] for p in parts], [p[1] for p in parts]
        lo = None if None in los else sum(x for x in los if x is not None)
        return lo, (None if None in his else sum(x for x in his if x is not None))
    if e.kind == "mul":
        out = parts[0]
        for p in parts[1:]:
            out = _product(out, p)
        return out
    if e.kind == "div":
        return _quotient(parts[0], parts[1])
    if e.kind == "mod":
        top = parts[1][1]
        if parts[0][0] == parts[0][1] is not None and parts[1][0] == parts[1][1] is not None:
            exact = parts[0][0] % max(1, parts[1][0])  # type: ignore[operator,type-var]
            return exact, exact
        return 0, None if top is None else max(0, top - 1)
    return _extreme(e.kind == "min", parts)


def _product(a: Range, b: Range) -> Range:
    corners: list[int] = []
    unbounded_low = unbounded_high = False
    for x, y, x_low, y_low in ((a[0], b[0], 1, 1), (a[0], b[1], 1, 0), (a[1], b[0], 0, 1), (a[1], b[1], 0, 0)):
        if x is not None and y is not None:
            corners.append(x * y)
            continue
        if 0 in (x, y):
            corners.append(0)
            continue
        # one end is infinite: the sign of the product says which way it runs
        sign = _sign(x, x_low) * _sign(y, y_low)
        unbounded_low |= sign < 0
        unbounded_high |= sign > 0
    lo = None if unbounded_low or not corners else min(corners)
    return lo, (None if unbounded_high or not corners else max(corners))


def _sign(end: int | None, is_low: int) -> int:
    if end is None:
        return -1 if is_low else 1
    return (end > 0) - (end < 0)


def _quotient(a: Range, b: Range) -> Range:
    """Bounds of a // b over the b that are at least 1."""
    b_lo = max(1, b[0] or 1)
    b_hi = None if b[1] is None else max(b_lo, b[1])
    lo = None if a[0] is None else (a[0] // b_lo if a[0] < 0 else 0 if b_hi is None else a[0] // b_hi)
    hi = None if a[1] is None else (a[1] // b_lo if a[1] >= 0 else -1 if b_hi is None else a[1] // b_hi)
    return lo, hi


def _extreme(is_min: bool, parts: list[Range]) -> Range:
    los, his = [p[0] for p in parts], [p[1] for p in parts]
    known_lo, known_hi = [x for x in los if x is not None], [x for x in his if x is not None]
    if is_min:
        return (min(known_lo) if len(known_lo) == len(los) else None), min(known_hi, default=None)
    return max(known_lo, default=None), (max(known_hi) if len(known_hi) == len(his) else None)


def _check_names(p: Proof) -> None:
    for what, names in (
        ("values", [v.name for v in p.plan.values]),
        ("kernels", [k.name for k in p.plan.kernels]),
        ("symbols", [s.name for s in p.plan.syms]),
    ):
        seen: set[str] = set()
        for name in names:
            if name in seen:
                raise p.refuse(f"two {what} are named {name!r}")
            seen.add(name)


def _check_syms(p: Proof, entry: EntrySpec) -> None:
    """Each symbol is one of the manifest's and is bound where a size can be read."""
    listed = [(s.name, s.lo, s.hi) for s in entry.syms]
    found = [(s.name, s.lo, s.hi) for s in p.plan.syms]
    if found != listed:
        raise p.refuse(f"its symbols {found} are not the manifest's {listed}")
    for number, s in enumerate(p.plan.syms):
        if s.input is None:
            continue
        value = p.plan.values[p.plan.inputs[s.input]]
        if s.dim is None and (value.shape or value.dtype is not DType.I64):
            raise p.refuse(f"symbol {s.name!r} is the value of input {s.input}, which is not a rank-0 i64")
        if s.dim is not None and s.dim >= len(value.shape):
            raise p.refuse(f"symbol {s.name!r} is dimension {s.dim} of input {s.input}, which has {len(value.shape)}")
        if s.dim is not None and p.plan.exprs[value.shape[s.dim]] != RawExpr("sym", (number,)):
            raise p.refuse(f"symbol {s.name!r} does not stand alone as dimension {s.dim} of input {s.input}")


def _check_read_format(p: Proof, manifest: Manifest) -> None:
    for s in p.plan.syms:
        if s.input is None and manifest.format < READS_SINCE:
            came = f"which came with format {READS_SINCE}; the manifest's is {manifest.format}"
            raise p.refuse(f"symbol {s.name!r} is read during a run, {came}")


def _is_read_only(value: RawValue, entry: EntrySpec) -> bool:
    """Whether no instruction may write to it."""
    if value.storage != "input" or not isinstance(value.at, int):
        return value.storage == "constant"
    return not (value.at < len(entry.inputs) and entry.inputs[value.at].written)


def _check_values(p: Proof, read_only: frozenset[int]) -> None:
    for number in p.plan.outputs:
        v = p.plan.values[number]
        shape, strides = ([p.constant(e) for e in dims] for dims in (v.shape, v.strides))
        if problem := row_major_problem(f"output {v.name!r}", shape, strides):
            raise p.refuse(problem)
    for index, v in enumerate(p.plan.values):
        for e in (*v.shape, *v.strides):
            lo, hi = p.ranges[e]
            if (hi is not None and hi < 0) or (lo is not None and lo >= MAX_NBYTES):
                raise p.refuse(f"value {v.name!r} has a size or stride of {hi if hi is not None and hi < 0 else lo}")
        nbytes = p.nbytes(index)
        if nbytes is not None and not 0 <= nbytes < MAX_NBYTES:
            raise p.refuse(f"value {v.name!r} has {nbytes} bytes; the limit is {MAX_NBYTES - 1}")
        if nbytes is not None and index not in read_only:
            elements = numel_of(p.constants(v.shape) or ()) * v.dtype.nbytes
            if elements != nbytes:
                raise p.refuse(f"value {v.name!r} has elements of {elements} bytes; its strides reach over {nbytes}")
    for e in (p.plan.arena, *(i.arena for i in p.plan.body if i.op == "read")):
        _check_nbytes(p, "the arena", e)


def _check_places(p: Proof) -> None:
    """Values lie in the arena as large as it is where they are first written."""
    arenas = arena_of_values(p.plan)
    for index, v in enumerate(p.plan.values):
        if v.storage == "arena":
            _check_placed(p, v, p.nbytes(index), arenas.get(index, p.plan.arena))


def _check_placed(p: Proof, v: RawValue, nbytes: int | None, arena_nbytes: int) -> None:
    assert isinstance(v.at, int)
    offset, arena = p.constant(v.at), p.constant(arena_nbytes)
    if offset is not None and (offset < 0 or offset % ARENA_ALIGNMENT):
        raise p.refuse(f"value {v.name!r} lies at byte {offset} of the arena, not at a multiple of {ARENA_ALIGNMENT}")
    if offset is not None and arena is not None and nbytes is not None and offset + nbytes > arena:
        raise p.refuse(f"value {v.name!r} ends at byte {offset + nbytes} of the arena, which has {arena}")


def _check_nbytes(p: Proof, what: str, e: int) -> None:
    lo, hi = p.ranges[e]
    if (hi is not None and hi < 0) or (lo is not None and lo >= MAX_NBYTES):
        raise p.refuse(f"{what} has {hi if hi is not None and hi < 0 else lo} bytes; the limit is {MAX_NBYTES - 1}")


def _check_contract(p: Proof, entry: EntrySpec) -> None:
    """Inputs and outputs are those of the manifest, each once."""
    for kind, listed, specs in (("input", p.plan.inputs, entry.inputs), ("output", p.plan.outputs, entry.outputs)):
        if len(listed) != len(specs):
            raise p.refuse(f"it has {len(listed)} {kind}s; the manifest lists {len(specs)}")
        for i, (v, spec) in enumerate(zip(listed, specs, strict=True)):
            value = p.plan.values[v]
            if (value.storage, value.at) != (kind, i):
                raise p.refuse(f"{kind} {i} is value {value.name!r}, whose storage is not [{kind!r}, {i}]")
            if kind == "input" and value.name != spec.name:
                raise p.refuse(f"input {i} is named {value.name!r}; the manifest says {spec.name!r}")
            _check_same(p, f"{kind} {spec.name!r}", value, spec.stored())
        owners = [v.name for v in p.plan.values if v.storage == kind]
        if len(owners) != len(listed):
            raise p.refuse(f"{len(owners)} values are stored in the {len(listed)} {kind}s")


def _check_same(p: Proof, what: str, value: RawValue, spec: TensorSpec) -> None:
    if value.dtype is not spec.dtype:
        raise p.refuse(f"{what} is {value.dtype}; the manifest says {spec.dtype}")
    if len(value.shape) != len(spec.shape):
        raise p.refuse(f"{what} has {len(value.shape)} dimensions; the manifest says {len(spec.shape)}")
    for kind, mine, theirs in (("size", value.shape, spec.shape), ("stride", value.strides, spec.strides)):
        for d, (e, dim) in enumerate(zip(mine, theirs, strict=True)):
            if not _agrees(p, e, dim):
                raise p.refuse(f"{what} has the {kind} {text(p.plan, e)} in dimension {d}; the manifest says {dim}")


def _agrees(p: Proof, e: int, dim: Dim) -> bool:
    """Constants are equal, a symbol is that symbol; longer texts need only be no constant."""
    node = p.plan.exprs[e]
    if isinstance(dim, int):
        return p.ranges[e] == (dim, dim)
    if node.kind == "sym":
        return p.plan.syms[node.args[0]].name == dim
    return node.kind != "const"


def _check_host_kernels(p: Proof, manifest: Manifest) -> None:
    """A plan calls nothing of the host program that the manifest does not say."""
    named = {k.function for k in manifest.user_kernels if k.host}
    for k in p.plan.kernels:
        if k.host is not None and k.host not in named:
            raise p.refuse(f"kernel {k.name!r} calls the host's function {k.host!r}, which the manifest does not name")


def _check_dtypes(p: Proof, manifest: Manifest) -> None:
    """Each element type is one of the format that the manifest names."""
    for v in p.plan.values:
        if v.dtype.since > manifest.format:
            came = f"which came with format {v.dtype.since}; the manifest's is {manifest.format}"
            raise p.refuse(f"value {v.name!r} is {v.dtype}, {came}")


def _check_stored(p: Proof, manifest: Manifest) -> None:
    """Constants and states are those of the manifest: dtype and numel of the one, dtype and shape of the other."""
    constants, states = manifest.constants_by_name, manifest.states_by_name
    for index, v in enumerate(p.plan.values):
        if v.storage not in ("constant", "state"):
            continue
        spec = (constants if v.storage == "constant" else states).get(str(v.at))
        if spec is None:
            raise p.refuse(f"value {v.name!r} is stored in {v.storage} {v.at!r}, which the manifest lacks")
        if isinstance(spec, StateSpec):
            spec = spec.stored()
        shape, strides = p.constants(v.shape), p.constants(v.strides)
        if shape is None or strides is None:
            raise p.refuse(f"value {v.name!r} is stored in a {v.storage}, but its shape depends on the inputs")
        same = shape == spec.shape if isinstance(spec, StateSpec) else numel_of(shape) == numel_of(spec.shape)
        if v.dtype is not spec.dtype or not same:
            raise p.refuse(
                f"value {v.name!r} is {v.dtype}{list(shape)}; {v.storage} {v.at!r} is {spec.dtype}{list(spec.shape)}"
            )
        nbytes = p.nbytes(index)
        if nbytes is not None and nbytes > numel_of(spec.shape) * spec.dtype.nbytes:
            raise p.refuse(f"value {v.name!r} has strides that leave its {v.storage}")


def _check_instructions(p: Proof) -> None:
    """Arguments match parameters in number and dtype, copies keep shape and dtype, conditions are one bool."""
    for i in p.plan.instructions():
        if i.op == "launch":
            kernel = p.plan.kernels[i.kernel]
            if (len(i.buffers), len(i.ints)) != (len(kernel.buffers), kernel.num_ints):
                raise p.refuse(
                    f"{i.path}: {len(i.buffers)} buffers and {len(i.ints)} ints for kernel {kernel.name!r}, "
                    f"which takes {len(kernel.buffers)} and {kernel.num_ints}"
                )
            for n, (v, (dtype, _)) in enumerate(zip(i.buffers, kernel.buffers, strict=True)):
                if p.plan.values[v].dtype is not dtype:
                    found = p.plan.values[v].dtype
                    raise p.refuse(f"{i.path}: buffer {n} of kernel {kernel.name!r} is {found}; it takes {dtype}")
            if not i.grid:
                _check_nbytes(p, f"{i.path}: the shared workspace", i.shared)
                _check_nbytes(p, f"{i.path}: the workspace of a worker", i.per_worker)
        elif i.op == "copy":
            src, dst = p.plan.values[i.src], p.plan.values[i.dst]
            if (src.dtype, src.shape, src.strides) != (dst.dtype, dst.shape, dst.strides):
                raise p.refuse(f"{i.path}: {src.name!r} and {dst.name!r} differ in dtype, shape or strides")
        elif i.op == "read":
            src = p.plan.values[i.src]
            sizes = p.constants(src.shape)
            if src.dtype is not DType.I64 or sizes is None or numel_of(sizes) != 1:
                raise p.refuse(f"{i.path}: the size {src.name!r} is not one i64")
        elif i.op in ("if", "while"):
            cond = p.plan.values[i.cond]
            sizes = p.constants(cond.shape)
            if cond.dtype is not DType.BOOL or sizes is None or numel_of(sizes) != 1:
                raise p.refuse(f"{i.path}: the condition {cond.name!r} is not one bool")


def text(plan: RawPlan, e: int, limit: int = 80) -> str:
    """An expression for people; parts that would be longer than `limit` are written as e12."""
    node = plan.exprs[e]
    if node.kind == "const":
        return str(node.args[0])
    if node.kind == "sym":
        return plan.syms[node.args[0]].name
    if limit < 8:
        return f"e{e}"
    parts = [text(plan, a, (limit - 4) // len(node.args)) for a in node.args]
    if node.kind in ("min", "max"):
        return f"{node.kind}({', '.join(parts)})"
    sign = {"add": " + ", "mul": "*", "div": "//", "mod": "%"}[node.kind]
    return sign.join(part if node.kind == "add" or part.isalnum() else f"({part})" for part in parts)
