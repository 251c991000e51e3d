"""Reads and writes by index: each form of an index, with each value that is written there, in each dtype.

Python's subscripts become slices, selects, gathers, masks and scatters, and torch.export takes each apart in its own
way; the value is broadcast and converted on its way. Each combination is a program, run at sizes from 0 on.
"""

from __future__ import annotations

from dataclasses import replace

from tests.fuzz.cases import case
from tests.fuzz.combinations import combination, in_turn, number_of
from tests.fuzz.families.forms import rows
from tests.fuzz.program import Program

INDICES = rows("""
    0
    -1
    1:
    :-1
    -2:
    ::2
    1::3
    2:2
    None
    ...
    ..., 0
    ..., -1
    ..., None
    ..., 1:3
    None, ..., 1:
    :, 1
    :, 1:4:2
    0, 2
    -1, 1:
    [0, 1]
    [-1, 0]
    [0, 1], [1, 2]
    :, [2, 0]
    p0
    p0, 1
    p0, 1:3
    :, p0
    :, :, None, p0
    p0, p1
    p0[:, None], p1
    p0, :, p0
    :, p1, p0
    p0, p1, p0
    p0, ..., p0
    0, :, p0
    p0, :, 0
    p0, None, p1
    None, p0
    p0, [1]
    p0[0]
    p0[0], p1
    p0[:0]
    torch.tensor(0)
    torch.tensor([1])
    -p0 - 1
    x0 > 0
    x0[:, 0] > 0
    :, p2
    0, p2
    p2.nonzero_static(size=2)[:, 0]
    x0.shape[0] - 1
    x0.shape[0] // 2:
    :x0.shape[0] - 1
    x0.shape[0] // 2, 1:
    torch.arange(x0.shape[0])
    torch.arange(x0.shape[0]), 0
    torch.arange(x0.shape[0] - 1, -1, -1), 1:
""")

VALUES = rows("""
    1
    2.5
    True
    -3
    inf
    v0[{i}] * 2
    v0[{i}].flip(0)
    v0.sum()
    v0.amax()
    torch.tensor(3)
    torch.tensor(2.5)
    torch.tensor([7])
    torch.ones_like(v0[{i}])
    v0[{i}].to(torch.float16)
    v0[{i}].to(torch.float64) / 3
    v0[{i}].long()
    v0[{i}] > 0
    v0[{i}][:1].clone()
    x1[0]
    p1[0]
""")

STATEMENTS = rows("""
    !v0[{i}] = {x}
    !v0[{i}] += {x}
    !v0[{i}] *= {x}
    !v0[{i}].copy_({x})
    !v0[{i}].fill_({x})
    !v0.index_put_(({i},), {x}, accumulate=True)
    !v0.mT[{i}] = {x}
    !v0[1:][{i}] = {x}
    v0[{i}] * {x}
    torch.where(x0 > 0, v0, {x})[{i}]
""")

DTYPES = ("", "f16", "bf16", "f64", "i64", "i32", "u8", "bool")
SHAPES = ("n,5", "n,5,3", "n,5")
KINDS = ("auto", "open", "named", "")
EXAMPLES = (6, 3, 4, 9)
ROWS = (0, 1, 2, 3, 5, 7)

COUNT = number_of(STATEMENTS, VALUES, INDICES)


def index_form(seed: int) -> Program:
    """The program of a seed: COUNT of them, then the same again in another dtype, with another example."""
    turn, (statement, value, index) = combination(seed, STATEMENTS, VALUES, INDICES)
    dtype, shape = in_turn(DTYPES, seed + turn), in_turn(SHAPES, seed // 5 + turn)
    if "index_put_" in statement and not index.startswith(("p", "torch.", "x0 ", "x0[:, 0]")):
        index = "p0"  # it takes tensors alone
    text = statement.replace("{x}", value).replace("{i}", index)
    tensors = f"x0[{shape}]{dtype} x1[2]{dtype} p0[3]i64<3 p1[3]i64<5 p2[5]bool"
    found = case(f"{tensors} : x0.clone(); {text} -> v0{'' if text.startswith('!') else ', v1'}", seed)
    kind = in_turn(KINDS, seed // len(DTYPES) + turn)
    used = " ".join(line.text for line in found.lines)
    return replace(
        found,
        inputs=tuple(i for i in found.inputs if i.name in used),
        weights=tuple(w for w in found.weights if w.name in used),
        sizes=(("n", in_turn(EXAMPLES, seed // 3 + turn)),),
        dynamic=kind,
        rows=tuple((("n", n),) for n in ROWS) if kind else (),
    )
