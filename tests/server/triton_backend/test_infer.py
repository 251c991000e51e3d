"""Inference through a real Triton server: values against eager torch, bad requests, batches."""

from __future__ import annotations

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from torch import nn
from triton_server import SERVER_LIBRARIES, Array, TritonServer, infer, infer_grpc, tensor
from tritonclient.utils import InferenceServerException

BOTH = pytest.mark.parametrize("ask", [infer, infer_grpc], ids=["http", "grpc"])


def rows(n: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((n, 16), dtype=np.float32)


def eager(module: nn.Module, x: Array) -> Array:
    with torch.no_grad():
        out: Array = module(torch.from_numpy(x)).numpy()
    return out


def symbols(library: Path, *options: str) -> set[str]:
    listed = subprocess.run(["nm", "-D", *options, str(library)], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listed.splitlines() if "TRITON" in line.split()[-1]}


def test_the_server_has_every_function_that_the_backend_declares(backend: Path) -> None:
    (core,) = SERVER_LIBRARIES.glob("libtritonserver*.so")
    needed = symbols(backend, "--undefined-only")
    assert "TRITONBACKEND_ModelInstanceReportBatchStatistics" in needed
    assert needed <= symbols(core, "--defined-only")
    exported = {
        "Initialize", "Finalize", "GetBackendAttribute", "ModelInitialize", "ModelFinalize", "ModelInstanceInitialize",
        "ModelInstanceFinalize", "ModelInstanceExecute",
    }  # fmt: skip
    assert symbols(backend, "--defined-only") == {f"TRITONBACKEND_{name}" for name in exported}


@BOTH
def test_batches(server: TritonServer, bundles: dict[str, Path], modules: dict[str, nn.Module], ask: Any) -> None:
    name = f"batches_{ask.__name__}"
    server.add(name, bundles["mlp"], "max_batch_size: 64")
    for n in (1, 3, 64):
        out = ask(server, name, {"x": rows(n)})["output"]
        assert (out.shape, out.dtype) == ((n, 4), np.float32)
        np.testing.assert_allclose(out, eager(modules["mlp"], rows(n)), rtol=1e-5, atol=1e-5)
    with pytest.raises(InferenceServerException, match=r"inference request batch-size must be <= 64"):
        ask(server, name, {"x": rows(65)})


@BOTH
def test_dtypes(server: TritonServer, bundles: dict[str, Path], ask: Any) -> None:
    name = f"dtypes_{ask.__name__}"
    server.add(name, bundles["many"], "")
    inputs = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([True, False, False, True]),
        "c": np.array([1, -2, 2**40]), "d": np.array([1.5, -3], ml_dtypes.bfloat16),
        "e": np.array([3, 5], np.float16), "n": np.array([41]),
    }  # fmt: skip
    out = ask(server, name, inputs)
    expected = {
        "a": inputs["a"] + 1, "b": ~inputs["b"], "c": inputs["c"] * 2, "d": np.array([3, -6], ml_dtypes.bfloat16),
        "e": np.array([1.5, 2.5]), "n": np.array([42]), "u": np.array([3, 5], np.uint8),
    }  # fmt: skip
    assert len(out) == len(expected)
    for found, wanted in zip(out.values(), expected.values(), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)


def test_json_tensors_and_chosen_outputs(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("chosen", bundles["many"], "")
    inputs = {
        "a": np.zeros((2, 3), np.float32), "b": np.zeros(4, bool), "c": np.zeros(3, np.int64),
        "d": np.zeros(2, ml_dtypes.bfloat16), "e": np.zeros(2, np.float16), "n": np.array([1]),
    }  # fmt: skip
    given = [tensor(triton_http, n, a, binary=n in "de") for n, a in inputs.items()]
    names = [o["name"] for o in server.http.get_model_metadata("chosen")["outputs"]]
    asked = [triton_http.InferRequestedOutput(names[i], binary_data=False) for i in (5, 0)]
    reply = server.http.infer("chosen", given, outputs=asked, request_id="seven")
    assert reply.get_response()["id"] == "seven"
    assert {o["name"]: o["data"] for o in reply.get_response()["outputs"]} == {names[0]: [1.0] * 6, names[5]: [2]}


def test_memory_order_of_channels_last(
    server: TritonServer, bundles: dict[str, Path], modules: dict[str, nn.Module]
) -> None:
    """The bundle wants (N, H, W, C) in memory; clients of Triton send row-major."""
    server.add(
        "pixels", bundles["pixels"], "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 300000 }"
    )
    images = [np.random.default_rng(s).standard_normal((1 + s % 2, 3, 2, 5), dtype=np.float32) for s in range(4)]
    with ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(lambda x: infer_grpc(server, "pixels", {"x": x})["output"], images))
    for x, out in zip(images, outs, strict=True):
        np.testing.assert_array_equal(out, eager(modules["pixels"], x))
    assert server.stats("pixels")["execution_count"] < 4


BAD = {
    "width": ({"x": np.zeros((1, 15), np.float32)}, "unexpected shape for input 'x'"),
    "rank": ({"x": np.zeros(16, np.float32)}, "unexpected shape for input 'x'"),
    "no rows": (
        {"x": np.zeros((0, 16), np.float32)},
        "input byte size mismatch for input 'x' for model 'bad'. Expected 64, got 0",
    ),
    "dtype": ({"x": np.zeros((1, 16))}, "inference input 'x' data-type is 'FP64', but model 'bad' expects 'FP32'"),
    "strings": ({"x": np.full((1, 16), "a", object)}, "data-type is 'BYTES', but model 'bad' expects 'FP32'"),
    "missing": ({}, "expected 1 inputs but got 0 inputs"),
    "unknown": ({"y": np.zeros((1, 16), np.float32)}, "unexpected inference input 'y'"),
}


