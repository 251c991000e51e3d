"""Programs of one kind: tables whose entries are combined, each combination a program, and one of draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.fuzz import (
    cache_forms,
    dtype_pairs,
    functions,
    idioms,
    index_forms,
    mend_forms,
    reductions,
    stride_forms,
    view_writes,
)
from tests.fuzz.draw import draw
from tests.fuzz.families import FAMILIES, blocks, numbers, quantised
from tests.fuzz.program import Program, without_dead


@dataclass(frozen=True)
class Sweep:
    """program: that of a seed; after `total` seeds they come again in another form. usual: how many run with --graph,
    unless more are asked for.
    """

    program: Callable[[int], Program]
    total: int
    usual: int

    def sample(self, count: int, first: int = 0) -> list[int]:
        """So many seeds from `first` on, evenly over the combinations."""
        step = max(1, self.total // count) | 1
        return [first + k * step for k in range(count)]


def _number_lines(seed: int) -> Program:
    """A random program of lines that read Python numbers, and no others."""
    return draw(seed, numbers.FAMILIES)


def _quantised_lines(seed: int) -> Program:
    """A random program of which every other line is one of a quantised model."""
    return draw(seed, (*quantised.FAMILIES, *(f for f in FAMILIES if not f.numbers)))


def _block_lines(seed: int) -> Program:
    """One or two products with weights in blocks, as MXFP4, MXFP8 and NVFP4 are."""
    found = draw(seed, blocks.FAMILIES)
    lines = found.lines[: 1 + seed % 2]
    return without_dead(replace(found, lines=lines, outputs=tuple(t for line in lines for t in line.targets)))


SWEEPS = {
    "sizes": Sweep(idioms.idiom, idioms.COUNT, idioms.COUNT),
    "writes": Sweep(view_writes.view_write, view_writes.COUNT, 20_000),
    "strides": Sweep(stride_forms.stride_form, stride_forms.COUNT, 20_000),
    "indices": Sweep(index_forms.index_form, index_forms.COUNT, index_forms.COUNT),
    "reductions": Sweep(reductions.reduction, reductions.COUNT, 20_000),
    "functions": Sweep(functions.function, functions.COUNT, functions.COUNT),
    "dtypes": Sweep(dtype_pairs.dtype_pair, dtype_pairs.COUNT, dtype_pairs.COUNT),
    "numbers": Sweep(_number_lines, 1, 5_000),
    "quantised": Sweep(_quantised_lines, 1, 5_000),
    "blocks": Sweep(_block_lines, 1, 2_000),
    "caches": Sweep(cache_forms.cache_form, 1, 2_000),
    "mends": Sweep(mend_forms.mend_form, mend_forms.COUNT, 2_000),
}
