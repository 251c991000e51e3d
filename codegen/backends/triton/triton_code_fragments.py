"""Products of few rows with codes on tensor cores: the template gemm_code_fragments.triton with its holes filled.

Values have a number for each thread, and quads have values of their own: a layout in which nothing but threads has a
place is one, whatever order of dimensions a version of Triton prefers. helpers_fragments.py says which rows and columns
a lane's numbers are of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.backends.triton.code_tables import StepTable, affine, step_table
from hardtack.codegen.backends.triton.kernel import TritonKernel, anchored
from hardtack.codegen.backends.triton.sketch import Sketch, fill, read
from hardtack.codegen.backends.triton.triton_gemm import ceil_div, scaled, split_range
from hardtack.codegen.backends.triton.triton_templates import renders
from hardtack.codegen.backends.triton.waits import WAIT_HERE
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.loops import Buffer
from hardtack.codegen.ir.nests import Operand
from hardtack.codegen.ir.schedule import Kernel
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.gpu_fragments import CodeFragments
from hardtack.codegen.tune.code_plan import WORD_BITS

_LAST = "[:, None]"
_COLUMNS = {"low": "own", "high": "behind"}
"""The columns of the codes that a lane has in the upper and in the lower half of a left fragment."""
_APART = 8
"""Columns from one of them to the other, of neighbours."""


@renders(CodeFragments)
def render_code_fragments(kernel: Kernel, buffers: Mapping[str, Buffer]) -> TritonKernel:
    """operands: a [M, K], codes in rows of bytes, and the tables of its steps; see lower/gpu_fragments.py."""
    anchor, gemm = anchored(kernel, CodeFragments)
    plan, sketch = gemm.fragment_plan, Sketch(kernel, buffers)
    (batch, _, n), a = (x.extent for x in kernel.outer), anchor.operands[0]
    (m, k), per_word = a.shape, WORD_BITS // gemm.bits
    depth = int_value(k) or 0
    apart = _APART if kernel.half is None or plan.warps_n > 1 else int_value(kernel.half.extent) or 0
    inside = _Inside(per_word, 4 * plan.words, int_value(n % plan.block_n) == 0, apart)
    inner, outer = _by_place(gemm, sketch, depth, per_word)
    whole_k = plan.splits == 1 and depth % plan.block_k == 0
    rows = _Rows(sketch, a, plan.words, per_word, int_value(m % plan.block_m) == 0, whole_k)
    shifts = any(t.step.kind != "mul" for t in outer)
    sums = _Sums(gemm, anchor.operands[1].dtype, a.dtype, plan.quads, inner, shifts)
    holes: dict[str, str | list[str]] = {
        "rows": sketch.i32("rows", m),
        "columns": sketch.i32("columns", n),
        "halved": sketch.halved("columns"),
        "halved_own": sketch.halved("own"),
        "range": split_range(sketch, plan, batch, k),
        "codes": sketch.operand(1),
        "row_words": str(depth // per_word),
        "per_word": str(per_word),
        "quads": str(plan.quads),
        "apart": str(apart),
        "at_once": str(rows.at_once),
        "next": [
            line
            for q in range(plan.quads)
            for line in (*inside.codes(depth // per_word, q), *(x for t in inner for x in t.load_next(inside, q)))
        ],
        "wait": [WAIT_HERE],
        "row": rows.start(),
        "start": sums.start(),
        "taken": [
            line
            for q in range(plan.quads)
            for line in (*_words(plan.words, q), *(x for t in inner for x in t.taken(q)))
        ],
        "sums": [*_products(sums, rows), *rows.onwards()],
        "total": sums.total(),
        "scaled": [*sums.whole(), *_scaled(outer, inside)],
        "wide": sketch.wide(),
        "epilogue": sketch.epilogue(),
    }
    sizes = {"BLOCK_M": plan.block_m, "BLOCK_N": plan.block_n, "BLOCK_K": plan.block_k, "WORDS": plan.words}
    sizes |= {"WARPS_K": plan.warps_k, "WARPS_N": plan.warps_n}
    programs = ceil_div(m, plan.block_m) * ceil_div(n, plan.block_n) * batch
    return sketch.finish(fill(read("gemm_code_fragments"), holes), sizes, programs, plan.warps, plan.stages)


def _four(name: str) -> str:
    """The numbers of a fragment of results: two of a column `own`, two of the one `behind`."""
    return ", ".join(f"{name}{i}" for i in range(4))


def _products(sums: _Sums, rows: _Rows) -> list[str]:
    """The lines of a block's products, and of their steps."""
    lines: list[str] = []
    for quad in range(sums.quads):
        lines += sums.fresh(quad)
        for word in range(rows.words):
            lines += [*sums.codes_of(quad, word), *rows.of_word(quad, word), *sums.products(quad)]
        lines += sums.steps(quad)
    return lines


