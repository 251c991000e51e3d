"""Clients that ask for more memory than there is: each is refused in words, and nothing ends the server."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import served
import serving_bundles
from served import Server, binary_body, split_answer, wait_for
from serving_bundles import put

MIB = 1 << 20
X = np.array([[1, 2, 3, 0]], np.float32)


def empty_rows(columns: int) -> dict[str, object]:
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [0, columns], "data": []}]}


@pytest.fixture
def total_folder(tmp_path: Path) -> Path:
    put(serving_bundles.total(), tmp_path / "models" / "total.pkg")
    put(serving_bundles.spin(), tmp_path / "models" / "spin.pkg")
    return tmp_path / "models"


def test_an_empty_input_with_a_huge_output(program: Path, total_folder: Path) -> None:
    with Server(program, total_folder, "--sessions", "1", "--max-memory", str(256 * MIB), "--no-grpc") as server:
        good = server.post("/v2/models/total/infer", empty_rows(3))
        assert (good.status, good.json()["outputs"][0]["data"]) == (200, [0, 0, 0])
        for columns in (1 << 27, 1 << 40):
            huge = server.post("/v2/models/total/infer", empty_rows(columns))
            assert (huge.status, huge.headers["retry-after"]) == (503, "1")
            assert huge.error == (
                f"an output: cannot allocate {4 * columns} bytes; all requests together may take {256 * MIB} bytes "
                "(--max-memory): try again later, or send less"
            )
        # 120 MiB in the session, and no room for as much again in the answer
        large = server.post("/v2/models/total/infer", empty_rows(40 * MIB))
        assert large.status == 503
        assert large.error.startswith(f"no memory for the outputs: it takes {160 * MIB} bytes, and ")
        assert server.metric("hardtack_memory_refused_total") >= 3
        # what the session took for it is given back, since others wanted it
        wait_for(lambda: server.metric("hardtack_memory_bytes") < MIB, "the memory to be given back")
        assert server.post("/v2/models/total/infer", empty_rows(3)).status == 200


def test_json_that_is_far_larger_than_what_it_stands_for(program: Path, total_folder: Path) -> None:
    """4 MiB of zeros in binary are 8 MiB as text; 6 MiB of text are 24 MiB of numbers."""
    with Server(program, total_folder, "--sessions", "1", "--max-memory", str(20 * MIB), "--no-grpc") as server:
        wide = server.post("/v2/models/total/infer", empty_rows(2 * MIB))
        assert wide.status == 503
        assert wide.error.startswith('no memory for output "y" as JSON (binary_data takes less): it takes ')
        wait_for(lambda: server.metric("hardtack_memory_bytes") < 14 * MIB, "the text to be given back")
        binary = empty_rows(MIB) | {"parameters": {"binary_data_output": True}}
        assert len(server.post("/v2/models/total/infer", binary).body) > 4 * MIB
        wait_for(lambda: server.metric("hardtack_memory_bytes") < MIB, "the session's memory to be given back")
        text = (
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [' + b"0," * (3 * MIB) + b"0]}]}"
        )
        many = server.request("POST", "/v2/models/total/infer", text)
        assert many.status in (413, 503)
        assert many.error.startswith("no memory for the numbers and names of the JSON: it takes ")
        wait_for(lambda: server.metric("hardtack_memory_bytes") < MIB, "the memory to be given back")


@pytest.mark.parametrize(
    "text",
    [
        b'{"note": "' + b"a" * MIB + b'", "inputs": []}',
        b'{"note": "' + b'\\"' * (MIB // 2) + b'", "inputs": []}',
        b'{"inputs": [], "' + b"a" * MIB + b'": 1}',
        b'{"inputs": [], "note": [1, 2, ' + b"7" * MIB + b"]}",
        b'{"id": "' + b"a" * MIB,
    ],
    ids=["string", "escapes", "key", "number", "no end"],
)
def test_the_parser_counts_what_it_holds(program: Path, total_folder: Path, text: bytes) -> None:
    """Of what is skipped, too: a string or number is whole before anybody can tell that nobody wants it."""
    with Server(program, total_folder, "--max-memory", str(8 * MIB), "--no-grpc") as server:
        answer = server.request("POST", "/v2/models/total/infer", text)
        assert answer.status == 413
        assert re.fullmatch(
            "no memory for the longest string or number of the JSON: it takes 10485[0-9]{3} bytes, and all requests "
            rf"together may take {8 * MIB} \(--max-memory\); send less",
            answer.error,
        )


def test_names_of_the_json_are_counted(program: Path, total_folder: Path) -> None:
    """Names of 64 KiB, which the request copies; texts of 128 KiB in parameters."""
    name = "a" * (64 << 10)
    tensors = [{"name": name}] * 100
    parameters = {str(i): name * 2 for i in range(60)}
    with Server(program, total_folder, "--max-memory", str(16 * MIB), "--no-grpc") as server:
        for request in ({"inputs": tensors}, {"outputs": tensors}, {"parameters": parameters, "inputs": []}):
            answer = server.post("/v2/models/total/infer", request)
            assert answer.status == 503, answer.body
            assert answer.error.startswith("no memory for the numbers and names of the JSON: it takes ")
        wait_for(lambda: server.metric("hardtack_memory_bytes") < MIB, "the memory to be given back")


def test_what_is_asked_of_the_repository_is_counted(program: Path, total_folder: Path) -> None:
    text = b'{"a": [' + b"{}," * (MIB // 4) + b"{}]}"
    with Server(program, total_folder, "--max-memory", str(16 * MIB), "--no-grpc") as server:
        answer = server.request("POST", "/v2/repository/index", text)
        assert (answer.status, answer.error) == (
            413,
            f"no memory for the JSON: it takes {40 * len(text)} bytes, and all requests together may take {16 * MIB} "
            "(--max-memory); send less",
        )
        assert server.post("/v2/repository/index", {"ready": True}).status == 200
        wait_for(lambda: server.metric("hardtack_memory_bytes") < MIB, "the memory to be given back")


def test_nothing_is_copied_for_a_model_that_is_not_there(program: Path, total_folder: Path) -> None:
    """Each of the inputs would take 1 GiB, and the first of them more than there is."""
    size = 1 << 30
    key = f"/hardtack_memory_{os.getpid()}"
    shm = Path("/dev/shm" + key)
    with shm.open("wb") as file:
        file.truncate(size)
    try:
        with Server(program, total_folder, "--max-memory", str(64 * MIB), "--no-grpc") as server:
            region = {"key": key, "byte_size": size}
            assert server.post("/v2/systemsharedmemory/region/r/register", region).status == 200
            place = {"shared_memory_region": "r", "shared_memory_byte_size": size}

            def inputs(name: str) -> list[dict[str, object]]:
                tensor = {"datatype": "FP32", "shape": [1, size // 4], "parameters": place}
                return [{"name": f"{name}{i or ''}"} | tensor for i in range(400)]

            gone = server.post("/v2/models/gone/infer", {"inputs": inputs("x")})
            assert (gone.status, gone.error) == (404, 'there is no model "gone"')
            wrong = server.post("/v2/models/total/infer", {"inputs": inputs("x")})
            assert wrong.status == 400
            assert 'has no input "x1"' in wrong.error
            assert server.metric("hardtack_memory_refused_total") == 0
            large = server.post("/v2/models/total/infer", {"inputs": inputs("x")[:1]})
            assert (large.status, large.error) == (
                413,
                f'no memory for an input in shared memory region "r": it takes {size} bytes, and all requests together '
                f"may take {64 * MIB} (--max-memory); send less",
            )
    finally:
        shm.unlink()


def send_slowly(server: Server, length: int, sent: int) -> socket.socket:
    """A connection with the beginning of a body; it is closed by the server if that refuses it."""
    connection = server.socket()
    head = b"POST /v2/models/total/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % length
    with suppress(OSError):
        connection.sendall(head + bytes(sent))
    return connection


def refusals(connections: list[socket.socket]) -> Iterator[str]:
    for connection in connections:
        connection.setblocking(False)
        try:
            data = connection.recv(1 << 16)
        except OSError:
            continue
        if data:
            answer, _ = split_answer(data)
            assert answer.status == 503
            yield answer.error


def test_slow_bodies_leave_room_for_others(program: Path, total_folder: Path) -> None:
    """Only what has come counts, and large bodies have half of the budget."""
    with Server(program, total_folder, "--max-memory", str(128 * MIB), "--no-grpc") as server:
        held = [send_slowly(server, 60 * MIB, 20 * MIB) for _ in range(12)]
        try:
            told = []
            wait_for(lambda: bool(told.extend(refusals(held)) or told), "large bodies to be refused")
            assert re.fullmatch(
                f"no memory for the body: it takes {60 * MIB} bytes, and [0-9]+ of the server's {128 * MIB} are free "
                "for it, beside the half that is left to others; try again later",
                told[0],
            )
            assert server.metric("hardtack_memory_refused_total") >= 1
            wait_for(lambda: server.metric("hardtack_memory_bytes") > 30 * MIB, "bodies to be held")
            assert server.metric("hardtack_memory_bytes") < (64 + 12 + 1) * MIB  # each may have its first
            assert server.infer("spin", X).status == 200
            body, headers = binary_body([("x", "FP32", np.ones((1, 1 << 16), np.float32))])
            assert server.request("POST", "/v2/models/total/infer", body, headers).status == 200
        finally:
            for connection in held:
                connection.close()
        wait_for(lambda: server.metric("hardtack_memory_bytes") < MIB, "the memory to be given back")


def test_a_body_beyond_the_budget(program: Path, total_folder: Path) -> None:
    with Server(program, total_folder, "--max-memory", str(8 * MIB), "--no-grpc") as server:
        head = b"POST /v2/models/total/infer HTTP/1.1\r\nHost: a\r\n"
        (plain,) = server.raw(head + b"Content-Length: %d\r\n\r\n" % (32 * MIB), bytes(8 * MIB))
        (half,) = server.raw(head + b"Content-Length: %d\r\n\r\n" % (4 * MIB + 1))  # refused before any of it comes
        chunk = b"%x\r\n%s\r\n" % (MIB, b" " * MIB)
        (chunked,) = server.raw(head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 8)
        for answer, nbytes in ((plain, 32 * MIB), (half, 4 * MIB + 1), (chunked, "[0-9]+")):
            assert answer.status == 413
            assert re.fullmatch(
                f"no memory for the body: it takes {nbytes} bytes, and it may take half of what all requests together "
                rf"may, {4 * MIB} \(--max-memory\); send less",
                answer.error,
            )
        enough, headers = binary_body([("x", "FP32", np.ones((1, (3 * MIB) // 8), np.float32))])
        assert server.request("POST", "/v2/models/total/infer", enough, headers).status == 200
        assert server.metric("hardtack_memory_limit_bytes") == 8 * MIB


# --- a process that has 1 GiB ---


def within_addresses(program: Path, folder: Path) -> Path:
    """The server as a program that has 1 GiB of addresses."""
    script = folder / "within_addresses"
    script.write_text(f'#!/bin/sh\nexec prlimit --as={1 << 30} "{program.resolve()}" "$@"\n')
    script.chmod(0o755)
    return script


@pytest.mark.parametrize("limited", [False, True])
def test_an_announced_body_counts_where_its_addresses_cost(
    program: Path, total_folder: Path, tmp_path: Path, limited: bool
) -> None:
    with Server(within_addresses(program, tmp_path) if limited else program, total_folder, "--no-grpc") as server:
        before = server.metric("hardtack_memory_bytes")
        with send_slowly(server, 200 * MIB, 8 * MIB):
            wait_for(lambda: server.metric("hardtack_memory_bytes") >= before + 8 * MIB, "the body to come")
            assert (server.metric("hardtack_memory_bytes") >= before + 200 * MIB) == limited
        wait_for(lambda: server.metric("hardtack_memory_bytes") == before, "the body to be given back")


@pytest.fixture(params=["group", "address space"])
def confined(request: pytest.FixtureRequest, program: Path, tmp_path: Path) -> Iterator[Path]:
    """The server as a program that has 1 GiB: of a control group where that may be made, or of addresses."""
    if request.param == "address space":
        yield within_addresses(program, tmp_path)
        return
    script = tmp_path / "confined"
    root = Path("/sys/fs/cgroup/memory")
    limit, kind = "memory.limit_in_bytes", "memory"
    if not root.is_dir():
        root, limit, kind = Path("/sys/fs/cgroup"), "memory.max", ""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    ours = next((line.split(":")[2] for line in lines if line.split(":")[1] == kind), "/").lstrip("/")
    group = root / ours / f"hardtack_{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(1 << 30))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    script.write_text(f'#!/bin/sh\necho $$ > "{group}/cgroup.procs"\nexec "{program.resolve()}" "$@"\n')
    script.chmod(0o755)
    yield script
    group.rmdir()


def flood(server: Server, stop: threading.Event, statuses: list[int]) -> None:
    """Requests that take hundreds of MiB, as fast as they are answered."""
    wide = np.zeros((1, 24 * MIB), np.float32)  # 96 MiB
    binary, headers = binary_body([("x", "FP32", wide)], parameters={"binary_data_output": True})
    text = json.dumps(empty_rows(24 * MIB)).encode()
    numbers = (
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [' + b"0," * (24 * MIB) + b"0]}]}"
    )
    while not stop.is_set():
        for body, more in ((binary, headers), (text, {}), (numbers, {})):
            with suppress(OSError, http.client.HTTPException):  # a refusal may come while the body is sent
                answer = server.request("POST", "/v2/models/total/infer", body, more)
                statuses.append(answer.status)
                if answer.status != 200:
                    assert len(answer.error) > 20


def flood_streams(server: Server, stop: threading.Event) -> None:
    """Streams of messages of 36 MB whose answers nobody reads for a while."""
    import grpc
    from grpc_calls import Calls, request

    message = request("total", np.zeros((1, 9_000_000), np.float32)).SerializeToString()
    while not stop.is_set():
        with Calls(server) as calls, suppress(grpc.RpcError):
            answers = calls.stream()(iter([message] * 16), timeout=10)
            stop.wait(1)
            for _ in answers:
                if stop.is_set():
                    answers.cancel()


def test_nothing_ends_a_server_of_one_gib(confined: Path, program: Path, total_folder: Path) -> None:
    speaks_grpc = served.speaks_grpc(program)
    with Server(confined, total_folder, *(["--grpc-port", "0"] if speaks_grpc else [])) as server:
        limit = server.metric("hardtack_memory_limit_bytes")
        assert (1 << 28) < limit < (1 << 30)
        stop, statuses = threading.Event(), list[int]()
        threads = [threading.Thread(target=flood, args=(server, stop, statuses)) for _ in range(4)]
        threads += [threading.Thread(target=flood_streams, args=(server, stop)) for _ in range(2 * speaks_grpc)]
        for thread in threads:
            thread.start()
        try:
            held = [send_slowly(server, 200 * MIB, 30 * MIB) for _ in range(12)]
            for _ in range(8):
                assert server.get("/v2/health/live").status == 200
                assert server.infer("spin", X).status in (200, 503)
                stop.wait(0.3)
        finally:
            stop.set()
        for connection in held:
            connection.close()
        for thread in threads:
            thread.join()
        assert set(statuses) <= {200, 400, 413, 503}
        assert {413, 503} & set(statuses)
        wait_for(lambda: server.infer("spin", X).status == 200, "everything to be given back")
