"""Requests of the serving benchmarks, prepared for bench/serving_load: their bytes, and what must come back."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Protocol = Literal["http", "grpc"]

ID = "#" * 16
"""Where the load generator writes the number of the request."""

TYPES = {"float32": ("FP32", 2, 32), "int64": ("INT64", 0, 64)}
"""The protocol's name, DLPack's type code and the bits, by numpy's name."""


@dataclass(frozen=True)
class Case:
    inputs: dict[str, Array]
    expected: npt.NDArray[np.float32]
    """The only output, by eager PyTorch."""
    tolerance: float = 1e-4
    """Of the difference, absolute and relative to what is expected."""


def http_request(model: str, inputs: dict[str, Array]) -> bytes:
    """A request of the binary extension, head and body; the elements of the inputs are its last bytes, in order."""
    described = [
        {
            "name": name,
            "datatype": TYPES[x.dtype.name][0],
            "shape": list(x.shape),
            "parameters": {"binary_data_size": x.nbytes},
        }
        for name, x in inputs.items()
    ]
    text = json.dumps({"id": ID, "inputs": described, "parameters": {"binary_data_output": True}}).encode()
    body = text + b"".join(x.tobytes() for x in inputs.values())
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/octet-stream\r\n"
        f"Content-Length: {len(body)}\r\nInference-Header-Content-Length: {len(text)}\r\n\r\n"
    )
    return head.encode() + body


def grpc_request(model: str, inputs: dict[str, Array]) -> bytes:
    """A serialized ModelInferRequest with raw contents."""
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name=model, id=ID)
    for name, x in inputs.items():
        tensor = message.inputs.add(name=name, datatype=TYPES[x.dtype.name][0])
        tensor.shape.extend(x.shape)
        message.raw_input_contents.append(x.tobytes())
    return bytes(message.SerializeToString())


def packed(protocol: Protocol, model: str, case: Case) -> bytes:
    """A case as bench/serving_load/cases.cpp reads it."""
    request = {"http": http_request, "grpc": grpc_request}[protocol](model, case.inputs)
    numbers = [request.index(ID.encode()), len(case.inputs)]
    for x in case.inputs.values():
        _, code, bits = TYPES[x.dtype.name]
        numbers += [code, bits, x.ndim, *x.shape, request.rindex(x.tobytes())]
    numbers.append(case.expected.size)
    head = struct.pack("<Q", len(request)) + request + struct.pack(f"<{len(numbers)}Q", *numbers)
    return head + case.expected.tobytes() + struct.pack("<d", case.tolerance)


def write_cases(path: Path, protocol: Protocol, model: str, cases: Sequence[Case]) -> Path:
    path.write_bytes(struct.pack("<Q", len(cases)) + b"".join(packed(protocol, model, case) for case in cases))
    return path
