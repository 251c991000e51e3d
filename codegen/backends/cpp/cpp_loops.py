"""Loop kernels as C++: prints a scheduled Kernel that has no template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.backends.cpp.accumulators import Accumulators
from hardtack.codegen.backends.cpp.cpp_body import Body, Place, storage_type
from hardtack.codegen.backends.cpp.cpp_spelling import expr, register_type, symbol
from hardtack.codegen.backends.cpp.next_rows import requests
from hardtack.codegen.ir.expr import ONE, Expr, Sym, bounds, const, int_value, maximum, product
from hardtack.codegen.ir.expr_walk import free_syms
from hardtack.codegen.ir.loops import Axis, Buffer, Check, dtypes, exprs_of, phases
from hardtack.codegen.ir.schedule import Kernel, ScheduledNest
from hardtack.codegen.ir.types import DType
from hardtack.codegen.schedule.cpu_tile import FLAT_BLOCK

INDENT = "  "
BLOCK = 32
"""Values that are added to one accumulator one by one; sums of more are sums of such sums (Cascade in loops.h)."""
FEWEST_LANES = 16
"""Values that four accumulators take at once on the narrowest vectors."""
LANES_BLOCK = BLOCK * FEWEST_LANES
"""Of a row at most this long, no accumulator takes more than BLOCK values."""


def indent(lines: Sequence[str], depth: int = 1) -> list[str]:
    return [INDENT * depth + line for line in lines]


def kernel_syms(kernel: Kernel) -> tuple[Sym, ...]:
    """The graph's symbols that the kernel needs at run time, by name: its integer parameters."""
    found: set[Sym] = set()
    exprs: list[Expr] = [a.extent for a in kernel.outer]
    exprs += [s.numel for s in kernel.storage.values() if s.numel is not None]
    for n in kernel.nests:
        exprs += [a.extent for a in n.nest.axes]
        exprs += [e for s in n.nest.body for e in exprs_of(s)]
    for e in exprs:
        found |= {s for s in free_syms(e) if s.extent is None}
    return tuple(sorted(found, key=lambda s: s.name))


def places_of(kernel: Kernel, buffers: Mapping[str, Buffer]) -> dict[str, Place]:
    """How the kernel's text names each buffer."""
    memory = [b.name for b in kernel.buffers]
    places: dict[str, Place] = {}
    for k, (name, where) in enumerate(kernel.storage.items()):
        t = buffers[name].dtype
        if where.kind == "memory":
            # in a flat kernel a stored value also stays in a register for the nests that read it at the same point
            passed = kernel.flat and name in kernel.writes and name in kernel.reads
            places[name] = Place(t, pointer=f"b{memory.index(name)}", register=f"g{k}" if passed else "")
        elif where.kind == "scratch":
            places[name] = Place(t, pointer=f"t{k}")
        else:
            places[name] = Place(t, register=f"g{k}", uniform=not kernel.flat)
    return places


def scratch_nbytes(kernel: Kernel, buffers: Mapping[str, Buffer]) -> dict[str, Expr]:
    """Bytes of each scratch buffer, rounded up to vectors."""
    out: dict[str, Expr] = {}
    for name, where in kernel.storage.items():
        if where.kind == "scratch":
            assert where.numel is not None
            out[name] = (where.numel * buffers[name].dtype.nbytes + 63) // 64 * 64
    return out


def worker_nbytes(kernel: Kernel, buffers: Mapping[str, Buffer]) -> Expr:
    """Workspace of one worker."""
    total: Expr = const(0)
    for n in scratch_nbytes(kernel, buffers).values():
        total = total + n
    return maximum(total, 0)


def _pointers(kernel: Kernel) -> list[str]:
    """The buffers as C++ variables."""
    lines: list[str] = []
    for k, b in enumerate(kernel.buffers):
        t = storage_type(b.dtype)
        const_ = "" if b.name in kernel.writes else "const "
        lines.append(f"{const_}{t}* __restrict const b{k} = static_cast<{const_}{t}*>(args->buffers[{k}]);")
    return lines


def _sizes(kernel: Kernel) -> list[str]:
    """The integer parameters as C++ variables, and what follows from them."""
    lines = [f"const int64_t {symbol(s)} = args->ints[{k}];" for k, s in enumerate(kernel_syms(kernel))]
    return [*lines, blocks_line(kernel)] if kernel.flat else lines


