"""Programs: the text of a module's forward, and what its inputs and weights are made of. Values; nothing is run here.

x0, x1, ... are inputs, k0, k1, ... Python numbers among them, v0, v1, ... values, self.p0 parameters and buffers,
self.m0 modules inside.
"""

from __future__ import annotations

import json
import linecache
import math
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.fuzz.numbers import NumberSpec
from tests.fuzz.tensors import FILLS, Sizes, TensorSpec, in_double
from tests.support.cached_decoders import as_given, stored_as

NAMES = re.compile(r"\b(?:[xvk]\d+|self\.[pm]\d+)\b")
_IN_PLACE = re.compile(r"\.\w*[a-z0-9]_\(")


@dataclass(frozen=True)
class Line:
    """One statement of forward. targets: the names it binds, none for a write in place; family: who drew it."""

    text: str
    targets: tuple[str, ...] = ()
    family: str = ""
    unpacked: bool = False

    @property
    def statement(self) -> str:
        if not self.targets:
            return self.text
        left = ", ".join(self.targets) + ("," if self.unpacked and len(self.targets) == 1 else "")
        return f"{left} = {self.text}"

    def names(self) -> set[str]:
        """What it reads."""
        return set(NAMES.findall(self.text))


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer."""

    spec: TensorSpec
    kind: str

    @property
    def name(self) -> str:
        return f"self.{self.spec.name}"

    def statement(self) -> str:
        made = self.spec.expression({})
        if self.kind == "parameter":
            return f"{self.name} = nn.Parameter({made}, requires_grad=False)"
        return f"{self.name} = nn.Buffer({made})"


@dataclass(frozen=True)
class Inner:
    """A module inside: its constructor's text."""

    name: str
    text: str
    seed: int


