"""Several loop kernels as one launch: each is a function, and the number of a program says which one it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hardtack.codegen.backend import NAME
from hardtack.codegen.backends.triton.kernel import Argument, TritonKernel
from hardtack.codegen.backends.triton.triton_loops import indent, render
from hardtack.codegen.ir.expr import Expr, const, int_value
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.tiles import SharedLaunch

_HEAD = f"@triton.jit\ndef {NAME}("


def render_siblings(launch: SharedLaunch, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """The Triton source and launch of kernels that need nothing from each other."""
    parts = [render(t, buffers, part=True) for t in launch.parts]
    memory = tuple(dict.fromkeys(b for p in parts for b in p.buffers))
    shared = _arguments(parts, memory)
    ints: list[Expr] = list(dict.fromkeys(e for p in parts for e in p.ints))
    functions: dict[str, str] = {}
    lines = ["program = tl.program_id(0)"]
    limits: list[Argument] = []
    before: Expr = const(0)
    start = "0"
    for k, p in enumerate(parts):
        function = functions.setdefault(p.text, f"part{len(functions)}")
        call = f"{function}({', '.join([_less(start), *_given(p, memory)])})"
        before = before + p.grid[0]
        if k == len(parts) - 1:
            lines += ["else:", *indent([call])]
            break
        value = int_value(before)
        start = str(value) if value is not None else f"end{k}"
        if value is None:
            limits.append(Argument(start, "i32", ("int", len(ints))))
            ints = [*ints, before]
        lines += [f"{'if' if k == 0 else 'elif'} program < {start}:", *indent([call])]
    arguments = [*(a for a in shared if a.role[0] in ("buffer", "int")), *limits]
    arguments += [a for a in shared if a.role[0] in ("status", "site")]
    head = [f"{_HEAD}{', '.join(a.name for a in arguments)}):", *indent(lines), ""]
    body = "\n\n".join([*(text.replace(NAME, n, 1) for text, n in functions.items()), "\n".join(head)])
    return TritonKernel(
        launch.name,
        body,
        tuple(arguments),
        {},
        memory,
        frozenset().union(*(p.writes for p in parts)),
        frozenset().union(*(p.reads for p in parts)),
        tuple(ints),
        (before, const(1), const(1)),
        _reporting(parts).origin,
        num_warps=max(p.num_warps for p in parts),
    )


def _reporting(parts: Sequence[TritonKernel]) -> TritonKernel:
    """The part whose line an error names: the first that checks something."""
    return next((p for p in parts if any(a.role == ("status",) for a in p.arguments)), parts[0])


def _arguments(parts: Sequence[TritonKernel], memory: Sequence[str]) -> list[Argument]:
    """The parameters of all parts, each once: buffers in the order of `memory`, symbols by name."""
    ints = list(dict.fromkeys(e for p in parts for e in p.ints))
    found: dict[str, Argument] = {}
    for p in parts:
        for a in p.arguments:
            if a.role[0] == "buffer":
                k = memory.index(p.buffers[int(str(a.role[1]))])
                found[f"b{k}"] = Argument(f"b{k}", a.type, ("buffer", k), a.divisible)
            elif a.role[0] == "int":
                found[a.name] = Argument(a.name, a.type, ("int", ints.index(p.ints[int(str(a.role[1]))])), a.divisible)
            else:
                found[a.name] = a
    order = {"buffer": 0, "int": 1, "status": 2, "site": 3}
    return sorted(found.values(), key=lambda a: (order[str(a.role[0])], *a.role[1:]))


def _given(p: TritonKernel, memory: Sequence[str]) -> list[str]:
    """What the launch gives a part for its parameters."""
    named = (
        f"b{memory.index(p.buffers[int(str(a.role[1]))])}" if a.role[0] == "buffer" else a.name for a in p.arguments
    )
    return [*named, *(f"{n}={value}" for n, value in p.constexprs.items())]


def _less(start: str) -> str:
    return "program" if start == "0" else f"program - {start}"
