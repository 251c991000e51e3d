"""Bodies that take long to read hold up nobody else."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import serving_bundles
from served import Answer, Server, binary_body, read_answers, speaks_grpc, wait_for
from serving_bundles import put

NUMBERS = 24 << 20  # their JSON takes seconds to read, compressed 70 KB


@pytest.fixture(scope="module")
def heavy() -> bytes:
    pressed = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = pressed.compress(b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [')
    for _ in range(NUMBERS >> 20):
        body += pressed.compress(b"0," * (1 << 20))
    return body + pressed.compress(b"0]}]}") + pressed.flush()


def test_two_heavy_bodies_do_not_hold_up_health(program: Path, spin_folder: Path, heavy: bytes) -> None:
    with Server(program, spin_folder, "--io-threads", "2") as server, ThreadPoolExecutor(3) as pool:

        def send() -> Answer:
            return server.request("POST", "/v2/models/spin/infer", heavy, {"Content-Encoding": "gzip"})

        sent = [pool.submit(send) for _ in range(3)]
        wait_for(lambda: server.metric("hardtack_memory_bytes") > 20 << 20, "the bodies to be read")
        for _ in range(20):
            assert server.get("/v2/health/live").status == 200
            assert server.get("/v2/health/ready").status == 200
            assert server.infer("spin", np.zeros((1, 4), np.float32)).status == 200
        assert not any(one.done() for one in sent)
        for one in sent:
            assert one.result().status == 400
            assert one.result().error.startswith('input "x" has 25165825 elements in its data; shape [1,4] takes 4')


def test_heavy_bodies_of_one_token_leave_a_thread_to_others(
    program: Path, spin_folder: Path, heavy: bytes, tmp_path: Path
) -> None:
    (tmp_path / "tokens").write_text(
        "heavy heavy-secret-0123456789 infer\nlight light-secret-0123456789 infer,metrics\n"
    )
    rights = {n: {"Authorization": f"Bearer {n}-secret-0123456789"} for n in ("heavy", "light")}
    item = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 0, 0, 0]}
    body = {"inputs": [item], "parameters": {"note": "a" * 100_000}}  # read beside the io threads, too
    with Server(program, spin_folder, "--tokens", str(tmp_path / "tokens")) as server, ThreadPoolExecutor(5) as pool:

        def send() -> Answer:
            more = {"Content-Encoding": "gzip", **rights["heavy"]}
            return server.request("POST", "/v2/models/spin/infer", heavy, more)

        sent = [pool.submit(send) for _ in range(5)]
        wait_for(
            lambda: server.metric("hardtack_memory_bytes", headers=rights["light"]) > 40 << 20, "two bodies to be read"
        )
        for _ in range(3):
            assert server.post("/v2/models/spin/infer", body, rights["light"]).status == 200
        assert not any(one.done() for one in sent)
        assert [one.result().status for one in sent] == [400] * 5


def test_bodies_of_clients_that_are_gone_hold_up_nobody(program: Path, spin_folder: Path, heavy: bytes) -> None:
    """Dropped where others wait, and at the end of the server."""
    head = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    bomb = head % len(heavy) + heavy
    with Server(program, spin_folder, "--io-threads", "2", "--log-requests", "--drain-timeout", "60") as server:

        def leave(count: int) -> None:
            gone = [server.socket() for _ in range(count)]
            for one in gone:
                one.sendall(bomb)
            wait_for(lambda: server.metric("hardtack_memory_bytes") > (count - 6) * len(heavy), "the bodies to come")
            for one in gone:
                one.close()

        def given_up() -> int:
            return sum(line["status"] == 499 for line in server.events("request"))

        leave(40)
        x = np.zeros((1, 4), np.float32)
        pad = {"parameters": {"note": "a" * 100_000}}  # read beside the io threads, too
        assert server.infer("spin", x, **pad).status == 200
        wait_for(lambda: given_up() > 30, "what nobody waits for to be dropped")
        before = given_up()
        leave(40)
        assert server.stop() == 0
        assert given_up() > before + 30


def test_hundreds_of_connections_do_not_hold_up_health(program: Path, tmp_path: Path) -> None:
    """Requests leave the io threads when those fall behind, and are answered as before."""
    put(serving_bundles.total(), tmp_path / "total.pkg")
    wide = {"name": "x", "datatype": "FP32", "shape": [0, 2000], "data": []}  # the longest reply that io threads write
    body = json.dumps({"inputs": [wide]}).encode()
    one = b"POST /v2/models/total/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    last = one.replace(b"Host: a", b"Host: a\r\nConnection: close")
    with Server(program, tmp_path, "--io-threads", "1", "--no-grpc", "--max-queue", "10000") as server:

        def flood(connections: int) -> None:
            with ExitStack() as sockets:
                many = [sockets.enter_context(server.socket()) for _ in range(connections)]
                for connection in many:
                    connection.sendall(one * 9 + last)
                assert server.get("/v2/health/live").status == 200
                answers = [answer for connection in many for answer in read_answers(connection)]
            assert [answer.status for answer in answers] == [200] * 10 * len(many)
            assert {len(answer.json()["outputs"][0]["data"]) for answer in answers[::50]} == {2000}

        for k in range(20):  # the server looks every 100 ms; a fast one needs more connections to fall behind
            flood(200 + 35 * k)
            if server.metric("hardtack_http_behind_total") > 0:
                break
        assert server.metric("hardtack_http_behind_total") > 0


def test_long_replies_are_written_elsewhere(program: Path, tmp_path: Path) -> None:
    """Of short runs, on more connections than there are io threads: as text, compressed or not."""
    put(serving_bundles.total(), tmp_path / "total.pkg")
    with Server(program, tmp_path, "--io-threads", "1", "--no-grpc") as server:

        def ask(n: int) -> tuple[Answer, list[float]]:
            x = np.arange(n, n + 20_000, dtype=np.float32)[None]
            body, headers = binary_body([("x", "FP32", x)])
            more = {"Accept-Encoding": "gzip"} if n % 2 else {}
            return server.request("POST", "/v2/models/total/infer", body, {**headers, **more}), x[0].tolist()

        with ThreadPoolExecutor(8) as pool:
            for i, (answer, expected) in enumerate(pool.map(ask, range(24))):
                text = gzip.decompress(answer.body) if i % 2 else answer.body
                assert (answer.status, json.loads(text)["outputs"][0]["data"]) == (200, expected)


@pytest.mark.parametrize("encoding", ["", "gzip", "chunked"])
def test_a_large_body_is_read_as_a_small_one(server: Server, encoding: str) -> None:
    """Beside the io threads, and to the same end."""
    x = np.arange(64 * 4, dtype=np.float32).reshape(64, 4) % 2
    x[:, 3] = 0
    tensor = {"name": "x", "datatype": "FP32", "shape": [64, 4], "data": x.ravel().tolist(), "pad": " " * 200_000}
    body = json.dumps({"inputs": [tensor]}).encode()
    headers = {}
    if encoding == "gzip":
        body, headers = gzip.compress(body), {"Content-Encoding": "gzip"}
    if encoding == "chunked":
        head = (
            b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        )
        parts = [body[i : i + 70_001] for i in range(0, len(body), 70_001)]
        with server.socket() as connection:
            connection.sendall(head + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n")
            (answer,) = read_answers(connection)
    else:
        answer = server.request("POST", "/v2/models/spin/infer", body, headers)
    assert answer.status == 200, answer.body
    assert answer.json()["outputs"][0]["data"] == (2 * x).ravel().tolist()


def test_large_shared_memory_is_copied_elsewhere(program: Path, tmp_path: Path) -> None:
    put(serving_bundles.total(), tmp_path / "models" / "total.pkg")
    x = np.ones((8, 1 << 16), np.float32)
    key = f"/hardtack_parsing_{os.getpid()}"
    shm = Path("/dev/shm" + key)
    shm.write_bytes(x.tobytes())
    try:
        with Server(program, tmp_path / "models") as server:
            region = {"key": key, "byte_size": x.nbytes}
            assert server.post("/v2/systemsharedmemory/region/r/register", region).status == 200
            place = {"shared_memory_region": "r", "shared_memory_byte_size": x.nbytes}
            tensor = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "parameters": place}
            answer = server.post("/v2/models/total/infer", {"inputs": [tensor]})
            assert answer.status == 200, answer.body
            assert set(answer.json()["outputs"][0]["data"]) == {8}
    finally:
        shm.unlink()


def test_grpc_reads_large_messages_elsewhere(program: Path, spin_folder: Path) -> None:
    if not speaks_grpc(program):
        pytest.skip("the server is built without gRPC")
    import grpc
    import tritonclient.grpc as triton

    with Server(program, spin_folder) as server:
        client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        x = np.ones((64, 4), np.float32)
        x[:, 3] = 0
        tensor = triton.InferInput("x", [64, 4], "FP32")
        tensor.set_data_from_numpy(x)
        for compression in (None, "gzip"):
            answer = client.infer(
                "spin", [tensor], parameters={"note": "a" * 100_000}, compression_algorithm=compression
            )
            assert np.array_equal(answer.as_numpy("y"), 2 * x)
        assert grpc.__version__
        client.close()