@dataclass(frozen=True)
class Program:
    """One module. sizes: each symbol's size in the example; dynamic: "", "named" (Dim("n", max=1024), or twice such a
    one where the example's sizes are even), "open" (Dim("n")) or "auto" (Dim.DYNAMIC). rows: other sizes to be run at;
    those of ways.SIZES if there are none. strict: captured by following Python bytecode (Options.strict). compute: what
    products of f32 take their operands in (Options.compute), however small they are. numbers: inputs behind the
    tensors; packed: "" where each is an argument, "tuple" or "dict" where one argument has them all. cache:
    Options.cache, "" for none; caches: the buffers that are stored as codes then, and no others.
    """

    seed: int
    inputs: tuple[TensorSpec, ...]
    weights: tuple[Weight, ...]
    inners: tuple[Inner, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    dynamic: str = ""
    families: tuple[str, ...] = field(default=(), compare=False)
    rows: tuple[tuple[tuple[str, int], ...], ...] = ()
    strict: bool = False
    compute: str = "f32"
    numbers: tuple[NumberSpec, ...] = ()
    packed: str = ""
    cache: str = ""
    caches: tuple[str, ...] = ()

    def example_sizes(self) -> dict[str, int]:
        return dict(self.sizes)

    def arguments(self, sizes: Sizes | None = None, salt: int = 0) -> tuple[Any, ...]:
        """The arguments of one call, tensors first; the example's sizes if none are given."""
        given = sizes if sizes is not None else self.example_sizes()
        return (*self.tensors(given, salt), *self.in_arguments([k.at(given) for k in self.numbers]))

    def tensors(self, sizes: Sizes, salt: int = 0) -> tuple[torch.Tensor, ...]:
        """Those of a call's arguments that are tensors."""
        return tuple(i.make(sizes, salt) for i in self.inputs)

    def in_arguments(self, found: Sequence[Any]) -> tuple[Any, ...]:
        """What stands for each number as forward's arguments have it."""
        if not self.numbers or not self.packed:
            return tuple(found)
        names = [k.name for k in self.numbers]
        return (tuple(found) if self.packed == "tuple" else dict(zip(names, found, strict=True)),)

    def numbers_text(self, found: Sequence[str]) -> str:
        """The same as Python text, to stand behind the tensors: each argument with a comma behind it."""
        if not self.numbers or not self.packed:
            return "".join(f"{text}, " for text in found)
        if self.packed == "tuple":
            return f"({', '.join(found)},), "
        items = ", ".join(f"{k.name!r}: {text}" for k, text in zip(self.numbers, found, strict=True))
        return f"{{{items}}}, "

    def writes(self) -> bool:
        """True if a buffer may be changed by forward, by itself or through a view."""
        reads = any("self.p" in line.text for line in self.lines)
        return reads and any(not line.targets or _IN_PLACE.search(line.text) for line in self.lines)

    def dynamic_shapes(self) -> tuple[Any, ...] | None:
        """As torch.export takes them; None for a program of fixed sizes."""
        sized = self.dynamic and any(i.symbols() for i in self.inputs)
        if not sized and not any(k.dynamic for k in self.numbers):
            return None
        dims = {s: self.dim(s) for s, _ in self.sizes}
        tensors = ({d: dims[s] for d, s in i.symbols().items()} or None for i in self.inputs)
        numbers = [eval(k.dim_text(), {"torch": torch}) for k in self.numbers]
        return (*tensors, *self.in_arguments(numbers))

    def dim(self, symbol: str) -> Any:
        """How the program declares a dynamic size."""
        return eval(self.dim_text(symbol), {"torch": torch})

    def dim_text(self, symbol: str) -> str:
        if self.dynamic == "auto":
            return "torch.export.Dim.DYNAMIC"
        if self.dynamic == "open":
            return f'torch.export.Dim("{symbol}")'
        even = not self.example_sizes()[symbol] % 2
        return f'2 * torch.export.Dim("half_{symbol}", max=512)' if even else f'torch.export.Dim("{symbol}", max=1024)'


def behind(program: Program, output: int) -> list[Line]:
    """The lines that an output is made of, and those that write in place to what it is made of."""
    wanted, found = {program.outputs[output]}, [False] * len(program.lines)
    while True:
        before = len(wanted)
        for k, line in enumerate(program.lines):
            found[k] = found[k] or bool(wanted & (set(line.targets) or line.names()))
            wanted |= line.names() if found[k] else set()
        if len(wanted) == before:
            return [line for line, k in zip(program.lines, found, strict=True) if k]


def source(program: Program, room: str = "") -> str:
    """The module as Python text, class Model. room: makes the names of its weights differ from other programs'."""
    setup = [w.statement() for w in program.weights]
    for inner in program.inners:
        setup += [f"torch.manual_seed({inner.seed})", f"self.{inner.name} = {inner.text}"]
    arguments = "".join(f", {name}" for name in (*(i.name for i in program.inputs), *_numbers(program)))
    lines = ["class Model(nn.Module):"]
    if setup:
        lines += ["    def __init__(self):", "        super().__init__()", *(f"        {s}" for s in setup), ""]
    lines.append(f"    def forward(self{arguments}):")
    lines += [f"        {statement}" for statement in _unpacking(program)]
    lines += [f"        {line.statement}" for line in program.lines]
    lines.append(f"        return ({', '.join(program.outputs)},)")
    text = "\n".join(lines) + "\n"
    return re.sub(r"\bself\.([pm]\d+)\b", rf"self.\1_{room}", text) if room else text


def _numbers(program: Program) -> tuple[str, ...]:
    """The arguments that are numbers."""
    return ("numbers",) if program.numbers and program.packed else tuple(k.name for k in program.numbers)


def _unpacking(program: Program) -> tuple[str, ...]:
    """Statements that give numbers which are packed their names."""
    if not program.packed:
        return ()
    at = "numbers[{0!r}]" if program.packed == "dict" else "numbers[{1}]"
    return tuple(f"{k.name} = {at.format(k.name, place)}" for place, k in enumerate(program.numbers))


def space(*, plain: bool = True, cache: str = "") -> dict[str, Any]:
    """What a program's text may name. plain: cond and while_loop in plain Python, and what is stored in a cache as
    its codes have it; otherwise torch's, and as it is, to export."""
    names = {"torch": torch, "F": F, "nn": nn, "math": math, "inf": math.inf, "nan": math.nan, **FILLS}
    if plain:
        stored = stored_as(cache) if cache else as_given
        return {**names, "cond": _cond, "while_loop": _while_loop, "stored": stored}
    loop = torch._higher_order_ops.while_loop
    return {**names, "cond": torch.cond, "while_loop": loop, "stored": as_given}


def _cond(condition: torch.Tensor, then: Any, orelse: Any, operands: tuple[torch.Tensor, ...]) -> Any:
    return then(*operands) if bool(condition) else orelse(*operands)


def _while_loop(condition: Any, body: Any, carried: tuple[torch.Tensor, ...]) -> Any:
    while bool(condition(*carried)):
        carried = body(*carried)
    return carried


def build(program: Program, room: str = "", *, plain: bool = False) -> nn.Module:
    """The module, in eval mode and without gradients. plain: to run in eager; otherwise to export.

    Half of all programs are in a file, as far as Python can tell, the others as if typed at a prompt.
    """
    names, text = space(plain=plain, cache=program.cache), source(program, room)
    name = os.path.abspath(f"program_{program.seed}.py") if program.seed % 2 else f"<program {program.seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), names)
    model = names["Model"]()
    assert isinstance(model, nn.Module)
    if plain and program.cache:
        for cache in program.caches:
            buffer = model.get_buffer(f"{cache}_{room}" if room else cache)
            buffer.copy_(names["stored"](buffer))
    return model.eval().requires_grad_(False)


def widened(program: Program) -> Program:
    """The program in float64, on the same numbers."""

    def wide(text: str) -> str:
        return re.sub(r"torch\.(float32|float16|bfloat16)\b", "torch.float64", text).replace(".float()", ".double()")

    return replace(
        program,
        inputs=tuple(map(in_double, program.inputs)),
        weights=tuple(replace(w, spec=in_double(w.spec)) for w in program.weights),
        inners=tuple(replace(i, text=f"({i.text}).double()") for i in program.inners),
        lines=tuple(replace(line, text=wide(line.text)) for line in program.lines),
    )


def without_dead(program: Program) -> Program:
    """The program without lines, inputs and weights that nothing needs. Writes in place all stay."""
    used = {name for out in program.outputs for name in NAMES.findall(out)}
    kept: list[Line] = []
    for line in reversed(program.lines):
        if not line.targets or used & set(line.targets):
            kept.append(line)
            used |= line.names()
    return replace(
        program,
        lines=tuple(reversed(kept)),
        inputs=tuple(i for i in program.inputs if i.name in used),
        weights=tuple(w for w in program.weights if w.name in used),
        inners=tuple(i for i in program.inners if f"self.{i.name}" in used),
        numbers=tuple(k for k in program.numbers if k.name in used),
        caches=tuple(c for c in program.caches if f"self.{c}" in used),
    )


def to_json(program: Program) -> str:
    return json.dumps(asdict(program))


def from_json(text: str) -> Program:
    d = json.loads(text)

    def spec(s: dict[str, Any]) -> TensorSpec:
        return TensorSpec(**{**s, "shape": tuple(s["shape"]), "limits": tuple(s["limits"])})

    def rows(key: str) -> Iterable[dict[str, Any]]:
        found: list[dict[str, Any]] = d[key]
        return found

    return Program(
        seed=d["seed"],
        inputs=tuple(map(spec, rows("inputs"))),
        weights=tuple(Weight(spec(w["spec"]), w["kind"]) for w in rows("weights")),
        inners=tuple(Inner(**i) for i in rows("inners")),
        lines=tuple(Line(**{**line, "targets": tuple(line["targets"])}) for line in rows("lines")),
        outputs=tuple(d["outputs"]),
        sizes=tuple((s, n) for s, n in d["sizes"]),
        dynamic=d["dynamic"],
        families=tuple(d["families"]),
        rows=tuple(tuple((s, n) for s, n in row) for row in d["rows"]),
        strict=d["strict"],
        compute=d["compute"],
        numbers=tuple(NumberSpec(**k) for k in rows("numbers")),
        packed=d["packed"],
        cache=d["cache"],
        caches=tuple(d["caches"]),
    )