def empty_checks(kernel: Kernel) -> list[tuple[Expr, Expr]]:
    """(points, size) of each index that is checked against a size that may be 0. Where there are points all of them are
    out of range, and there is not even an element 0 to read: such a kernel fails before it begins."""
    found: dict[tuple[Expr, Expr], None] = {}
    for nest in (*kernel.prologue, *(n.nest for n in kernel.nests)):
        _, _, late = phases(nest)
        for s in nest.body:
            if isinstance(s, Check) and (bounds(s.size)[0] or 0) < 1:
                axes = nest.parallel if s in late else nest.axes
                found[product(a.extent for a in axes), s.size] = None
    return list(found)


def render(kernel: Kernel, buffers: Mapping[str, Buffer], name: str) -> str:
    """The kernel's C++ source; `name` is the function."""
    places = places_of(kernel, buffers)
    inner = _flat_point(kernel, places, buffers) if kernel.flat else _row_point(kernel, places, buffers)
    total, outer = _grid(kernel)
    scratch = _scratch(kernel, places, buffers)
    # The task's own variables stay in registers. Those around it would be read again behind each store, which may be to
    # anywhere.
    loop = [
        *_pointers(kernel),
        *_sizes(kernel),
        *scratch,
        "for (int64_t point = begin; point < end; ++point) {",
        *indent([*_outer_indices(outer, kernel.flat), *inner]),
        "}",
    ]
    if kernel.serial:
        grid = [
            "{",
            *indent([f"const int64_t begin = 0, end = {expr(total)};", "const int32_t worker = 0;", *loop]),
            "}",
        ]
    else:
        head = (
            f"ht::ranges(args, {expr(total)}, {expr(_work(kernel))}, [&](int64_t begin, int64_t end, int32_t worker) {{"
        )
        grid = [head, *indent(loop), "});"]
    lines = [
        '#include "loops.h"',
        "",
        f'extern "C" int32_t {name}(const HtKernelArgs* args) {{',
        *indent(
            [
                *_sizes(kernel),
                "ht::Status status;",
                *(refusal(expr(points), expr(size)) for points, size in empty_checks(kernel)),
                *grid,
                "return status.code;",
            ]
        ),
        "}",
        "",
    ]
    return "\n".join(lines)


def refusal(points: str, size: str) -> str:
    return f"if ({points} > 0 && {size} <= 0) return HT_KERNEL_INDEX_OUT_OF_RANGE;"