@dataclass(frozen=True)
class _Inside:
    """What loads of codes and tables must not read. step: words from a quad to the next; even: there is a column for
    each; apart: columns from a lane's first to its second."""

    per_word: int
    step: int
    even: bool
    apart: int

    def word(self, quad: int) -> str:
        return f"(word + {quad * self.step})" if quad else "word"

    def mask(self, half: str, quad: int) -> str:
        found = f"({self.word(quad)} < end // {self.per_word})"
        return found if self.even else f"{found} & ({_COLUMNS[half]} < N)"

    def codes(self, row_words: int, quad: int) -> list[str]:
        at = {"low": "words", "high": f"words + {self.apart * row_words}"}
        return [
            f"{half}{quad}_next = tl.load({at[half]} + {self.word(quad)}{_LAST}, "
            f'mask=({self.mask(half, quad)}){_LAST}, other=0, eviction_policy="evict_first")'
            for half in _COLUMNS
        ]


def _words(count: int, quad: int) -> list[str]:
    """The words of a quad, by name."""
    split = {4: "quarters({0})", 2: "tl.split({0})", 1: "tl.reshape({0}, {0}.shape[:-1])"}[count]
    return [
        f"{', '.join(f'{half}{quad}_{i}' for i in range(count))} = {split.format(f'{half}{quad}_next')}"
        for half in _COLUMNS
    ]


@dataclass(frozen=True)
class _Table:
    """A step's numbers for a lane's columns. words: of a run, in which columns have one number."""

    halves: Mapping[str, StepTable]
    words: int

    @property
    def kind(self) -> str:
        return self.halves["low"].step.kind

    @property
    def name(self) -> str:
        return self.halves["low"].name

    def load_next(self, inside: _Inside, quad: int) -> list[str]:
        return [
            f"{self.name}_{half}{quad}_next = tl.load({t.start} + {t.at} + {inside.word(quad)} // {self.words}, "
            f"mask={inside.mask(half, quad)}, other=0)"
            for half, t in self.halves.items()
        ]

    def taken(self, quad: int) -> list[str]:
        return [
            f"{self.name}_{half}{quad} = {t.wide(f'{self.name}_{half}{quad}_next')}" for half, t in self.halves.items()
        ]


