"""Products of few rows with codes as Triton kernels: the templates gemm_code_*.triton with their holes filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div, masks, row_lines, scaled, split_range
from hardtack.codegen.backends.triton.triton_spelling import FLOAT8, MEMORY, rounded
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.backends.triton.waits import WAIT_HERE
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import HALF, DType
from hardtack.codegen.lower.gpu_code_rows import TableStep
from hardtack.codegen.lower.gpu_quantized import CodeGemm, CodeRow, CodeTile
from hardtack.codegen.tune.code_plan import WORD_BITS

_SIGNS = {"sub": "-", "mul": "*", "add": "+"}


@renders(CodeRow)
def render_code_row(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [1, K], codes in rows of bytes, and the tables of its steps; see lower/gpu_quantized.py."""
    anchor, gemm = anchored(kernel, CodeRow)
    plan, sketch = gemm.plan, Sketch(kernel, buffers)
    (batch, _, n), a = (x.extent for x in kernel.outer), anchor.operands[0]
    k = int_value(a.shape[-1]) or 0
    per_word = WORD_BITS // gemm.bits
    even = int_value(n % plan.block_n) == 0
    dtype = anchor.operands[1].dtype
    inner, outer = _by_place(_tables(gemm, sketch), k)
    sums = _names(gemm, dtype)
    held = ["acc"] if inner else sums
    shifts = any(t.step.kind != "mul" for t in outer)
    inside = f"word[None, :] < end // {per_word}"  # a product on its left would be compared word by word
    codes = f"codes_next = tl.load(words + word[None, :]{_mask(inside, even)})"
    following = [codes, *(t.load(plan.block_k, per_word, even) for t in inner)]
    lines, row = row_lines(sketch, a, plan.block_k)
    steps = _after_steps(inner, sums, per_word) if inner else []
    zeros = "= tl.zeros(({}, BLOCK_K // {}), dtype=tl.float32)".format
    holes: dict[str, str | list[str]] = {
        "columns": sketch.i32("columns", n),
        "range": split_range(sketch, plan, batch, a.shape[-1]),
        "codes": sketch.operand(1),
        "row_words": str(k // per_word),
        "per_word": str(per_word),
        "once": [t.load_once(even) for t in outer],
        "next": following,
        "taken": ["codes = codes_next", *(t.taken(plan.block_k, per_word) for t in inner)],
        "start": [f"{s} {zeros('BLOCK_N', per_word)}" for s in held]
        + ([f"whole {zeros(1, per_word)}"] if shifts else []),
        "sums": [*_word_sums(gemm, dtype, bool(inner)), *steps, *([f"whole += {_whole(per_word)}"] if shifts else [])],
        "all": "acc" if inner else _joined(sums),
        "scaled": _scaled(outer),
        "wait": [WAIT_HERE],
        "wide": sketch.wide(),
    }
    holes |= {**lines, "epilogue": sketch.epilogue()}
    sizes = {"BLOCK_M": 1, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k} | ({"ROW": row} if row else {})
    programs = ceil_div(n, plan.block_n) * batch
    return sketch.finish(fill(read("gemm_code_row"), holes), sizes, programs, plan.warps, plan.stages)


@renders(CodeTile)
def render_code_tile(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [M, K], the rest as for one row."""
    anchor, gemm = anchored(kernel, CodeTile)
    plan, sketch = gemm.plan, Sketch(kernel, buffers)
    a, codes = anchor.operands[:2]
    (batch, _, n), (m, k) = (x.extent for x in kernel.outer), a.shape
    columns = "" if int_value(n % plan.block_n) == 0 else ", mask=columns[:, None] < N, other=0"
    per_byte = 8 // gemm.bits
    holes: dict[str, str | list[str]] = {
        "rows": sketch.i32("rows", m),
        "columns": sketch.i32("columns", n),
        "range": split_range(sketch, plan, batch, k),
        "a": sketch.operand(0),
        "a_row": sketch.i64("a_row", a.strides[-2]),
        "a_depth": scaled("depth[None, :]", a.strides[-1], sketch, "a_step"),
        "a_step": sketch.i64("a_step", a.strides[-1]),
        "a_mask": masks(plan, m, n, k)["a_mask"],
        "codes": sketch.operand(1),
        "row_bytes": str((int_value(k) or 0) // per_byte),
        "per_byte": str(per_byte),
        "mask": columns,
        "numbers": _numbers(gemm, a.dtype, codes.dtype, _tables(gemm, sketch), columns),
        "start": sketch.start(("acc", "BLOCK_M")),
        "wide": sketch.wide(),
        "epilogue": sketch.epilogue(),
    }
    sizes = {"BLOCK_M": plan.block_m, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k}
    programs = ceil_div(m, plan.block_m) * ceil_div(n, plan.block_n) * batch
    return sketch.finish(fill(read("gemm_code_tile"), holes), sizes, programs, plan.warps, plan.stages)


def _numbers(gemm: CodeTile, dtype: DType, codes: DType, tables: Sequence[_Table], columns: str) -> list[str]:
    """`right` [BLOCK_N, BLOCK_K] of `bytes`, in the type of a; a block has one number of each table."""
    bias = 8 if codes is DType.I8 else 0
    lines = ["right = bytes.to(tl.float32)" if gemm.bits == 8 else f"right = halves_of_bytes(bytes, {bias})"]
    if codes.is_float8:
        lines = [f"right = float_of_{FLOAT8[codes]}(bytes)"]
    for t in tables:
        number = f"tl.load({t.start} + {t.at} + k // {t.step.run}{columns}).to(tl.float32)"
        exact = f"(right {_SIGNS[t.step.kind]} {number})"
        lines.append(f"right = {rounded(exact, t.step.result) if t.step.result in HALF else exact}")
    return [*lines, f"right = right.to({MEMORY[dtype]})"]


def _tables(gemm: CodeGemm, sketch: Sketch) -> list[_Table]:
    """Of all steps, in turn."""
    anchor = sketch.kernel.anchor
    assert anchor is not None
    views = anchor.operands[2:]
    return [
        _Table(i, s, scaled("columns[:, None]", view.strides[0], sketch, f"table_row{i}"), sketch.operand(2 + i))
        for i, (s, view) in enumerate(zip(gemm.steps, views, strict=True))
    ]


def _by_place(tables: Sequence[_Table], k: int) -> tuple[Sequence[_Table], Sequence[_Table]]:
    """The steps that are taken word by word, and those after them that have one number for all K of a column, which are
    taken once, with the whole sum."""
    last = max((i for i, t in enumerate(tables) if t.step.run < k), default=-1)
    return tables[: last + 1], tables[last + 1 :]


def _mask(inside: str, even: bool, evict: bool = True) -> str:
    columns = "" if even else " & (columns[:, None] < N)"
    return f", mask=({inside}){columns}, other=0" + (', eviction_policy="evict_first"' if evict else "")


@dataclass(frozen=True)
class _Table:
    """A step's numbers in a kernel. at: offsets of its rows; start: where it starts."""

    index: int
    step: TableStep
    at: str
    start: str

    @property
    def name(self) -> str:
        return f"table{self.index}"

    def load(self, block_k: int, per_word: int, even: bool) -> str:
        """Those of the part at `block` for each column: one, one for each run, or, where blocks cut runs, for each
        word."""
        run = self.step.run
        if run % block_k == 0:
            place, inside = f"block // {run}", "block < end"
        elif block_k % run == 0:
            runs = f"tl.arange(0, {block_k // run})"
            place, inside = f"(block // {run} + {runs})[None, :]", f"(block + {run} * {runs})[None, :] < end"
        else:
            place, inside = f"(word // {run // per_word})[None, :]", f"word[None, :] < end // {per_word}"
        return f"{self.name}_next = tl.load({self.start} + {self.at} + {place}{_mask(inside, even, evict=False)})"

    def load_once(self, even: bool) -> str:
        """The number of each column."""
        mask = "" if even else ", mask=columns[:, None] < N, other=0"
        found = f"tl.load({self.start} + {self.at} + tl.zeros((BLOCK_N, 1), dtype=tl.int32){mask})"
        return f"{self.name} = tl.sum({found}.to(tl.float32), axis=1)"

    def taken(self, block_k: int, per_word: int) -> str:
        """What was loaded, for each column and word."""
        found = f"{self.name}_next.to(tl.float32)"
        spread = block_k % self.step.run == 0 and self.step.run < block_k
        return f"{self.name} = {f'spread({found}, {block_k // per_word})' if spread else found}"


def _names(gemm: CodeRow, dtype: DType) -> list[str]:
    """Of a word's sums of left * code: one for each place that an integer has in half a word; floats have one."""
    return [f"sum{place}" for place in range(1 if dtype.is_float8 else 16 // gemm.bits)]


def _joined(sums: Sequence[str]) -> str:
    """All of them: each is 2^bits too large, compared with the one before."""
    *rest, found = sums
    for name in reversed(rest):
        found = f"tl.fma({found}, {1 / (1 << (16 // len(sums)))}, {name})"
    return found


def _word_sums(gemm: CodeRow, dtype: DType, fresh: bool) -> list[str]:
    """Each word's left * code: added to the sums, or, where steps follow, in their place (`fresh`)."""
    bits, per_word = gemm.bits, WORD_BITS // gemm.bits
    bias = 1 << (bits - 1) if dtype is DType.I8 else 0
    flipped = bias if bits == 8 else 0  # halves of a byte have their bias already
    lines = ["left0, left1, left2, left3 = fours(left.to(tl.float32))"]
    if bits == 4:
        lines += [f"left{i}, left{i + 4} = tl.split(tl.reshape(left{i}, (1, BLOCK_K // 8, 2)))" for i in range(4)]
    if dtype.is_float8:
        lines.append(f"number0, number1, number2, number3 = fours_of_{FLOAT8[dtype]}(codes)")
    else:
        lines.append("high = codes >> 16")
    empty = set(_names(gemm, dtype)) if fresh else set()
    for i in range(per_word):
        half, place = divmod(i * bits, 16)
        code = f"code_at({'high' if half else 'codes'}, hidden, {bits}, {place}, {flipped}, {bias})"
        name = f"sum{place // bits}"
        if dtype.is_float8:
            code, name = f"number{i}", "sum0"
        lines.append(f"{name} = left{i} * {code}" if name in empty else f"{name} = tl.fma(left{i}, {code}, {name})")
        empty.discard(name)
    return lines


def _whole(per_word: int) -> str:
    """The sum of the row's numbers that a word's codes are multiplied with."""
    return " + ".join(f"left{i}" for i in range(per_word))


def _affine(tables: Sequence[_Table]) -> tuple[list[str], str, str]:
    """The steps as one: lines that make `scale` and `shift` of their numbers, and these names, empty for 1 and 0."""
    lines, scale, shift = [], "", ""
    for t in tables:
        if t.step.kind == "mul":
            lines += [f"scale = scale * {t.name}"] if scale else [f"scale = {t.name}"]
            lines += [f"shift = shift * {t.name}"] if shift else []
            scale = "scale"
        else:
            sign = "-" if t.step.kind == "sub" else ""
            lines.append(f"shift = shift {sign or '+'} {t.name}" if shift else f"shift = {sign}{t.name}")
            shift = "shift"
    return lines, scale, shift


def _after_steps(tables: Sequence[_Table], sums: Sequence[str], per_word: int) -> list[str]:
    """acc += scale * the words' sums of left * code + shift * those of left, as the steps make scale and shift."""
    lines, scale, shift = _affine(tables)
    lines.append(f"acc = tl.fma({_joined(sums)}, scale, acc)" if scale else f"acc += {_joined(sums)}")
    return [*lines, f"acc = tl.fma({_whole(per_word)}, shift, acc)"] if shift else lines


def _scaled(tables: Sequence[_Table]) -> list[str]:
    """total = scale * total + shift * the sum of the row, for steps that a whole column has in common."""
    lines, scale, shift = _affine(tables)
    lines += ["total = total * scale"] if scale else []
    return [*lines, "total = tl.fma(tl.sum(whole, axis=1), shift, total)"] if shift else lines
