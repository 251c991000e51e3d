"""Random and damaged requests: each is answered once, with a status that fits, and the server lives on."""

from __future__ import annotations

import json
import zlib
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Server, binary_body

X = np.array([[1, 2, 3, 0]], np.float32)
FIXED = settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
BINARY, BINARY_HEADERS = binary_body(
    [("x", "FP32", X)], id="a", outputs=[{"name": "y", "parameters": {"binary_data": True}}]
)
TEXT = json.dumps(
    {"id": "a", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [[1, 2, 3, 0]]}]}
).encode()

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
KEYS = st.sampled_from(
    ["id", "inputs", "outputs", "parameters", "name", "datatype", "shape", "data", "timeout", "binary_data_size", "x"]
)
NAMES = st.sampled_from(["x", "y", "FP32", "INT64", "BYTES", ""])
TREES: st.SearchStrategy[Any] = st.recursive(
    SCALARS | NAMES, lambda t: st.lists(t, max_size=4) | st.dictionaries(KEYS, t, max_size=5), max_leaves=25
)


def answered(server: Server, body: bytes, headers: dict[str, str]) -> int:
    answer = server.request("POST", "/v2/models/spin/infer", body, headers)
    if answer.status == 200:
        assert answer.headers["content-type"] in ("application/json", "application/octet-stream")
    else:
        assert answer.status in (400, 413), answer
        assert len(answer.error) > 10
    return answer.status


@FIXED
@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_documents_of_any_form(server: Server, document: dict[str, Any]) -> None:
    answered(server, json.dumps(document).encode(), {})


@FIXED
@given(st.integers(0, len(TEXT) - 1), st.integers(0, 255), st.sampled_from(["set", "cut", "double", "insert"]))
def test_damaged_json(server: Server, place: int, byte: int, how: str) -> None:
    one = bytes([byte])
    answered(server, damaged(TEXT, place, one, how), {})


@FIXED
@given(
    st.integers(0, len(BINARY) - 1),
    st.integers(0, 255),
    st.sampled_from(["set", "cut", "double", "insert"]),
    st.integers(-3, 3),
)
def test_damaged_binary(server: Server, place: int, byte: int, how: str, shift: int) -> None:
    length = int(BINARY_HEADERS["Inference-Header-Content-Length"]) + shift
    answered(server, damaged(BINARY, place, bytes([byte]), how), {"Inference-Header-Content-Length": str(length)})


@FIXED
@given(st.integers(0, 60), st.integers(0, 255), st.sampled_from(["set", "cut", "insert"]))
def test_damaged_streams(server: Server, place: int, byte: int, how: str) -> None:
    answered(server, damaged(zlib.compress(TEXT), place, bytes([byte]), how), {"Content-Encoding": "deflate"})


@FIXED
@given(st.binary(max_size=300))
def test_noise_instead_of_http(server: Server, noise: bytes) -> None:
    answers = server.raw(noise, b"\r\n\r\n")
    assert all(a.status in (200, 400, 404, 405, 408, 411, 413, 417, 431, 501, 505) for a in answers)
    assert len(answers) >= 1


def damaged(data: bytes, place: int, one: bytes, how: str) -> bytes:
    if how == "set":
        return data[:place] + one + data[place + 1 :]
    if how == "cut":
        return data[:place]
    if how == "insert":
        return data[:place] + one + data[place:]
    return data[:place] + data[place // 2 :]


def test_the_server_is_well(server: Server) -> None:
    """After all of the above (it is one server): the same answer as ever."""
    assert server.infer("spin", X).json()["outputs"][0]["data"] == [2, 4, 6, 0]
