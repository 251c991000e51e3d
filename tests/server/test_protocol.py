"""The Open Inference Protocol over HTTP: what each path answers, and every form of a tensor in both directions."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from typing import Any

import numpy as np
import pytest
from protocol_arrays import ARRAYS, NAMES, SCALAR, X
from served import Server, binary_body


def test_the_server_tells_what_it_is(server: Server) -> None:
    told = server.get("/v2").json()
    assert told["name"] == "hardtack"
    assert {"statistics", "binary_tensor_data", "system_shared_memory"} <= set(told["extensions"])
    assert server.get("/v2/health/live").json() == {"live": True}
    assert server.get("/v2/health/ready").json() == {"ready": True}


def test_a_model_tells_what_it_takes(server: Server) -> None:
    assert server.get("/v2/models/spin").json() == {
        "name": "spin",
        "versions": ["1"],
        "platform": "hardtack_pkg",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}],
    }
    assert server.get("/v2/models/spin/versions/1").json() == server.get("/v2/models/spin").json()
    assert server.get("/v2/models/spin/ready").json() == {"name": "spin", "ready": True}
    config = server.get("/v2/models/spin/config").json()
    assert (config["max_batch_size"], config["input"]) == (
        0,
        [{"name": "x", "data_type": "TYPE_FP32", "dims": [-1, 4]}],
    )


def test_json_flat_and_nested(server: Server) -> None:
    flat = server.infer("spin", X, id="job 7").json()
    assert (flat["model_name"], flat["model_version"], flat["id"]) == ("spin", "1", "job 7")
    assert flat["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2, 4], "data": (X * 2).ravel().tolist()}]
    nested = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4], "data": X.tolist()}]}
    assert server.post("/v2/models/spin/infer", nested).json()["outputs"] == flat["outputs"]
    # members may come in any order, and unknown ones and unknown parameters do not matter
    strange = {
        "outputs": [{"parameters": {"weight": 1, "deep": {"a": [1, {"b": 2}]}}, "name": "y"}],
        "extra": [[1], {"inputs": 3}],
        "inputs": [
            {"data": X.tolist(), "tag": {}, "shape": [2, 4], "parameters": {"p": 1}, "datatype": "FP32", "name": "x"}
        ],
        "parameters": {"priority": 3, "trace": "abc"},
    }  # fmt: skip
    assert server.post("/v2/models/spin/versions/1/infer", strange).json()["outputs"] == flat["outputs"]


def test_every_type_in_binary_and_in_json(server: Server) -> None:
    everything = [(f"x_{n}", NAMES[n], a) for n, a in ARRAYS.items()] + [("x_s", "FP32", SCALAR)]
    body, headers = binary_body(everything, parameters={"binary_data_output": True})
    reply = server.request("POST", "/v2/models/types/infer", body, headers)
    assert reply.status == 200, reply.body
    text = int(reply.headers["inference-header-content-length"])
    told = json.loads(reply.body[:text])
    assert [o["name"] for o in told["outputs"]] == [f"y_{n}" for n in (*ARRAYS, "s")]
    assert reply.body[text:] == b"".join(a.tobytes() for _, _, a in everything)

    in_json = [n for n in ARRAYS if n not in ("f16", "bf16")]
    inputs: list[dict[str, Any]] = []
    for name, datatype, array in everything:
        item: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        half = datatype in ("FP16", "BF16")
        inputs.append(
            {**item, "parameters": {"binary_data_size": array.nbytes}} if half else {**item, "data": array.tolist()}
        )
    half_bytes = ARRAYS["f16"].tobytes() + ARRAYS["bf16"].tobytes()
    document = json.dumps({"inputs": inputs, "outputs": [{"name": f"y_{n}"} for n in (*in_json, "s")]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(document))}
    back = server.request("POST", "/v2/models/types/infer", document + half_bytes, headers).json()["outputs"]
    for name, output in zip(in_json, back, strict=False):
        assert np.array_equal(np.array(output["data"], ARRAYS[name].dtype).reshape(2, 3), ARRAYS[name]), name
    assert back[-1] == {"name": "y_s", "datatype": "FP32", "shape": [], "data": [1.5]}


def test_binary_and_json_may_be_mixed(server: Server) -> None:
    body, headers = binary_body([("x", "FP32", X)], outputs=[{"name": "y", "parameters": {"binary_data": False}}])
    assert (
        server.request("POST", "/v2/models/spin/infer", body, headers).json()["outputs"][0]["data"]
        == (X * 2).ravel().tolist()
    )
    reply = server.infer("spin", X, outputs=[{"name": "y", "parameters": {"binary_data": True}}])
    text = int(reply.headers["inference-header-content-length"])
    assert json.loads(reply.body[:text])["outputs"][0]["parameters"] == {"binary_data_size": 32}
    assert reply.body[text:] == (X * 2).tobytes()


def test_odd_places_of_binary_tensors(server: Server) -> None:
    """Whatever the length of the JSON, and whatever comes before a tensor, it is read right."""
    for padding in range(9):
        body, headers = binary_body([("x", "FP32", X)], id="i" * padding, parameters={"binary_data_output": True})
        reply = server.request("POST", "/v2/models/spin/infer", body, headers)
        assert reply.body.endswith((X * 2).tobytes())


@pytest.mark.parametrize("rows", [0, 1, 64])
def test_sizes_at_the_ends(server: Server, rows: int) -> None:
    x = np.zeros((rows, 4), np.float32)
    body, headers = binary_body([("x", "FP32", x)], parameters={"binary_data_output": True})
    reply = server.request("POST", "/v2/models/spin/infer", body, headers)
    text = int(reply.headers["inference-header-content-length"])
    assert json.loads(reply.body[:text])["outputs"][0]["shape"] == [rows, 4]
    assert reply.body[text:] == x.tobytes()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compression(server: Server, encoding: str) -> None:
    x = np.tile(np.array([[1, 2, 3, 0]], np.float32), (64, 1))
    body, headers = binary_body([("x", "FP32", x)], parameters={"binary_data_output": True})
    packed = gzip.compress(body) if encoding == "gzip" else zlib.compress(body)
    headers |= {"Content-Encoding": encoding, "Accept-Encoding": encoding}
    reply = server.request("POST", "/v2/models/spin/infer", packed, headers)
    assert reply.headers["content-encoding"] == encoding
    plain = gzip.decompress(reply.body) if encoding == "gzip" else zlib.decompress(reply.body)
    assert plain[int(reply.headers["inference-header-content-length"]) :] == (x * 2).tobytes()
    headers["Accept-Encoding"] = f"identity, {encoding};q=0"
    assert "content-encoding" not in server.request("POST", "/v2/models/spin/infer", packed, headers).headers


def test_entries_and_head(server: Server) -> None:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 3]}]
    reply = server.post("/v2/models/count/infer", {"inputs": inputs, "parameters": {"entry": "copy"}})
    assert reply.json()["outputs"][0]["data"] == [1, 2, 3]
    head = server.request("HEAD", "/v2/health/ready")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "14")


def test_statistics_grow(server: Server) -> None:
    before = server.statistics("spin")
    for _ in range(3):
        server.infer("spin", X)
    server.infer("spin", np.zeros((13, 4), np.float32))  # the guard refuses 13
    after = server.statistics("spin")
    assert after["inference_count"] - before["inference_count"] == 3
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == 3
    assert after["inference_stats"]["fail"]["count"] - before["inference_stats"]["fail"]["count"] == 1
    assert after["inference_stats"]["compute_infer"]["ns"] > before["inference_stats"]["compute_infer"]["ns"]
    assert after["batch_stats"][0]["batch_size"] == 1
    assert {s["name"] for s in server.get("/v2/models/stats").json()["model_stats"]} == {"spin", "types", "count"}


def test_metrics(server: Server) -> None:
    labels = 'model="spin",version="1"'
    before = server.metric("hardtack_requests_total", f'{labels},result="ok"')
    server.infer("spin", X)
    assert server.metric("hardtack_requests_total", f'{labels},result="ok"') == before + 1
    assert server.metric("hardtack_request_duration_seconds_count", labels) == before + 1
    assert server.metric("hardtack_ready") == 1
    assert server.metric("hardtack_http_requests_total", 'status="200"') > 0
    lines = server.get("/metrics").body.decode().splitlines()
    assert all(line.startswith("# ") or len(line.rsplit(" ", 1)) == 2 for line in lines)


def test_the_metrics_page_keeps_the_rules(server: Server) -> None:
    """What `promtool check metrics` asks for: see the exposition format of Prometheus."""
    server.infer("spin", X)
    server.infer("spin", X[:, :3])
    family, kind, seen, samples = "", "", set(), set()
    lines = server.get("/metrics").body.decode().splitlines()
    for number, line in enumerate(lines):
        if line.startswith("# HELP "):
            family = line.split()[2]
            assert len(line.split()) > 4
            assert family not in seen
            seen.add(family)
            assert lines[number + 1].startswith(f"# TYPE {family} ")
        elif line.startswith("# TYPE "):
            kind = line.split()[3]
            assert (kind == "counter") == family.endswith("_total"), line
            assert kind in ("counter", "gauge", "histogram")
            assert re.fullmatch("[a-z_]+", family)
        else:
            found = re.fullmatch(r'([a-z_]+)(\{([a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*)\})? [0-9.e+-]+', line)
            assert found, line
            endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert found[1] in {family + ending for ending in endings}, line
            assert line.rpartition(" ")[0] not in samples
            samples.add(line.rpartition(" ")[0])
    labels = 'model="spin",version="1"'
    buckets = [
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(f"hardtack_request_duration_seconds_bucket{{{labels}")
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == server.metric("hardtack_request_duration_seconds_count", labels) > 0


def test_keep_alive_and_pipelining(server: Server) -> None:
    document = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4], "data": X.ravel().tolist()}]}
    ).encode()
    infer = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (
        len(document),
        document,
    )
    live = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
    last = b"GET /v2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    replies = server.raw(infer * 3 + live * 200 + infer + last)
    assert [r.status for r in replies] == [200] * 205
    assert replies[0].json()["outputs"] == replies[203].json()["outputs"]
    assert {r.headers["connection"] for r in replies[:-1]} == {"keep-alive"}
    assert replies[-1].headers["connection"] == "close"
    chunked = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"".join(
        b"%x\r\n%s\r\n" % (len(document[i : i + 50]), document[i : i + 50]) for i in range(0, len(document), 50)
    )
    assert [r.status for r in server.raw(chunked + b"0\r\n\r\n" + last)] == [200, 200]
    assert [r.status for r in server.raw(b"GET /v2 HTTP/1.0\r\n\r\n")] == [200]


def test_expect_continue(server: Server) -> None:
    document = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4], "data": X.ravel().tolist()}]}
    ).encode()
    with server.socket() as connection:
        head = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(document))
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(document)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
