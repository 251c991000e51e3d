"""Random and damaged requests: each is answered once, with a status that fits, and the server lives on."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import Answer, Server, binary_body

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
    for answer in answers:
        legal(answer)
    assert len(answers) >= 1


HEAD = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n" % len(TEXT)
WHOLE = HEAD + b"Accept-Encoding: gzip\r\n\r\n" + TEXT
FINE = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
LEGAL = (200, 400, 404, 405, 408, 411, 413, 417, 431, 501, 505)


def is_well(server: Server) -> None:
    assert server.infer("spin", X).json()["outputs"][0]["data"] == [2, 4, 6, 0]


def legal(answer: Answer) -> None:
    assert answer.status in LEGAL, answer
    assert answer.status == 200 or len(answer.error) > 10, answer


@FIXED
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 255), st.sampled_from(["set", "cut", "double", "insert"]))
def test_damaged_heads(server: Server, place: int, byte: int, how: str) -> None:
    """What follows may be taken for a part of it, or be served: the last answer is the only one that closes."""
    answers = server.raw(damaged(WHOLE, place, bytes([byte]), how), FINE)
    for answer in answers:
        legal(answer)
    assert [a.headers["connection"] for a in answers[:-1]] == ["keep-alive"] * (len(answers) - 1)
    is_well(server)


FIELDS = st.tuples(
    st.sampled_from(
        [*(b"Content-Length", b"Transfer-Encoding", b"Content-Encoding", b"Accept-Encoding", b"Expect", b"Connection"),
         *(b"Host", b"Inference-Header-Content-Length", b"Upgrade", b"X")]
    ),
    st.one_of(
        st.sampled_from(
            [b"", b"0", b"-1", b"%d" % len(TEXT), b"99999999999999999999999", b"18446744073709551615", b"chunked",
             b"gzip", b"deflate", b"br", b"gzip, chunked", b"100-continue", b"close", b"keep-alive", b"h2c"]
        ),
        st.binary(max_size=20).map(lambda b: bytes(c for c in b if c not in b"\r\n\0")),
    ),
)  # fmt: skip


@FIXED
@given(st.lists(FIELDS, max_size=3))
def test_fields_of_any_value(server: Server, fields: list[tuple[bytes, bytes]]) -> None:
    more = b"".join(b"%s: %s\r\n" % field for field in fields)
    for answer in server.raw(HEAD + more + b"\r\n" + TEXT):
        legal(answer)
    is_well(server)


@FIXED
@given(st.integers(0, 2**64) | st.integers(-20, 400), st.integers(0, 2**63) | st.integers(-5, 40), st.integers(0, 40))
def test_lengths_of_the_binary_form(server: Server, header: int, size: int, extra: int) -> None:
    """What the header and binary_data_size say, against what comes."""
    item = {"name": "x", "datatype": "FP32", "shape": [1, 4], "parameters": {"binary_data_size": size}}
    text = json.dumps({"inputs": [item]}).encode()
    status = answered(server, text + bytes(extra), {"Inference-Header-Content-Length": str(header)})
    assert (status == 200) == (header == len(text) and size == extra == 16)
    if size >= 0:
        status = answered(server, text + bytes(extra), {"Inference-Header-Content-Length": str(len(text))})
        assert (status == 200) == (size == extra == 16)


@FIXED
@given(st.lists(st.integers(1, 60), max_size=12), st.sampled_from(["", "gzip", "deflate"]), st.binary(max_size=6))
def test_chunks_of_any_size(server: Server, sizes: list[int], encoding: str, damage: bytes) -> None:
    """However a body is cut into chunks it is the same; a chunk that is none is refused."""
    body = {"gzip": lambda: gzip.compress(TEXT, mtime=0), "deflate": lambda: zlib.compress(TEXT), "": lambda: TEXT}[
        encoding
    ]()
    head = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    head += b"Content-Encoding: %s\r\n" % encoding.encode() if encoding else b""
    chunks = []
    for size in [*sizes, len(body)]:
        part, body = body[:size], body[size:]
        chunks += [b"%x;a=b\r\n%s\r\n" % (len(part), part)] if part else []
    parts = [head + b"\r\n", *chunks, b"0\r\n\r\n"]
    (answer,) = server.raw(*parts)
    assert (answer.status, answer.json()["outputs"][0]["data"]) == (200, [2, 4, 6, 0])
    for answer in server.raw(parts[0], *chunks[: len(chunks) // 2], damage, *parts[-1:]):
        legal(answer)
    is_well(server)


@FIXED
@given(st.lists(st.sampled_from(["good", "bad", "unknown", "page"]), max_size=12), st.integers(1, 500))
def test_pipelines(server: Server, kinds: list[str], cut: int) -> None:
    """Requests sent without waiting, in pieces: one answer to each, in order, each with its id."""
    data, wanted = b"", []
    for number, kind in enumerate(kinds):
        item = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 0 if kind != "bad" else None]}
        body = b"" if kind == "page" else json.dumps({"id": str(number), "inputs": [item]}).encode()
        path = {"page": b"health/live", "unknown": b"models/nobody/infer"}.get(kind, b"models/spin/infer")
        verb = b"GET" if kind == "page" else b"POST"
        data += b"%s /v2/%s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (verb, path, len(body), body)
        wanted.append(
            {"good": (200, str(number)), "bad": (400, None), "unknown": (404, None), "page": (200, None)}[kind]
        )
    answers = server.raw(*(data[i : i + cut] for i in range(0, len(data), cut)))
    assert [(a.status, a.json().get("id")) for a in answers] == wanted
    is_well(server)


@FIXED
@given(st.integers(0, 2000), st.sampled_from([b"[", b'{"a":', b'{"inputs":[', b'[{"data":[']), st.binary(max_size=5))
def test_nests(server: Server, depth: int, opening: bytes, end: bytes) -> None:
    for before in (b"", b'{"inputs":[{"data":', b'{"parameters":', b'{"inputs":[{"name":"x","shape":'):
        answered(server, before + opening * depth + end, {})
    is_well(server)


def damaged(data: bytes, place: int, one: bytes, how: str) -> bytes:
    if how == "set":
        return data[:place] + one + data[place + 1 :]
    if how == "cut":
        return data[:place]
    if how == "insert":
        return data[:place] + one + data[place:]
    return data[:place] + data[place // 2 :]