def _by_place(gemm: CodeFragments, sketch: Sketch, k: int, per_word: int) -> tuple[list[_Table], list[StepTable]]:
    """The steps that are taken block by block, and those after them that have one number for all K of a column, which
    are taken once, with the whole sum."""
    last = max((i for i, s in enumerate(gemm.steps) if s.run < k), default=-1)
    inner = []
    for i, step in enumerate(gemm.steps[: last + 1]):
        halves = {half: step_table(gemm, sketch, i, columns) for half, columns in _COLUMNS.items()}
        inner.append(_Table(halves, step.run // per_word))
    return inner, [step_table(gemm, sketch, i, "columns") for i in range(last + 1, len(gemm.steps))]


@dataclass(frozen=True)
class _Rows:
    """The rows' numbers. words: of a quad; even: there are as many rows as tiles have; whole_k: blocks end with K."""

    sketch: Sketch
    a: Operand
    words: int
    per_word: int
    even: bool
    whole_k: bool

    @property
    def at_once(self) -> int:
        """Numbers that a lane loads at once: 16 bytes, where a quad has so many."""
        return min(8, self.words * self.per_word)

    def start(self) -> list[str]:
        row = scaled("row.to(tl.int64)", self.a.strides[-2], self.sketch, "a_row")
        depth = scaled("k", self.a.strides[-1], self.sketch, "a_step")
        return [f"a = {self.sketch.operand(0)} + ({row}){_LAST} + {depth}"]

    def of_word(self, quad: int, word: int) -> list[str]:
        """The numbers that a word's codes are multiplied with, in pairs right0, right1, ..., as the codes are."""
        first = (quad * 4 * self.words + word) * self.per_word
        at = word * self.per_word % self.at_once
        pairs = [(at, at + 1), (at + 2, at + 3)] if self.per_word == 4 else [(i, i + 4) for i in range(4)]
        lines = [f"right{i} = pair_of(left{x}, left{y})" for i, (x, y) in enumerate(pairs)]
        return lines if at else [self._load(first), *lines]

    def _load(self, first: int) -> str:
        inside = ([] if self.even else [f"(row < M){_LAST}"]) + ([] if self.whole_k else [f"(k + {first} < end)"])
        mask = f", mask={' & '.join(inside)}, other=0.0" if inside else ""
        at = f"a + {first} * {self.sketch.i64('a_step', self.a.strides[-1])}" if first else "a"
        names = ", ".join(f"left{i}" for i in range(self.at_once))
        return f"{names} = {'quarters' if self.at_once == 4 else 'eighths'}(tl.load({at}{mask}))"

    def onwards(self) -> list[str]:
        """To the next block."""
        step = self.sketch.i64("a_step", self.a.strides[-1])
        return [f"a += BLOCK_K * {step}", *([] if self.whole_k else ["k += BLOCK_K"])]


@dataclass(frozen=True)
class _Sums:
    """What a lane adds up. inner: the steps that are taken block by block; shifts: the rows' sums are needed at the
    end."""

    gemm: CodeFragments
    codes: DType
    rows: DType
    quads: int
    inner: Sequence[_Table]
    shifts: bool

    @property
    def shifted(self) -> bool:
        """True where the rows' sums of a block are needed: products with ones."""
        return self.shifts or any(t.kind != "mul" for t in self.inner)

    @property
    def _pairs(self) -> int:
        """Of a word's codes."""
        return WORD_BITS // self.gemm.bits // 2

    @property
    def _half(self) -> str:
        return str(self.rows is DType.F16)

    def start(self) -> list[str]:
        ones = "0x3C003C00" if self.rows is DType.F16 else "0x3F803F80"
        lines = [f"ones = tl.zeros(zero.shape, dtype=tl.uint32) + {ones}"] if self.shifted else []
        held = ["acc"] if self.inner else [f"d{quad}_" for quad in range(self.quads)]
        lines += [f"{_four(name)} = zero, zero, zero, zero" for name in held]
        return [*lines, "whole0, whole1 = zero, zero"] if self.shifts else lines

    def fresh(self, quad: int) -> list[str]:
        """What begins anew with each block."""
        names = ([f"d{quad}_"] if self.inner else []) + (["part"] if self.shifted else [])
        return [f"{_four(name)} = zero, zero, zero, zero" for name in names]

    def codes_of(self, quad: int, word: int) -> list[str]:
        """A word's codes in pairs, low_pair0, ..., high_pair0, ..."""
        made = "pairs_of_bytes({0}{1}_{2}, {3})"
        if self.gemm.bits == 4:
            made = f"pairs_of_halves({{0}}{{1}}_{{2}}, {8 if self.codes is DType.I8 else 0}, {{3}})"
        return [
            f"{', '.join(f'{half}_pair{i}' for i in range(self._pairs))} = {made.format(half, quad, word, self._half)}"
            for half in _COLUMNS
        ]

    def products(self, quad: int) -> list[str]:
        """A word's products with the rows in right0, right1, ..."""
        lines, d = [], _four(f"d{quad}_")
        for i in range(0, self._pairs, 2):
            right = f"right{i}, right{i + 1}, {self._half}"
            left = f"low_pair{i}, high_pair{i}, low_pair{i + 1}, high_pair{i + 1}"
            lines.append(f"{d} = add_products({d}, {left}, {right})")
            if self.shifted:
                lines.append(f"{_four('part')} = add_products({_four('part')}, ones, ones, ones, ones, {right})")
        return lines

    def steps(self, quad: int) -> list[str]:
        """The steps of a quad, and the rows' sums."""
        lines = ["whole0 += part0", "whole1 += part1"] if self.shifts else []
        if not self.inner:
            return lines
        for half, places in zip(_COLUMNS, ((0, 1), (2, 3)), strict=True):
            made, scale, shift = affine([(t.kind, f"{t.name}_{half}{quad}") for t in self.inner], f"_{half}")
            lines += made
            for i in places:
                d = f"d{quad}_{i}"
                lines.append(f"acc{i} = tl.fma({d}, {scale}, acc{i})" if scale else f"acc{i} += {d}")
                lines += [f"acc{i} = tl.fma(part{i}, {shift}, acc{i})"] if shift else []
        return lines

    def total(self) -> list[str]:
        quads = range(self.quads)
        lines = [] if self.inner else [f"acc{i} = {' + '.join(f'd{q}_{i}' for q in quads)}" for i in range(4)]
        return [*lines, f"total = tile_of_fragments({_four('acc')}, WARPS_K, WARPS_N)"]

    def whole(self) -> list[str]:
        """The rows' sums, for each column."""
        found = "whole = tile_of_fragments(whole0, whole1, whole0, whole1, WARPS_K, WARPS_N)"
        return [found] if self.shifts else []


def _scaled(tables: Sequence[StepTable], inside: _Inside) -> list[str]:
    """total = scale * total + shift * the sum of the row, for steps that a whole column has in common."""
    mask = "" if inside.even else ", mask=columns < N, other=0"
    lines = []
    for t in tables:
        loaded = t.wide(f"tl.load({t.start} + {t.at} + tl.zeros_like(columns){mask})")
        lines.append(f"{t.name} = {loaded}[None, :]")
    made, scale, shift = affine([(t.step.kind, t.name) for t in tables])
    lines += [*made, *([f"total = total * {scale}"] if scale else [])]
    return [*lines, f"total += whole * {shift}"] if shift else lines