def _grid(kernel: Kernel) -> tuple[Expr, tuple[Axis, ...]]:
    """The number of points shared among workers, and the axes they number."""
    axes = kernel.outer[:-1] if kernel.flat else kernel.outer
    total: Expr = ONE
    for a in axes:
        total = total * a.extent
    if kernel.flat:
        total = total * ((kernel.outer[-1].extent + FLAT_BLOCK - 1) // FLAT_BLOCK)
    return total, axes


def _work(kernel: Kernel) -> Expr:
    """Statements executed at one point of the grid."""
    total: Expr = const(0)
    for n in kernel.nests:
        points: Expr = const(len(n.nest.body) * (FLAT_BLOCK if kernel.flat else 1))
        for a in n.nest.axes[len(kernel.outer) :]:
            points = points * a.extent
        total = total + points
    return total


def _scratch(kernel: Kernel, places: Mapping[str, Place], buffers: Mapping[str, Buffer]) -> list[str]:
    sizes = scratch_nbytes(kernel, buffers)
    if not sizes:
        return ["static_cast<void>(worker);"]
    lines = ["char* const scratch = static_cast<char*>(args->worker_workspace) + worker * args->worker_stride;"]
    at: Expr = const(0)
    for name, nbytes in sizes.items():
        t = storage_type(buffers[name].dtype)
        lines.append(f"{t}* const {places[name].pointer} = reinterpret_cast<{t}*>(scratch + {expr(at)});")
        at = at + nbytes
    return lines


def _outer_indices(axes: Sequence[Axis], flat: bool) -> list[str]:
    """The outer axes' variables from the running point."""
    lines: list[str] = []
    rest = "point"
    if flat:
        lines.append("const int64_t row = point / blocks, block = point % blocks;")
        rest = "row"
    for k in range(len(axes) - 1, -1, -1):
        a = axes[k]
        value = rest if k == 0 else f"{rest} % {expr(a.extent)}"
        lines.append(f"const int64_t {a.sym.name} = {value};")
        if k > 0:
            lines.append(f"const int64_t rest{k} = {rest} / {expr(a.extent)};")
            rest = f"rest{k}"
    return lines


def _flat_point(kernel: Kernel, places: Mapping[str, Place], buffers: Mapping[str, Buffer]) -> list[str]:
    vector = kernel.outer[-1]
    inner: list[str] = [f"{register_type(p.dtype)} {p.register};" for p in places.values() if p.register]
    for k, n in enumerate(kernel.nests):
        body = Body(places, dtypes(n.nest.body, buffers), vector.sym, prefix=f"n{k}_")
        for s in n.nest.body:
            body.write(s)
        inner += body.lines
    v, extent = vector.sym.name, expr(vector.extent)
    first, last = f"block * {FLAT_BLOCK}", f"ht::least(block * {FLAT_BLOCK} + {FLAT_BLOCK}, {extent})"
    return [f"ht::lanes({first}, {last}, [&](int64_t {v}, auto cnt) HT_LAMBDA {{", *indent(inner), "});"]


def _row_point(kernel: Kernel, places: Mapping[str, Place], buffers: Mapping[str, Buffer]) -> list[str]:
    lines = [f"{register_type(p.dtype)} {p.register};" for p in places.values() if p.register]
    for k, n in enumerate(kernel.nests):
        lines += ["{", *indent(_nest(n, places, buffers, f"n{k}_", requests(kernel, places, k))), "}"]
    return lines


def _nest(
    n: ScheduledNest, places: Mapping[str, Place], buffers: Mapping[str, Buffer], prefix: str, ahead: Sequence[str]
) -> list[str]:
    """`ahead`: statements for each vector of its loop."""
    inner = _lanes_of_nest(n, places, buffers, prefix, ahead)
    for a in reversed(n.serial):
        inner = _for(a, inner)
    return inner


def _for(axis: Axis, inner: Sequence[str]) -> list[str]:
    s = axis.sym.name
    return [f"for (int64_t {s} = 0; {s} < {expr(axis.extent)}; ++{s}) {{", *indent(inner), "}"]


def _lanes_of_nest(
    n: ScheduledNest, places: Mapping[str, Place], buffers: Mapping[str, Buffer], prefix: str, ahead: Sequence[str]
) -> list[str]:
    types = dtypes(n.nest.body, buffers)
    if n.vector_reduces:
        return _lane_reduction(n, places, types, prefix, ahead)
    vector = n.vector.sym if n.vector is not None else None
    inner = (
        _reduction(n, places, types, prefix, vector) if n.nest.reduced else _straight(n, places, types, prefix, vector)
    )
    if n.vector is None:
        return ["const ht::Part cnt{1};", "static_cast<void>(cnt);", *inner]
    head = f"ht::lanes(0, {expr(n.vector.extent)}, [&](int64_t {n.vector.sym.name}, auto cnt) HT_LAMBDA {{"
    return [head, *indent([*ahead, *inner]), "});"]


def _straight(
    n: ScheduledNest, places: Mapping[str, Place], types: Mapping[str, DType], prefix: str, vector: Sym | None
) -> list[str]:
    body = Body(places, types, vector, prefix=prefix)
    for s in n.nest.body:
        body.write(s)
    return body.lines


def _reduction(
    n: ScheduledNest, places: Mapping[str, Place], types: Mapping[str, DType], prefix: str, vector: Sym | None
) -> list[str]:
    """Lanes are points of a parallel axis (or there are none): each lane reduces for itself."""
    reduces, before, after = phases(n.nest)
    acc = Accumulators(reduces, types)
    body = Body(places, types, vector, prefix=prefix)
    for s in before:
        body.write(s)
    inner = [*body.lines, *acc.update(body, masked=False)]
    looped = _summed(n.reduce, 1, inner, ["sums.push(acc);", f"acc = Acc{acc.starts()};"]) if acc.rounds() else None
    start, end = [f"Acc acc{acc.starts()};"], list[str]()
    if looped is None:
        for a in reversed(n.reduce):
            inner = _for(a, inner)
    else:
        start += [f"auto sums = ht::cascade_of(acc, {acc.join()});", "bool more = false;"]
        inner, end = looped, ["sums.finish(acc);"]
    late = Body(places, types, vector, prefix=prefix)
    for k, r in enumerate(reduces):
        code = f"acc.a{k}.index" if r.kind.startswith("arg") else f"acc.a{k}"
        late.define(r.out, code, r.dtype, vector is None)
    for s in after:
        late.write(s)
    return [*acc.declare(), *start, *inner, *end, *late.lines]


def _summed(axes: Sequence[Axis], terms: int, inner: Sequence[str], push: Sequence[str]) -> list[str] | None:
    """`inner`, which adds `terms` values to each accumulator, looped over `axes`: a block of about BLOCK values is put
    away (`push`) before the next one. None for so few values that they are one block."""
    lines = list(inner)
    for k in range(len(axes) - 1, -1, -1):
        extent = int_value(axes[k].extent)
        if extent is not None and extent * terms <= BLOCK:
            lines, terms = _for(axes[k], lines), terms * extent
            continue
        lines = _in_blocks(axes[k], max(1, BLOCK // max(1, terms)), lines, push)
        for a in reversed(axes[:k]):
            lines = _for(a, lines)
        return lines
    return None


def _in_blocks(axis: Axis, block: int, inner: Sequence[str], push: Sequence[str]) -> list[str]:
    """A loop in runs of `block` points; what runs before have gathered is put away when another one starts."""
    s, extent = axis.sym.name, expr(axis.extent)
    return [
        f"for (int64_t {s}_at = 0; {s}_at < {extent}; {s}_at += {block}) {{",
        *indent(["if (more) {", *indent(push), "}", "more = true;"]),
        *indent([f"for (int64_t {s} = {s}_at; {s} < ht::least({s}_at + {block}, {extent}); ++{s}) {{"]),
        *indent(inner, 2),
        *indent(["}"]),
        "}",
    ]


def _lane_reduction(
    n: ScheduledNest, places: Mapping[str, Place], types: Mapping[str, DType], prefix: str, ahead: Sequence[str]
) -> list[str]:
    """Lanes are points of a reduce axis: four accumulators, then across the lanes."""
    assert n.vector is not None
    reduces, before, after = phases(n.nest)
    acc = Accumulators(reduces, types)
    body = Body(places, types, n.vector.sym, prefix=prefix)
    for s in before:
        body.write(s)
    v, extent = n.vector.sym.name, expr(n.vector.extent)
    point = [*ahead, *body.lines, *acc.update(body, masked=True)]
    starts = ", ".join([acc.starts()] * 4)
    inner, end = _lanes4(v, "0", extent, point), list[str]()
    push = [*acc.merge(), "sums.push(acc[0]);", f"for (Acc& a : acc) a = Acc{acc.starts()};"]
    known, looped = int_value(n.vector.extent), None
    if acc.rounds() and known is not None and known <= LANES_BLOCK:
        looped = _summed(n.reduce, 1 + known // FEWEST_LANES, inner, push)
    elif acc.rounds():
        looped = [
            f"for (int64_t {v}_at = 0; {v}_at < {extent}; {v}_at += {BLOCK} * 4 * ht::W) {{",
            *indent(["if (more) {", *indent(push), "}", "more = true;"]),
            *indent(_lanes4(v, f"{v}_at", f"ht::least({v}_at + {BLOCK} * 4 * ht::W, {extent})", point)),
            "}",
        ]
        for a in reversed(n.reduce):
            looped = _for(a, looped)
    start = [f"Acc acc[4] = {{{starts}}};"]
    if looped is None:
        for a in reversed(n.reduce):
            inner = _for(a, inner)
    else:
        start += [f"auto sums = ht::cascade_of(acc[0], {acc.join()});", "bool more = false;"]
        inner, end = looped, ["sums.finish(acc[0]);"]
    late = Body(places, types, None, prefix=prefix)
    for k, r in enumerate(reduces):
        late.define(r.out, acc.across(r, k), r.dtype, True)
    for s in after:
        late.write(s)
    return [
        *acc.declare(),
        *start,
        *inner,
        *acc.merge(),
        *end,
        "const ht::Part cnt{1};",
        "static_cast<void>(cnt);",
        *late.lines,
    ]


def _lanes4(v: str, begin: str, end: str, point: Sequence[str]) -> list[str]:
    head = f"ht::lanes4({begin}, {end}, acc, [&](int64_t {v}, auto cnt, Acc& acc) HT_LAMBDA {{"
    return [head, *indent(point), "});"]


def blocks_line(kernel: Kernel) -> str:
    """The number of vector blocks of a flat kernel."""
    return f"const int64_t blocks = {expr((kernel.outer[-1].extent + FLAT_BLOCK - 1) // FLAT_BLOCK)};"
