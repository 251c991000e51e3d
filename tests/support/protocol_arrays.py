"""Arrays of every dtype that the protocol tests send, over HTTP and gRPC, with the protocol's names of the dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np

X = np.array([[1, 2, 3, 0], [4, 5, 6, 0]], np.float32)
NAMES = {
    "f32": "FP32", "f64": "FP64", "f16": "FP16", "bf16": "BF16", "i8": "INT8", "i16": "INT16", "i32": "INT32",
    "i64": "INT64", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "bool": "BOOL",
}  # fmt: skip
ARRAYS: dict[str, Any] = {
    "f32": np.array([[0.1, -2.5, 3e38], [0, 1e-40, 7]], np.float32),
    "f64": np.array([[0.1, -2.5, 1e300], [0, 5e-324, 7]], np.float64),
    "f16": np.array([[0.1, -2.5, 3], [0, 1, 7]], np.float16),
    "bf16": np.arange(6, dtype=np.uint16).reshape(2, 3),
    "i8": np.array([[-128, 127, 0], [1, 2, 3]], np.int8),
    "i16": np.array([[-32768, 32767, 0], [1, 2, 3]], np.int16),
    "i32": np.array([[-(2**31), 2**31 - 1, 0], [1, 2, 3]], np.int32),
    "i64": np.array([[-(2**63), 2**63 - 1, 0], [1, 2**53 + 1, 3]], np.int64),
    "u8": np.array([[255, 0, 1], [1, 2, 3]], np.uint8),
    "u16": np.array([[65535, 0, 1], [1, 2, 40000]], np.uint16),
    "u32": np.array([[2**32 - 1, 0, 1], [1, 2**31, 3]], np.uint32),
    "bool": np.array([[True, False, True], [False, True, True]]),
}
SCALAR = np.array(1.5, np.float32)
