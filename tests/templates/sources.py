"""Kernel sources for the template tests: each template with an epilogue that adds into its output.

Adding, rather than storing, shows an element that the template hands over twice.
"""

from __future__ import annotations

# out[m, n] += acc + bias[n], the row found through the epilogue's own Row.
EPILOGUE = """
struct Epilogue {
  float* out;
  const float* bias;
  int64_t rows_per_batch, ld;
  static constexpr int kOperations = 4;
  static constexpr bool kOneRow = false;
  struct Row { float* out; };
  HT_MEMBER Row row(int64_t batch, int64_t m) const { return {out + (batch * rows_per_batch + m) * ld}; }
  HT_MEMBER void operator()(const Row& r, int64_t m, int64_t n, int count, ht::vec<float> acc) const {
    part(r, m, n, count, acc);
  }
  HT_MEMBER void part(const Row& r, int64_t, int64_t n, int count, ht::vec<float> acc) const {
    const ht::vec<float> sum = acc + ht::load_n(bias + n, count) + ht::load_n(r.out + n, count);
    ht::store_n(r.out + n, sum, count);
  }
};
"""

_PROLOGUE = """
  float* const* b = reinterpret_cast<float* const*>(args->buffers);
  const int64_t* i = args->ints;
"""


def kernel(name: str, headers: str, body: str) -> str:
    """One kernel around ``body``, which sees its buffers as ``b`` and its integers as ``i``."""
    includes = "".join(f'#include "{header}"\n' for header in headers.split())
    return f'{includes}{EPILOGUE}extern "C" int32_t {name}(const HtKernelArgs* args) {{{_PROLOGUE}{body}}}\n'


GEMM_PACKED = kernel(
    "gemm_packed",
    "gemm.h",
    "return ht::gemm_packed(args, b[0], i[3], b[1], i[0], i[1], i[2], Epilogue{b[3], b[2], 0, i[1]});",
)

GEMM_DYNAMIC = kernel(
    "gemm_dynamic",
    "gemm.h",
    """
  const ht::DynamicShape shape = {i[0], i[1], i[2], i[3], i[4]};
  const ht::MatrixBatch<float> x = {b[0], i[5], i[6], i[7], i[8]}, y = {b[1], i[9], i[10], i[11], i[12]};
  return ht::gemm_dynamic(args, shape, x, y, Epilogue{b[3], b[2], shape.m, shape.n});
""",
)

SHAPE = """
  const ht::ConvShape s = {i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], i[8], i[9], i[10], i[11], i[12], i[13],
                           i[14], i[15], i[16], i[17], i[18], i[19]};
  const Epilogue epilogue = {b[3], b[2], 0, s.oc};
"""

CONV = kernel("conv2d", "conv.h", SHAPE + "return ht::conv2d(args, s, b[0], b[1], epilogue);")
WINOGRAD = kernel("winograd2d", "winograd.h", SHAPE + "return ht::winograd2d(args, s, b[0], b[1], epilogue);")
CONV_TRANSPOSED = kernel(
    "conv_transposed2d",
    "conv_transposed.h",
    SHAPE + "return ht::conv_transposed2d(args, s, b[0], b[1], epilogue);",
)
DEPTHWISE = kernel("depthwise2d", "depthwise.h", SHAPE + "return ht::depthwise2d(args, s, b[0], b[1], epilogue);")


def depthwise_known(kw: int, stride_w: int) -> tuple[str, str]:
    """The depthwise kernel for a filter width and a stride known when it is compiled: its name and source."""
    name = f"depthwise2d_{kw}_{stride_w}"
    body = f"{SHAPE}return ht::depthwise2d<{kw}, {stride_w}>(args, s, b[0], b[1], epilogue);"
    return name, kernel(name, "depthwise.h", body)


ALL = {
    "gemm_packed": GEMM_PACKED,
    "gemm_dynamic": GEMM_DYNAMIC,
    "conv2d": CONV,
    "winograd2d": WINOGRAD,
    "conv_transposed2d": CONV_TRANSPOSED,
    "depthwise2d": DEPTHWISE,
    **dict(depthwise_known(kw, stride) for kw in (3, 5) for stride in (1, 2)),
}
