"""How products are cut: the compiled template agrees with bench/schedule.py, every row is in one chunk, and every part
of the product is one unit's."""

from __future__ import annotations

import itertools

import pytest
import torch

from bench.schedule import PRODUCTS, Grid, Product, make_grid
from hardtack.codegen.machine.machine import Cpu
from tests.templates.cpu_kernels import load_library, runnable_targets

_SOURCE = """
#include "blocks.h"
extern "C" int32_t grid(const HtKernelArgs* args) {
  const int64_t* const i = args->ints;
  const ht::Grid g = ht::make_grid<ht::MachineBlocks<ELEMENT>>(i[0], i[1], i[2], i[3], i[4], BLOCK);
  int64_t* const out = static_cast<int64_t*>(args->buffers[0]);
  out[0] = g.row_blocks;
  out[1] = g.row_chunks;
  out[2] = g.panel_chunks;
  out[3] = g.units;
  out[4] = g.units_per_task;
  int64_t rows = 0;
  for (int64_t chunk = 0; chunk < g.row_chunks; chunk++) {
    const ht::Range r = g.rows(chunk);
    if (r.begin != rows || r.end <= r.begin || r.end - r.begin > ht::kChunkRows) return HT_KERNEL_ASSERT;
    rows = r.end;
  }
  if (rows != i[1] || g.units > i[5]) return HT_KERNEL_ASSERT;
  uint8_t* const seen = static_cast<uint8_t*>(args->buffers[1]);
  for (int one_input = 0; one_input < 2; one_input++) {
    int64_t row_chunk = 0;
    for (int64_t unit = 0; unit < g.units; unit++) {
      const ht::UnitPlace at = g.place(unit, one_input != 0);
      if (at.batch < 0 || at.batch >= i[0] || at.row_chunk < 0 || at.row_chunk >= g.row_chunks) return HT_KERNEL_ASSERT;
      if (at.panel_chunk < 0 || at.panel_chunk >= g.panel_chunks) return HT_KERNEL_ASSERT;
      uint8_t& times = seen[(at.batch * g.row_chunks + at.row_chunk) * g.panel_chunks + at.panel_chunk];
      if (times++ != one_input) return HT_KERNEL_ASSERT;
      if (one_input != 0 && at.row_chunk < row_chunk) return HT_KERNEL_ASSERT;  // a run of units is one of rows
      row_chunk = at.row_chunk;
    }
  }
  return HT_KERNEL_OK;
}
"""
_WORKERS = (1, 2, 3, 6, 16, 64, 1024)
_SMALL = [
    Product("", *sizes)
    for sizes in itertools.product((1, 7, 500), (1, 12, 13, 200, 385, 1000), (1, 33, 576, 700), (0, 3, 900))
]


@pytest.mark.parametrize("target", runnable_targets(), ids=lambda t: t.name)
@pytest.mark.parametrize("tiles", [False, True], ids=["vectors", "tiles"])
def test_the_simulator_cuts_as_the_template_does(target: Cpu, tiles: bool) -> None:
    """Tiles, too, on CPUs that have none but multiply pairs: the cut is computed alike."""
    if tiles and "avx512bf16" not in target.features:
        pytest.skip("operands of 16 bits are widened there")
    element, block = ("ht::bf16", "ht::kBlockRows") if tiles else ("float", "ht::kMaxRows")
    library = load_library({"grid": _SOURCE.replace("ELEMENT", element).replace("BLOCK", block)}, target)
    for product, workers in itertools.product((*PRODUCTS, *_SMALL), _WORKERS):
        expected = make_grid(product, workers, target, tiles)
        out, seen = torch.zeros(5, dtype=torch.int64), torch.zeros(expected.units, dtype=torch.uint8)
        sizes = [product.batches, product.m, product.n, product.k, workers, expected.units]
        assert library.call("grid", [out, seen], sizes) == 0, sizes
        assert Grid(*out.tolist()) == expected, sizes
        assert (seen == 2).all(), sizes
