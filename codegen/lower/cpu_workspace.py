"""The blocking numbers of the C++ templates and the sizes of their workspaces, written once.

A plan has the sizes as Exprs; the templates find their places by the same formulas in workspace.h, which
backends/cpp/workspace_header.py writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.ir.expr import Expr, ExprLike, Sym, as_expr, const, maximum, minimum, sym
from hardtack.codegen.ir.expr_walk import substitute
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.blocking import (
    AHEAD,
    FLOAT_NBYTES,
    GRAIN,
    MOST_DEPTH,
    MOST_STAGED_DEPTH,
    MOST_UNIT_NBYTES,
)
from hardtack.codegen.machine.data import CPUS, X86_64_V4
from hardtack.codegen.tune.cut_plan import CutPlan

_LINE = 16
"""Floats of a line of a cache."""
PANEL = 32
"""Columns of a packed panel: one layout for every CPU (templates/cpp/gemm.h)."""
_FEW_TILES = 256
_FEW_NBYTES = 1 << 22
"""Most that a worker has of few tiles, transformed."""
POSITIONS = 16
"""Of a tile or filter that winograd.h has transformed."""
_BLOCK_ROWS = 32
_HALVES = max(_BLOCK_ROWS // 2, *(cpu.micro_rows for cpu in CPUS.values()))
"""Floats for each k of a block's rows of 16-bit numbers: those of tiles as they are, a microkernel's as float."""


@dataclass(frozen=True)
class Number:
    """A constant of the templates."""

    name: str
    value: int
    what: str


NUMBERS = (
    Number("kPanel", PANEL, "columns in a panel of packed weights"),
    Number("kMostRows", max(cpu.micro_rows for cpu in CPUS.values()), "rows of the tallest microkernel of any target"),
    Number("kMostDepth", MOST_DEPTH, "longest k block that any plan has"),
    Number("kAhead", AHEAD, "k of B that are asked for ahead of their use"),
    Number("kGrain", GRAIN, "k of 16-bit numbers that a tile takes at once"),
    Number("kBlockRows", _BLOCK_ROWS, "rows of a block of tiles"),
    Number("kRowsOfK", _HALVES, "floats for each k of a block's staged rows of 16-bit numbers"),
    Number("kSpreadK", 128, "k from which rows of A in one set of the first-level cache are copied"),
    Number("kMaxTaps", 64, "most taps in a k block"),
    Number("kChunkRows", 192, "most rows in a unit of a product"),
    Number("kUnitRowNbytes", 1024, "of B that a unit reads for a k"),
    Number("kPrivateNbytes", X86_64_V4.second_level_nbytes * 3 // 4, "weights that stay in a core's own cache"),
    Number("kWakeProducts", X86_64_V4.wake_products, "multiplications that outweigh waking the other threads"),
    Number("kFewTiles", _FEW_TILES, "tiles of a convolution up to which each worker transforms its filters"),
    Number("kPositions", POSITIONS, "of a tile or filter that is transformed"),
    Number("kFinishTiles", 8, "tiles whose results are made at once, and stay in the first-level cache"),
    Number("kShortTap", 16, "channels below which the taps of a filter row are laid side by side"),
    Number("kKeyBlock", 256, "keys of attention packed at once"),
    Number("kQueryBlock", 96, "query rows of a task of attention"),
    Number("kItemNbytes", 8, "a key and an index that a sort moves"),
    Number("kWideItemNbytes", 16, "the same for keys of 8 bytes"),
)
_VALUES = {n.name: n.value for n in NUMBERS}


@dataclass(frozen=True)
class Formula:
    """A number of elements, rows or columns, by sizes."""

    name: str
    sizes: tuple[Sym, ...]
    value: Expr
    what: str

    def __call__(self, *sizes: ExprLike) -> Expr:
        given: Mapping[Expr, ExprLike] = dict(zip(self.sizes, sizes, strict=True))
        return substitute(self.value, given)


_M, _N, _K, _D, _DV, _TK = (sym(name) for name in ("m", "n", "k", "d", "dv", "tk"))
_ROWS, _PANELS, _DEPTH, _UNIT = (sym(name) for name in ("rows", "panels", "depth", "unit_depth"))
"""Of the kernel's blocks: blocks.h."""


