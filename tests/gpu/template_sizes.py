"""Real sizes for every template, on a GPU."""

from __future__ import annotations

from collections.abc import Callable

from hardtack.codegen.ir.types import DType
from tests.triton import template_cases as cases
from tests.triton.template_cases import Case

F32, F64, F16, BF16 = DType.F32, DType.F64, DType.F16, DType.BF16

CASES: dict[str, Callable[[], Case]] = {
    "gemm square": lambda: cases.gemm(1024, 1024, 1024, BF16, epilogue=True),
    "gemm large": lambda: cases.gemm(4096, 4096, 2048, F16),
    "gemm odd": lambda: cases.gemm(777, 1003, 515, BF16, epilogue=True),
    "gemm rows": lambda: cases.gemm(512, 3072, 768, F16, transposed=False, epilogue=True),
    "gemm f32": lambda: cases.gemm(300, 500, 700, F32, epilogue=True),
    "gemm f64": lambda: cases.gemm(100, 130, 170, F64, epilogue=True),
    "gemm gelu": lambda: cases.gemm(1000, 3072, 768, BF16, gelu=True),
    "gemm batched": lambda: cases.gemm(128, 64, 256, BF16, batch=(4, 12), constant=False),
    "gemm heads": lambda: cases.gemm(128, 128, 64, F16, batch=(2, 12), constant=False, left="heads"),
    "gemm dynamic": lambda: cases.gemm(333, 1024, 768, BF16, dynamic=True, epilogue=True),
    "gemm few rows": lambda: cases.gemm(8, 4096, 4096, BF16, epilogue=True),
    "gemm split": lambda: cases.gemm(64, 256, 8192, BF16, epilogue=True),
    "grouped": lambda: cases.grouped([500, 900, 2000, 4096], 4096, 1024, 1024, BF16),
    "grouped rows": lambda: cases.grouped([0, 0, 777, 778, 1000], 1003, 520, 136, F16, False, dynamic=True),
    "grouped few rows": lambda: cases.grouped([1, 2, 2, 3, 5, 6, 8, 8], 8, 4096, 1024, BF16),
    "grouped f32": lambda: cases.grouped([50, 70], 80, 100, 200, F32),
    "vector": lambda: cases.gemm(1, 4096, 4096, BF16, epilogue=True),
    "vector rows of B": lambda: cases.gemm(1, 4096, 4096, F16, transposed=False, epilogue=True),
    "vector odd": lambda: cases.gemm(1, 1003, 777, BF16),
    "codes row": lambda: cases.codes(1, 4096, 4096, BF16, 8, 4096),
    "codes row groups": lambda: cases.codes(1, 14336, 4096, F16, 8, 128),
    "codes row 4 bits": lambda: cases.codes(1, 4096, 14336, BF16, 4, 128),
    "codes row 4 bits odd": lambda: cases.codes(1, 1003, 1504, F32, 4, 32),
    "codes row float8": lambda: cases.codes(1, 4096, 4096, BF16, 8, 4096, DType.F8E4M3),
    "codes row wide float8": lambda: cases.codes(1, 1003, 1504, F16, 8, 32, DType.F8E5M2),
    "codes tile float8": lambda: cases.codes(24, 1000, 2048, BF16, 8, 128, DType.F8E4M3),
    "codes tile": lambda: cases.codes(7, 4096, 4096, BF16, 8, 4096),
    "codes tile f32": lambda: cases.codes(16, 515, 1536, F32, 8, 512),
    "codes tile 4 bits": lambda: cases.codes(33, 1000, 8192, BF16, 4, 128),
    "codes tile 4 bits groups": lambda: cases.codes(64, 3072, 2048, F16, 4, 32),
    "codes many rows": lambda: cases.codes(300, 1000, 2048, BF16, 4, 64),
    "attention": lambda: cases.attention((2, 12, 12, 512, 512, 64, 64), F16),
    "attention causal": lambda: cases.attention((1, 32, 8, 1024, 1024, 64, 64), BF16, causal=True, heads_inside=True),
    "attention 128": lambda: cases.attention((1, 16, 16, 1000, 1000, 128, 128), BF16, causal=True),
    "attention 256": lambda: cases.attention((1, 8, 8, 300, 300, 256, 256), BF16),
    "attention 80": lambda: cases.attention((2, 16, 16, 257, 257, 80, 80), F16, mask="add"),
    "attention keep": lambda: cases.attention((2, 8, 8, 200, 333, 64, 64), BF16, mask="keep", dynamic=True),
    "attention f32": lambda: cases.attention((2, 8, 8, 200, 200, 64, 64), F32, causal=True),
    "attention decode": lambda: cases.attention((1, 32, 8, 1, 2048, 64, 64), BF16, mask="keep"),
    "attention decode 128": lambda: cases.attention((4, 32, 8, 1, 1500, 128, 128), F16, mask="add"),
    "conv 3x3": lambda: cases.convolution([8, 64, 56, 56], 64, [3, 3], BF16, padding=1),
    "conv 1x1": lambda: cases.convolution([8, 256, 28, 28], 128, [1, 1], F16),
    "conv stem": lambda: cases.convolution([4, 3, 224, 224], 64, [7, 7], BF16, stride=2, padding=3),
    "conv deep": lambda: cases.convolution([1, 512, 7, 7], 512, [3, 3], BF16, padding=1),
    "conv f32": lambda: cases.convolution([2, 48, 20, 20], 72, [3, 3], F32, padding=1, groups=2),
    "conv 1d": lambda: cases.convolution([4, 80, 1000], 384, [3], F16, padding=1),
    "conv 3d": lambda: cases.convolution([1, 16, 9, 17, 17], 32, [3, 3, 3], BF16, padding=1, stride=2),
    "conv one tap high": lambda: cases.convolution([2, 12, 11, 14], 5, [1, 5], F32, stride=2, bias=False),
    "conv one tap wide": lambda: cases.convolution([2, 12, 11, 14], 5, [5, 1], BF16, padding=1, bias=False),
    "conv transposed": lambda: cases.convolution(
        [2, 64, 28, 28], 48, [4, 4], F16, stride=2, padding=1, transposed=True
    ),
    "conv weights given": lambda: cases.convolution([2, 40, 17, 19], 56, [3, 3], BF16, padding=1, constant=False),
    "depthwise": lambda: cases.convolution([4, 96, 56, 56], 96, [7, 7], BF16, groups=96, padding=3),
    "sort": lambda: cases.sort([64, 1000], 1, F32),
    "sort dynamic": lambda: cases.sort([5, 1000], 1, F32, longest=None),
    "sort halves": lambda: cases.sort([16, 2048], 1, BF16, descending=True),
    "sort long": lambda: cases.sort([3, 100_000], 1, F32),
    "sort f64": lambda: cases.sort([3, 3000], 1, F64),
    "topk": lambda: cases.sort([4, 32_000], 1, BF16, k=50, descending=True),
    "scan": lambda: cases.scan([64, 4096], 1, F32, "sum"),
    "scan columns": lambda: cases.scan([8, 1000, 48], 1, BF16, "sum"),
    "scan max": lambda: cases.scan([8, 5000], 1, F32, "max"),
    "scan ints": lambda: cases.scan([8, 5000], 1, DType.I32, "sum", DType.I64),
    "scan prod": lambda: cases.scan([8, 500], 1, F64, "prod"),
    "lstm": lambda: cases.recurrent("lstm", 20, 33, 128, 256, F32),
    "lstm halves": lambda: cases.recurrent("lstm", 20, 64, 128, 256, BF16, reverse=True),
    "gru": lambda: cases.recurrent("gru", 20, 5, 100, 130, F32, dynamic=True),
    "rnn_tanh": lambda: cases.recurrent("rnn_tanh", 20, 33, 128, 256, F32),
    "rnn_relu halves": lambda: cases.recurrent("rnn_relu", 20, 64, 128, 256, BF16, reverse=True),
    "gru f64": lambda: cases.recurrent("gru", 5, 5, 20, 30, F64),
}
"""Name -> a case."""
