// Blocking numbers of the templates, and how many elements the parts of workspaces have: what a plan
// asks the runtime for. Written by codegen/lower/cpu_workspace.py; change them there.
#ifndef HARDTACK_TEMPLATES_WORKSPACE_H
#define HARDTACK_TEMPLATES_WORKSPACE_H

#include "parallel.h"

namespace ht {

constexpr int64_t kPanel = 32;                // columns in a panel of packed weights
constexpr int64_t kMostRows = 12;             // rows of the tallest microkernel of any target
constexpr int64_t kMostDepth = 2048;          // longest k block that any plan has
constexpr int64_t kAhead = 64;                // k of B that are asked for ahead of their use
constexpr int64_t kGrain = 32;                // k of 16-bit numbers that a tile takes at once
constexpr int64_t kBlockRows = 32;            // rows of a block of tiles
constexpr int64_t kRowsOfK = 16;              // floats for each k of a block's staged rows of 16-bit numbers
constexpr int64_t kSpreadK = 128;             // k from which rows of A in one set of the first-level cache are copied
constexpr int64_t kMaxTaps = 64;              // most taps in a k block
constexpr int64_t kChunkRows = 192;           // most rows in a unit of a product
constexpr int64_t kUnitRowNbytes = 1024;      // of B that a unit reads for a k
constexpr int64_t kPrivateNbytes = 786432;    // weights that stay in a core's own cache
constexpr int64_t kWakeProducts = 200000;     // multiplications that outweigh waking the other threads
constexpr int64_t kFewTiles = 256;            // tiles of a convolution up to which each worker transforms its filters
constexpr int64_t kPositions = 16;            // of a tile or filter that is transformed
constexpr int64_t kFinishTiles = 8;           // tiles whose results are made at once, and stay in the first-level cache
constexpr int64_t kShortTap = 16;             // channels below which the taps of a filter row are laid side by side
constexpr int64_t kKeyBlock = 256;            // keys of attention packed at once
constexpr int64_t kQueryBlock = 96;           // query rows of a task of attention
constexpr int64_t kItemNbytes = 8;            // a key and an index that a sort moves
constexpr int64_t kWideItemNbytes = 16;       // the same for keys of 8 bytes

// Of the machine, with the compiler's flags: codegen/machine/blocking.py.
constexpr int64_t kStagedDepth = HT_STAGED_DEPTH;               // longest k block of staged rows
constexpr int64_t kFloatDepth = HT_FLOAT_DEPTH;                 // of float rows
constexpr int64_t kUnitNbytes = HT_UNIT_NBYTES;                 // of B that a unit multiplies with
constexpr int64_t kSecondLevelNbytes = HT_SECOND_LEVEL_NBYTES;  // of a core's own cache

// Panels that n columns fill.
constexpr int64_t panels_of(int64_t n) {
  return (n + 31) / 32;
}

// A worker's sums of a product of m rows and n columns.
constexpr int64_t tile_numel(int64_t m, int64_t n, int64_t rows, int64_t panels) {
  return 32*least(m, rows)*least(panels, ((n + 31) / 32));
}

// Rows of A, copied where they are not dense.
constexpr int64_t copied_rows_numel(int64_t k, int64_t depth) {
  return 12*least(depth, k);
}

// The same of 16-bit numbers, of which a block has up to 32 rows.
constexpr int64_t copied_halves_numel(int64_t k, int64_t depth) {
  return 16*least(depth, k);
}

// The staged rows of 16-bit numbers: of a block, as float, or all of a unit's in whole blocks of tiles.
constexpr int64_t staged_numel(int64_t m, int64_t depth) {
  return depth*most(16, (least(192, (32*((m + 31) / 32))) / 2));
}

// Rows of A of kSpreadK or more, each with less than two lines more than it fills.
constexpr int64_t spread_rows_numel(int64_t m, int64_t depth) {
  return ((depth / 4)*least(12, m)) + (depth*least(12, m));
}

// A unit's part of B, packed or made float.
constexpr int64_t packed_panels_numel(int64_t n, int64_t k, int64_t depth, int64_t unit_depth) {
  return 32*least(unit_depth, (((n + 31) / 32)*least(depth, k)));
}

// A block of keys of d elements, transposed.
constexpr int64_t packed_keys_numel(int64_t tk, int64_t d) {
  return d*least(256, (32*((tk + 31) / 32)));
}

// A block of values of dv elements, in panels.
constexpr int64_t packed_values_numel(int64_t tk, int64_t dv) {
  return 32*((dv + 31) / 32)*least(256, (32*((tk + 31) / 32)));
}

// Scores of a tile's rows with a block.
constexpr int64_t scores_numel(int64_t tk) {
  return 12*least(256, (32*((tk + 31) / 32)));
}

// The same of 16-bit numbers, of which a tile has up to 32 rows.
constexpr int64_t half_scores_numel(int64_t tk) {
  return 32*least(256, (32*((tk + 31) / 32)));
}

// Queries of 16-bit numbers, as float or as they are in whole tiles.
constexpr int64_t half_queries_numel(int64_t d) {
  return 96*most(d, (16*((d + 31) / 32)));
}

// What a task has of its result so far.
constexpr int64_t query_rows_numel(int64_t dv) {
  return 3072*((dv + 31) / 32);
}

// All of these for float, and a running maximum and sum for each query.
constexpr int64_t attention_numel(int64_t tk, int64_t d, int64_t dv) {
  return (12*least(256, (32*((tk + 31) / 32)))) + (3072*((dv + 31) / 32)) + (32*((dv + 31) / 32)*least(256, (32*((tk + 31) / 32)))) + (d*least(256, (32*((tk + 31) / 32)))) + 192;
}

// The same for 16-bit numbers.
constexpr int64_t half_attention_numel(int64_t tk, int64_t d, int64_t dv) {
  return (3072*((dv + 31) / 32)) + (32*((dv + 31) / 32)*least(256, (32*((tk + 31) / 32)))) + (32*least(256, (32*((tk + 31) / 32)))) + (96*most(d, (16*((d + 31) / 32)))) + (d*least(256, (32*((tk + 31) / 32)))) + 192;
}

// A block of keys and values, of their codes.
constexpr int64_t key_numbers_numel(int64_t tk, int64_t d, int64_t dv) {
  return (d*least(256, (32*((tk + 31) / 32)))) + (dv*least(256, (32*((tk + 31) / 32))));
}

// Input rows or columns that so many windows cover.
constexpr int64_t window_extent(int64_t outputs, int64_t stride, int64_t taps, int64_t dilation) {
  return most(0, ((-1*dilation) + (-1*stride) + (dilation*taps) + (outputs*stride) + 1));
}

// From one position of transformed tiles to the next: a line more than they fill, so that not all lie in one set.
constexpr int64_t position_stride(int64_t rows, int64_t ld) {
  return (ld*rows) + 16;
}

// Most tiles in a unit of a convolution.
constexpr int64_t winograd_tiles(int64_t tiles, int64_t c) {
  return least(least(256, tiles), (12*most(2, (10240 / ((12*c) + 384)))));
}

// The same where there are few tiles, whose unit transforms its filters, too.
constexpr int64_t winograd_few_tiles(int64_t tiles, int64_t c) {
  return least(least(256, tiles), most(24, (65536 / most(1, c))));
}

// What a worker transforms: a unit's tiles, and where they are few a row of positions of a panel.
constexpr int64_t winograd_operand_numel(int64_t tiles, int64_t c) {
  return most(((128*c) + (16*c*least(least(256, tiles), most(24, (65536 / most(1, c))))) + 256), ((16*c*least(least(256, tiles), (12*most(2, (10240 / ((12*c) + 384)))))) + 256));
}

// A worker's products of tiles and a panel.
constexpr int64_t winograd_sums_numel(int64_t tiles) {
  return (512*least(256, tiles)) + 256;
}

// Both, and room for a tile's inputs or for results that are made at once.
constexpr int64_t winograd_numel(int64_t tiles, int64_t c) {
  return (512*least(256, tiles)) + most(1024, (16*c)) + most(((128*c) + (16*c*least(least(256, tiles), most(24, (65536 / most(1, c))))) + 256), ((16*c*least(least(256, tiles), (12*most(2, (10240 / ((12*c) + 384)))))) + 256)) + 256;
}

// The filters, transformed for all workers where there are many tiles.
constexpr int64_t winograd_shared_numel(int64_t tiles, int64_t c, int64_t oc) {
  return 512*c*((oc + 31) / 32)*least(1, most(0, (tiles + -256)));
}

}  // namespace ht

#endif  // HARDTACK_TEMPLATES_WORKSPACE_H