def _panels(n: Expr) -> Expr:
    return (n + (PANEL - 1)) // PANEL


def _block_tiles(c: Expr) -> Expr:
    """Tiles of c channels, transformed, that fill five eighths of a second-level cache with their products: whole
    blocks of rows, at least two."""
    rows = _VALUES["kMostRows"]
    fitting = X86_64_V4.second_level_nbytes * 5 // 8 // (POSITIONS * FLOAT_NBYTES)
    return minimum(_FEW_TILES, maximum(2, const(fitting) // (c + PANEL) // rows) * rows)


panels_of = Formula("panels_of", (_N,), _panels(_N), "Panels that n columns fill.")
tile_numel = Formula(
    "tile_numel",
    (_M, _N, _ROWS, _PANELS),
    minimum(_M, _ROWS) * minimum(_panels(_N), _PANELS) * PANEL,
    "A worker's sums of a product of m rows and n columns.",
)
copied_rows_numel = Formula(
    "copied_rows_numel",
    (_K, _DEPTH),
    minimum(_K, _DEPTH) * _VALUES["kMostRows"],
    "Rows of A, copied where they are not dense.",
)
copied_halves_numel = Formula(
    "copied_halves_numel",
    (_K, _DEPTH),
    minimum(_K, _DEPTH) * _HALVES,
    f"The same of 16-bit numbers, of which a block has up to {_BLOCK_ROWS} rows.",
)
staged_numel = Formula(
    "staged_numel",
    (_M, _DEPTH),
    _DEPTH
    * maximum(_HALVES, minimum(_VALUES["kChunkRows"], (_M + (_BLOCK_ROWS - 1)) // _BLOCK_ROWS * _BLOCK_ROWS) // 2),
    "The staged rows of 16-bit numbers: of a block, as float, or all of a unit's in whole blocks of tiles.",
)
spread_rows_numel = Formula(
    "spread_rows_numel",
    (_M, _DEPTH),
    minimum(_M, _VALUES["kMostRows"]) * (_DEPTH + _DEPTH // (_VALUES["kSpreadK"] // (2 * _LINE))),
    "Rows of A of kSpreadK or more, each with less than two lines more than it fills.",
)
packed_panels_numel = Formula(
    "packed_panels_numel",
    (_N, _K, _DEPTH, _UNIT),
    minimum(_panels(_N) * minimum(_K, _DEPTH), _UNIT) * PANEL,
    "A unit's part of B, packed or made float.",
)
_KEYS = minimum(_panels(_TK) * PANEL, _VALUES["kKeyBlock"])
packed_keys_numel = Formula("packed_keys_numel", (_TK, _D), _KEYS * _D, "A block of keys of d elements, transposed.")
packed_values_numel = Formula(
    "packed_values_numel", (_TK, _DV), _KEYS * _panels(_DV) * PANEL, "A block of values of dv elements, in panels."
)
scores_numel = Formula("scores_numel", (_TK,), _KEYS * _VALUES["kMostRows"], "Scores of a tile's rows with a block.")
half_scores_numel = Formula(
    "half_scores_numel", (_TK,), _KEYS * _BLOCK_ROWS, "The same of 16-bit numbers, of which a tile has up to 32 rows."
)
half_queries_numel = Formula(
    "half_queries_numel",
    (_D,),
    maximum(_D, _panels(_D) * (PANEL // 2)) * _VALUES["kQueryBlock"],
    "Queries of 16-bit numbers, as float or as they are in whole tiles.",
)
query_rows_numel = Formula(
    "query_rows_numel", (_DV,), _panels(_DV) * (PANEL * _VALUES["kQueryBlock"]), "What a task has of its result so far."
)
_PACKED = packed_keys_numel(_TK, _D) + packed_values_numel(_TK, _DV)
_RESULTS = query_rows_numel(_DV) + 2 * _VALUES["kQueryBlock"]
attention_numel = Formula(
    "attention_numel",
    (_TK, _D, _DV),
    _PACKED + _RESULTS + scores_numel(_TK),
    "All of these for float, and a running maximum and sum for each query.",
)
half_attention_numel = Formula(
    "half_attention_numel",
    (_TK, _D, _DV),
    _PACKED + _RESULTS + half_scores_numel(_TK) + half_queries_numel(_D),
    "The same for 16-bit numbers.",
)
key_numbers_numel = Formula(
    "key_numbers_numel", (_TK, _D, _DV), _KEYS * (_D + _DV), "A block of keys and values, of their codes."
)
_OUTPUTS, _STRIDE, _TAPS, _DILATION = (sym(name) for name in ("outputs", "stride", "taps", "dilation"))
window_extent = Formula(
    "window_extent",
    (_OUTPUTS, _STRIDE, _TAPS, _DILATION),
    maximum(0, (_OUTPUTS - 1) * _STRIDE + (_TAPS - 1) * _DILATION + 1),
    "Input rows or columns that so many windows cover.",
)
_TILES, _C, _OC, _ROWS, _LD = (sym(name) for name in ("tiles", "c", "oc", "rows", "ld"))
position_stride = Formula(
    "position_stride",
    (_ROWS, _LD),
    _ROWS * _LD + _LINE,
    "From one position of transformed tiles to the next: a line more than they fill, so that not all lie in one set.",
)
winograd_tiles = Formula(
    "winograd_tiles",
    (_TILES, _C),
    minimum(_TILES, _block_tiles(_C)),
    "Most tiles in a unit of a convolution.",
)
winograd_few_tiles = Formula(
    "winograd_few_tiles",
    (_TILES, _C),
    minimum(
        _TILES,
        minimum(
            _FEW_TILES,
            maximum(2 * _VALUES["kMostRows"], const(_FEW_NBYTES // (POSITIONS * FLOAT_NBYTES)) // maximum(1, _C)),
        ),
    ),
    "The same where there are few tiles, whose unit transforms its filters, too.",
)
winograd_operand_numel = Formula(
    "winograd_operand_numel",
    (_TILES, _C),
    maximum(
        POSITIONS * position_stride(winograd_tiles(_TILES, _C), _C),
        POSITIONS * position_stride(winograd_few_tiles(_TILES, _C), _C) + POSITIONS // 4 * PANEL * _C,
    ),
    "What a worker transforms: a unit's tiles, and where they are few a row of positions of a panel.",
)
winograd_sums_numel = Formula(
    "winograd_sums_numel",
    (_TILES,),
    POSITIONS * position_stride(minimum(_TILES, _FEW_TILES), PANEL),
    "A worker's products of tiles and a panel.",
)
winograd_numel = Formula(
    "winograd_numel",
    (_TILES, _C),
    winograd_operand_numel(_TILES, _C)
    + winograd_sums_numel(_TILES)
    + maximum(POSITIONS * _C, 4 * _VALUES["kFinishTiles"] * PANEL),
    "Both, and room for a tile's inputs or for results that are made at once.",
)
winograd_shared_numel = Formula(
    "winograd_shared_numel",
    (_TILES, _C, _OC),
    minimum(1, maximum(0, _TILES - _FEW_TILES)) * (POSITIONS * PANEL * _C * _panels(_OC)),
    "The filters, transformed for all workers where there are many tiles.",
)

FORMULAS = (
    *(
        panels_of,
        tile_numel,
        copied_rows_numel,
        copied_halves_numel,
        staged_numel,
        spread_rows_numel,
        packed_panels_numel,
    ),
    *(packed_keys_numel, packed_values_numel, scores_numel, half_scores_numel, half_queries_numel, query_rows_numel),
    *(attention_numel, half_attention_numel, key_numbers_numel, window_extent),
    *(position_stride, winograd_tiles, winograd_few_tiles, winograd_operand_numel, winograd_sums_numel),
    *(winograd_numel, winograd_shared_numel),
)


def number(name: str) -> int:
    """The value of a blocking number."""
    return _VALUES[name]


@dataclass(frozen=True)
class Cut:
    """How a product is cut, as workspaces see it: the most rows and panels of a unit, its longest k block, and the most
    panels * k of its part of B."""

    rows: int
    panels: int
    depth: int
    unit_depth: int


def widest_cut(dtype: DType, plan: CutPlan | None) -> Cut:
    """What no CPU's own cut is above, as a Plan serves all CPUs of a layout; with the depth of a table's plan."""
    nbytes = 2 if dtype in (DType.BF16, DType.I8) else FLOAT_NBYTES
    usual = MOST_DEPTH if dtype is DType.F32 else MOST_STAGED_DEPTH
    depth = usual if plan is None else plan.depth
    unit = MOST_UNIT_NBYTES // (PANEL * FLOAT_NBYTES)  # of pairs it is twice as long, and each takes a float for two
    return Cut(_VALUES["kChunkRows"], _VALUES["kUnitRowNbytes"] // (PANEL * nbytes), depth, unit)


def gemm_nbytes(
    m: ExprLike, n: ExprLike, dtype: DType, plan: CutPlan | None = None, *, dequantises: bool = False
) -> Expr:
    """A worker's workspace for a product with packed weights, and for a convolution of m places and n channels.
    dequantises: whether a unit's weights are made float."""
    c = widest_cut(dtype, plan)
    numel = tile_numel(m, n, c.rows, c.panels)
    numel += spread_rows_numel(m, c.depth) if dtype is DType.F32 else staged_numel(m, c.depth)
    numel += (dtype.is_half + dequantises) * packed_panels_numel(n, c.depth, c.depth, c.unit_depth)
    return numel * FLOAT_NBYTES


def gemm_dynamic_nbytes(m: ExprLike, n: ExprLike, k: ExprLike, dtype: DType, plan: CutPlan | None = None) -> Expr:
    """A worker's workspace for a product of two values."""
    c = widest_cut(dtype, plan)
    rows = copied_rows_numel(k, c.depth) if dtype is DType.F32 else copied_halves_numel(k, c.depth)
    return gemm_nbytes(m, n, dtype, plan) + (rows + packed_panels_numel(n, k, c.depth, c.unit_depth)) * FLOAT_NBYTES


def conv_nbytes(f: Mapping[str, ExprLike], dtype: DType, plan: CutPlan | None = None) -> Expr:
    """A worker's workspace for a convolution of the sizes f, named as the fields of conv.h's ConvShape. Product rows of
    bf16 may be counted over the zeros of a window, too, at most as many as the last tap lies behind the first."""
    rows, columns = as_expr(f["oh"]), as_expr(f["ow"])
    if dtype is DType.BF16:
        rows += (as_expr(f["kh"]) - 1) * as_expr(f["dilation_h"])
        columns += (as_expr(f["kw"]) - 1) * as_expr(f["dilation_w"])
    return gemm_nbytes(as_expr(f["n"]) * rows * columns, as_expr(f["oc"]) // as_expr(f["groups"]), dtype, plan)


def conv_input_nbytes(n: ExprLike, height: ExprLike, width: ExprLike, channels: ExprLike, dtype: DType) -> Expr:
    """The shared workspace for a copy of a convolution's input, channels last. Of int8 four are read at once: there is
    room for three behind the last one."""
    room = 3 if dtype is DType.I8 else 0
    return const(dtype.nbytes) * n * height * width * channels + room


def attention_nbytes(tk: ExprLike, d: ExprLike, dv: ExprLike, dtype: DType, codes: bool = False) -> Expr:
    """A worker's workspace for attention over tk keys of d elements and values of dv, or over codes of them."""
    numel = (half_attention_numel if dtype.is_half else attention_numel)(tk, d, dv)
    return (numel + key_numbers_numel(tk, d, dv) if codes else numel) * FLOAT_NBYTES


def sort_nbytes(n: ExprLike, element_nbytes: int) -> Expr:
    """A worker's workspace for sorting rows of n elements: items, and those that they are merged into."""
    return const(2 * _VALUES["kWideItemNbytes" if element_nbytes == 8 else "kItemNbytes"]) * n
