"""Small programs in one line of text, for rules that are tried one at a time.

    x0[5,8] p0[16,8] : F.linear(x0, p0); v0.relu()

Tensors first, inputs x and weights p, sizes or symbols in brackets, then a dtype where it is not float32 (f16 bf16 f64
i64 i32 u8 bool) and `<n` for integers below n; `k0=3` is a dynamic int that is 3 in the example. Then statements: v0,
v1, ... are their values; one that begins with `!` binds none. The last value is the result, or what stands behind `->`.
"""

from __future__ import annotations

import re

from tests.fuzz.draw import SYMBOLS
from tests.fuzz.numbers import NumberSpec
from tests.fuzz.program import Line, Program, Weight
from tests.fuzz.tensors import TensorSpec

_DTYPES = {"": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i64": "int64", "i32": "int32"}
_DTYPES |= {"u8": "uint8", "i8": "int8", "bool": "bool"}
_NUMBER = re.compile(r"\b(k\d+)=(\d+)")
_TENSOR = re.compile(r"([xp]\d+)\[([^\]]*)\](\w*)(?:<(\d+))?")


def case(text: str, seed: int = 0) -> Program:
    """The program that a line describes."""
    head, _, body = text.partition(" : ")
    tensors = [_tensor(found, seed + k) for k, found in enumerate(_TENSOR.finditer(head))]
    body, _, outputs = body.partition(" -> ")
    lines: list[Line] = []
    for statement in (s.strip() for s in body.split(";")):
        if statement.startswith("!"):
            lines.append(Line(_with_self(statement[1:].strip())))
        else:
            bound = sum(len(line.targets) for line in lines)
            lines.append(Line(_with_self(statement), (f"v{bound}",)))
    results = (
        [o.strip() for o in outputs.split(",")] if outputs else [line.targets[0] for line in lines if line.targets][-1:]
    )
    symbols = {s for t in tensors for s in t.symbols().values()}
    return Program(
        seed,
        tuple(t for t in tensors if t.name.startswith("x")),
        tuple(Weight(t, "buffer") for t in tensors if t.name.startswith("p")),
        (),
        tuple(lines),
        tuple(map(_with_self, results)),
        tuple((s, n) for s, n in SYMBOLS.items() if s in symbols),
        "auto" if symbols else "",
        numbers=tuple(NumberSpec(name, int(value), "open") for name, value in _NUMBER.findall(head)),
    )


def cases(text: str, first_seed: int = 0) -> tuple[Program, ...]:
    """One program for each line."""
    rows = [row.strip() for row in text.strip().splitlines()]
    return tuple(case(row, first_seed + 10 * k) for k, row in enumerate(r for r in rows if r))


def _tensor(found: re.Match[str], seed: int) -> TensorSpec:
    sizes = tuple(s if s in SYMBOLS else int(s) for s in found[2].split(",") if s)
    limits = (0, int(found[4])) if found[4] else ()
    return TensorSpec(found[1], sizes, _DTYPES[found[3]], "index" if limits else "normal", seed + 1, limits=limits)


def _with_self(text: str) -> str:
    return re.sub(r"(?<![\w.])(p\d+)\b", r"self.\1", text)