@BOTH
@pytest.mark.parametrize("case", BAD)
def test_bad_requests(server: TritonServer, bundles: dict[str, Path], ask: Any, case: str) -> None:
    if not server.http.is_model_ready("bad"):
        server.add("bad", bundles["mlp"], "max_batch_size: 32")
    inputs, message = BAD[case]
    with pytest.raises(InferenceServerException, match=re.escape(message)):
        ask(server, "bad", inputs)
    assert ask(server, "bad", {"x": rows(2)})["output"].shape == (2, 4)


def test_a_bad_request_does_not_spoil_its_batch(
    server: TritonServer, bundles: dict[str, Path], modules: dict[str, nn.Module]
) -> None:
    delay = "max_batch_size: 16 dynamic_batching { max_queue_delay_microseconds: 500000 preferred_batch_size: [ 12 ] }"
    server.add("spoiled", bundles["words"], delay)
    bad = 5
    batches = [np.full((1, 4), 10 if i == bad else i % 10) for i in range(12)]

    def one(ids: Array) -> Array | str:
        try:
            return infer_grpc(server, "spoiled", {"ids": ids})["output"]
        except InferenceServerException as error:
            return f"{error.status()}: {error.message()}"

    with ThreadPoolExecutor(12) as pool:
        outs = list(pool.map(one, batches))
    for i, out in enumerate(outs):
        if i == bad:
            assert isinstance(out, str)
            assert out.startswith("StatusCode.INVALID_ARGUMENT: ")
            assert "index" in out
        else:
            np.testing.assert_array_equal(out, eager(modules["words"], batches[i]))
    counted = server.metrics("spoiled")
    assert (counted["request_success"], counted["failure.BACKEND"], counted["count"]) == (11, 1, 11)


def test_requests_are_joined(server: TritonServer, bundles: dict[str, Path], modules: dict[str, nn.Module]) -> None:
    delay = "max_batch_size: 32 dynamic_batching { max_queue_delay_microseconds: 500000 preferred_batch_size: [ 24 ] }"
    server.add("joined", bundles["mlp"], delay)
    batches = [rows(1 + i % 3, i) for i in range(12)]
    with ThreadPoolExecutor(12) as pool:
        outs = list(pool.map(lambda x: infer_grpc(server, "joined", {"x": x})["output"], batches))
    for x, out in zip(batches, outs, strict=True):
        np.testing.assert_allclose(out, eager(modules["mlp"], x), rtol=1e-5, atol=1e-5)
    stats = server.stats("joined")
    assert stats["inference_count"] == 24
    assert stats["execution_count"] < 6
    assert sum(int(b["batch_size"]) * b["compute_infer"]["count"] for b in stats["batch_stats"]) == 24
    assert stats["inference_stats"]["success"]["count"] == 12
    assert stats["inference_stats"]["compute_infer"]["ns"] > 0
    counted = server.metrics("joined")
    assert counted["request_success"] == 12
    assert counted["count"] == 24
    assert counted["exec_count"] == stats["execution_count"]


@pytest.mark.parametrize(
    "ragged", ["", "input { name: 'ids' data_type: TYPE_INT64 dims: -1 allow_ragged_batch: true }"]
)
def test_lengths_that_differ(
    server: TritonServer, bundles: dict[str, Path], modules: dict[str, nn.Module], ragged: str
) -> None:
    """Requests of one length run together, others apart; the answer to each is its own."""
    name = f"lengths{len(ragged)}"
    config = f"max_batch_size: 64 dynamic_batching {{ max_queue_delay_microseconds: 300000 }} {ragged}"
    server.add(name, bundles["words"], config)
    batches = [np.random.default_rng(i).integers(0, 10, (1 + i % 2, (4, 9, 9, 32)[i % 4])) for i in range(12)]
    with ThreadPoolExecutor(12) as pool:
        outs = list(pool.map(lambda x: infer_grpc(server, name, {"ids": x})["output"], batches))
    for x, out in zip(batches, outs, strict=True):
        np.testing.assert_array_equal(out, eager(modules["words"], x))
    assert server.stats(name)["execution_count"] < 12
    message = "dim 1 is 33|length|33"
    with pytest.raises(InferenceServerException, match=message):
        infer(server, name, {"ids": np.zeros((1, 33), np.int64)})


def test_cancelled_and_late_requests_leave_the_server_well(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("late", bundles["mlp"], "max_batch_size: 8 dynamic_batching { max_queue_delay_microseconds: 500000 }")
    calls = []
    for _ in range(4):
        answers: list[Any] = []
        given = [tensor(triton_grpc, "x", rows(1))]
        calls.append(
            server.grpc.async_infer("late", given, callback=lambda result, error, a=answers: a.append(error or result))
        )
    end = time.monotonic() + 10
    while server.metrics("late")["pending_request_count"] < 4 and time.monotonic() < end:
        time.sleep(0.01)
    for call in calls[:2]:
        call.cancel()
    assert infer(server, "late", {"x": rows(1)})["output"].shape == (1, 4)
    with pytest.raises(InferenceServerException, match="Deadline Exceeded"):
        infer_grpc(server, "late", {"x": rows(1)}, client_timeout=0.02)
    assert infer(server, "late", {"x": rows(2)})["output"].shape == (2, 4)
    counted = server.metrics("late")
    failures = sum(n for key, n in counted.items() if key.startswith("failure."))
    # One whose time was over before it left the client never came.
    assert counted["request_success"] + failures in (6, 7)
    assert failures <= 3
