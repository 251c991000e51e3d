"""Products of one row with codes as Triton kernels: the template gemm_code_row.triton with its holes filled.

Values have the template's dimensions: [LANES, WARPS_K, WARPS_N, COLUMNS, QUADS] for what a lane has of each column, 1
for COLUMNS where it is the row's, and a last one of a word's codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.backends.triton.code_tables import StepTable, affine, step_table
from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div, scaled, split_range
from hardtack.codegen.backends.triton.triton_spelling import FLOAT8
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.backends.triton.waits import WAIT_HERE
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.gpu_quantized import CodeGemm, CodeRow
from hardtack.codegen.tune.code_plan import QUAD, WORD_BITS

_LAST = "[:, :, :, :, :, None]"


@renders(CodeRow)
def render_code_row(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [1, K], codes in rows of bytes, and the tables of its steps; see lower/gpu_quantized.py."""
    anchor, gemm = anchored(kernel, CodeRow)
    plan, sketch = gemm.row_plan, Sketch(kernel, buffers)
    (batch, _, n), a = (x.extent for x in kernel.outer), anchor.operands[0]
    k, dtype = int_value(a.shape[-1]) or 0, anchor.operands[1].dtype
    per_word = WORD_BITS // gemm.bits
    inside = _Inside(per_word, int_value(n % plan.block_n) == 0, k % (QUAD * per_word) == 0)
    inner, outer = _by_place(gemm, sketch, k, per_word)
    sums = _Sums(gemm, dtype, inner, any(t.kind != "mul" for t in outer))
    row = _Row(sketch, a, per_word, plan.block_k, plan.splits == 1 and k % plan.block_k == 0)
    holes: dict[str, str | list[str]] = {
        "columns": sketch.i32("columns", n),
        "halved": sketch.halved("columns"),
        "halved_mine": sketch.halved("mine"),
        "range": split_range(sketch, plan, batch, a.shape[-1]),
        "codes": sketch.operand(1),
        "row_words": str(k // per_word),
        "per_word": str(per_word),
        "once": [t.load_once(inside.columns) for t in outer],
        "next": [inside.codes(), *(line for t in inner for line in t.load_next(inside))],
        "wait": [WAIT_HERE],
        "row": row.start(),
        "start": sums.start(),
        "taken": [line for t in inner for line in t.taken()],
        "sums": [line for i in range(QUAD) for line in (*row.of_word(i), *sums.of_word(i))],
        "all": sums.all(),
        "scaled": _scaled(outer),
        "wide": sketch.wide(),
        "epilogue": sketch.epilogue(),
    }
    sizes = {"BLOCK_M": 1, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k, "LANES": plan.lanes, "QUADS": plan.quads}
    sizes |= {"WARPS_K": plan.warps_k, "WARPS_N": plan.warps_n, "COLUMNS": plan.columns}
    programs = ceil_div(n, plan.block_n) * batch
    return sketch.finish(fill(read("gemm_code_row"), holes), sizes, programs, plan.warps, plan.stages)


@dataclass(frozen=True)
class _Inside:
    """What loads of codes and tables must not read. even: there is a column for each; whole_quads: K ends behind a
    quad, which a load of 16 bytes has to see."""

    per_word: int
    even: bool
    whole_quads: bool

    @property
    def columns(self) -> str:
        return "" if self.even else ", mask=mine < N, other=0"

    def codes(self) -> str:
        at = f"word{_LAST} + four"
        inside = f"(word < end // {self.per_word}){_LAST}" if self.whole_quads else f"({at} < end // {self.per_word})"
        inside += "" if self.even else f" & (own < N){_LAST}"
        return f'codes_next = tl.load(words{_LAST} + {at}, mask={inside}, other=0, eviction_policy="evict_first")'

    def table(self, word: str) -> str:
        return f", mask=({word} < end // {self.per_word}){'' if self.even else ' & (own < N)'}, other=0"


@dataclass(frozen=True)
class _Table:
    """A step's numbers. words: of a run, in which columns have one number."""

    table: StepTable
    words: int

    @property
    def shared(self) -> bool:
        """True where a lane's words have one number."""
        return self.words % QUAD == 0

    @property
    def kind(self) -> str:
        return self.table.step.kind

    def load_next(self, inside: _Inside) -> list[str]:
        """The numbers of a lane's words: one, or one for each."""
        words = ["word"] if self.shared else ["word", *(f"(word + {i})" for i in range(1, QUAD))]
        start = f"{self.table.start} + {self.table.at}"
        return [
            f"{self.table.name}_next{i} = tl.load({start} + {word} // {self.words}{inside.table(word)})"
            for i, word in enumerate(words)
        ]

    def taken(self) -> list[str]:
        count, name = 1 if self.shared else QUAD, self.table.name
        return [f"{name}_of{i} = {self.table.wide(f'{name}_next{i}')}" for i in range(count)]

    def load_once(self, mask: str) -> str:
        """The number of each column."""
        found = f"tl.load({self.table.start} + {self.table.at} + tl.zeros_like(mine){mask})"
        return f"{self.table.name} = {self.table.wide(found)}"

    def of_word(self, word: int) -> str:
        return f"{self.table.name}_of{0 if self.shared else word}"


def _by_place(gemm: CodeGemm, sketch: Sketch, k: int, per_word: int) -> tuple[list[_Table], list[_Table]]:
    """The steps that are taken word by word, and those after them that have one number for all K of a column, which are
    taken once, with the whole sum."""
    last = max((i for i, s in enumerate(gemm.steps) if s.run < k), default=-1)
    found = [
        _Table(step_table(gemm, sketch, i, "own" if i <= last else "mine"), s.run // per_word)
        for i, s in enumerate(gemm.steps)
    ]
    return found[: last + 1], found[last + 1 :]


@dataclass(frozen=True)
class _Row:
    """The row's numbers. whole: blocks end with K, so that none of them is outside."""

    sketch: Sketch
    a: Operand
    per_word: int
    block_k: int
    whole: bool

    def start(self) -> str:
        return f"a = {self.sketch.operand(0)} + {scaled('k', self.a.strides[-1], self.sketch, 'a_step')}"

    def of_word(self, word: int) -> list[str]:
        """The lines that leave the numbers at `k` in left0, left1, ... and move on: to the next word, or behind the
        last one to the next block."""
        moved = self.per_word if word < QUAD - 1 else self.block_k - (QUAD - 1) * self.per_word
        parts = "quarters" if self.per_word == 4 else "eighths"
        names = ", ".join(f"left{i}" for i in range(self.per_word))
        return [
            f"left = tl.load(a{'' if self.whole else ', mask=k < end, other=0.0'})",
            f"{names} = {parts}(left.to(tl.float32))",
            f"a += {moved} * {self.sketch.i64('a_step', self.a.strides[-1])}",
            *([] if self.whole else [f"k += {moved}"]),
        ]


@dataclass(frozen=True)
class _Sums:
    """What a lane adds up. inner: the steps that are taken with sums of words; shifts: the row's sum is needed at the
    end."""

    gemm: CodeGemm
    dtype: DType
    inner: Sequence[_Table]
    shifts: bool

    @property
    def names(self) -> list[str]:
        """Of sums of left * code: one for each place that an integer has in half a word; floats have one."""
        return [f"sum{place}" for place in range(1 if self.dtype.is_float8 else 16 // self.gemm.bits)]

    @property
    def per_word(self) -> int:
        return WORD_BITS // self.gemm.bits

    @property
    def shared(self) -> bool:
        """True where the steps are taken with the sums of all words of a lane."""
        return all(t.shared for t in self.inner)

    @property
    def whole(self) -> str:
        """The sum of the row's numbers that a word's codes are multiplied with."""
        return " + ".join(f"left{i}" for i in range(self.per_word))

    def start(self) -> list[str]:
        zeros = "= tl.zeros((LANES, WARPS_K, WARPS_N, {}, QUADS), dtype=tl.float32)".format
        held = ["acc"] if self.inner else self.names
        return [f"{s} {zeros('COLUMNS')}" for s in held] + ([f"whole {zeros(1)}"] if self.shifts else [])

    def all(self) -> str:
        return "acc" if self.inner else self._joined()

    def of_word(self, word: int) -> list[str]:
        """The lines of a lane's `word`-th word: its products, and its steps."""
        fresh = bool(self.inner) and (word == 0 or not self.shared)
        lines = self._products(word, fresh)
        lines += [f"whole += {self.whole}"] if self.shifts else []
        if not self.inner:
            return lines
        shifted = any(t.kind != "mul" for t in self.inner)
        if shifted:
            lines.append(f"part = {self.whole}" if fresh else f"part += {self.whole}")
        if word < QUAD - 1 and self.shared:
            return lines
        steps, scale, shift = affine([(t.kind, t.of_word(word)) for t in self.inner])
        lines += [*steps, f"acc = tl.fma({self._joined()}, {scale}, acc)" if scale else f"acc += {self._joined()}"]
        return [*lines, f"acc = tl.fma(part, {shift}, acc)"] if shift else lines

    def _products(self, word: int, fresh: bool) -> list[str]:
        """A word's left * code: added to the sums, or in their place (`fresh`)."""
        bits, name = self.gemm.bits, f"word{word}"
        bias = 1 << (bits - 1) if self.dtype is DType.I8 else 0
        flipped = bias if bits == 8 else 0  # halves of a byte have their bias already
        if self.dtype.is_float8 and bits == 4:
            lines = [f"number{i} = e2m1_at({name}, {i * bits})" for i in range(self.per_word)]
        elif self.dtype.is_float8:
            lines = [f"number0, number1, number2, number3 = fours_of_{FLOAT8[self.dtype]}({name})"]
        else:
            lines = [f"high = {name} >> 16"]
        empty = set(self.names) if fresh else set()
        for i in range(self.per_word):
            half, place = divmod(i * bits, 16)
            code = f"code_at({'high' if half else name}, hidden, {bits}, {place}, {flipped}, {bias})"
            found = f"sum{place // bits}"
            if self.dtype.is_float8:
                code, found = f"number{i}", "sum0"
            first = found in empty
            lines.append(f"{found} = left{i} * {code}" if first else f"{found} = tl.fma(left{i}, {code}, {found})")
            empty.discard(found)
        return lines

    def _joined(self) -> str:
        """All sums: each is 2^bits too large, compared with the one before."""
        *rest, found = self.names
        for name in reversed(rest):
            found = f"tl.fma({found}, {1 / (1 << self.gemm.bits)}, {name})"
        return found


def _scaled(tables: Sequence[_Table]) -> list[str]:
    """total = scale * total + shift * the sum of the row, for steps that a whole column has in common."""
    lines, scale, shift = affine([(t.kind, t.table.name) for t in tables])
    lines += [f"total = total * {scale}"] if scale else []
    return [*lines, f"total = tl.fma(sum_of_parts(whole), {shift}, total)"] if shift else lines
