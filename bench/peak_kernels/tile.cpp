// Products of tiles of bfloat16 (TDPBF16PS), two by two of them, as a blocked product reads them: from the first-level
// cache. The process has asked for tile registers.
#include "hardtack/kernel_abi.h"
#include "simd.h"

namespace {
struct Config {
  uint8_t palette, start_row, zero[14];
  uint16_t row_nbytes[16];
  uint8_t rows[16];
};
constexpr int kRows = 16, kRowNbytes = 64, kTile = kRows * kRowNbytes;
}  // namespace

extern "C" int32_t tile(const HtKernelArgs* args) {
  double* out = static_cast<double*>(args->buffers[0]);
  const char* in = static_cast<const char*>(args->buffers[1]);
  Config config = {1, 0, {}, {}, {}};
  for (int t = 0; t < 8; t++) {
    config.row_nbytes[t] = kRowNbytes;
    config.rows[t] = kRows;
  }
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < args->ints[0]; k++) {
    const char* block = in + (k % 4) * 4 * kTile;
    _tile_loadd(4, block, kRowNbytes);
    _tile_loadd(5, block + kTile, kRowNbytes);
    _tile_loadd(6, block + 2 * kTile, kRowNbytes);
    _tile_loadd(7, block + 3 * kTile, kRowNbytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  float sums[4][kRows][16];
  _tile_stored(0, sums[0], kRowNbytes);
  _tile_stored(1, sums[1], kRowNbytes);
  _tile_stored(2, sums[2], kRowNbytes);
  _tile_stored(3, sums[3], kRowNbytes);
  _tile_release();
  out[1] = sums[0][0][0] + sums[1][1][1] + sums[2][2][2] + sums[3][3][3];
  out[0] = 4.0 * 2 * kRows * 16 * 32 * static_cast<double>(args->ints[0]);
  return HT_KERNEL_OK;
}
