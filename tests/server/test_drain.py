"""SIGTERM while replies cannot be delivered: clients that broke off, that read slowly, that do not read at all."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import serving_bundles
from grpc_calls import Calls, request
from served import HANG, Answer, Server, speaks_grpc, split_answer, wait_for
from serving_bundles import put

SLOW = np.array([[1, 2, 3, 500]], np.float32)
RESET = b"\1\0\0\0\0\0\0\0"
LARGE = 4_000_000  # elements of a reply that no socket's buffers hold
LABELS = 'model="spin",version="1"'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(serving_bundles.spin(), tmp_path / "models" / "spin.pkg")
    put(serving_bundles.total(), tmp_path / "models" / "total.pkg")
    return tmp_path / "models"


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def ask(server: Server, model: str, inputs: list[object], times: int = 1, **more: object) -> socket.socket:
    """A connection that has sent a request, so many times, and reads nothing yet."""
    body = json.dumps({"inputs": inputs, **more}).encode()
    connection = server.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    head = b"POST /v2/models/%s/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (model.encode(), len(body))
    connection.sendall((head + body) * times)
    return connection


def ask_slow(server: Server, pad_nbytes: int = 0) -> socket.socket:
    """With a large pad, the body is not read by the io threads."""
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": SLOW.ravel().tolist()}
    return ask(server, "spin", [x], parameters={"pad": "a" * pad_nbytes})


def ask_large(server: Server) -> socket.socket:
    empty = {"name": "x", "datatype": "FP32", "shape": [0, LARGE], "data": []}
    return ask(server, "total", [empty], parameters={"binary_data_output": True})


def begin_drain(server: Server) -> None:
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: bool(server.events("draining")), "the drain")


def skip_without_grpc(program: Path) -> None:
    if not speaks_grpc(program):
        pytest.skip("the server was built without gRPC")


def start(calls: Calls) -> Any:
    return calls.method("ModelInfer").future(request(x=SLOW).SerializeToString(), timeout=HANG)


def running(server: Server) -> Future[Answer]:
    """A request that a session is busy with, and its answer."""
    pool = ThreadPoolExecutor(1)
    answer = pool.submit(server.infer, "spin", SLOW)
    pool.shutdown(wait=False)
    wait_for(lambda: server.metric("hardtack_running_requests", LABELS) == 1, "the run")
    return answer


def test_replies_to_clients_that_broke_off_are_dropped(program: Path, folder: Path, sockets: ExitStack) -> None:
    """Requests that wait when their clients go, before the signal and after it: who is there is waited for."""
    with Server(program, folder, "--sessions", "1", "--log-requests") as server:
        answer = running(server)
        gone = [sockets.enter_context(ask_slow(server, 100_000 * (i % 2))) for i in range(12)]
        wait_for(lambda: server.metric("hardtack_waiting_requests", LABELS) == 12, "requests to wait")
        for i, connection in enumerate(gone):
            if i == 6:
                begin_drain(server)
            if i % 3 == 1:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            if i % 3 == 2:
                connection.shutdown(socket.SHUT_WR)  # taken for one that is gone: its request waits
            else:
                connection.close()
        assert answer.result().status == 200
        assert server.process.wait(HANG) == 0
        dropped = [line for line in server.events("request") if line["status"] == 499]
        assert len(dropped) == 12
        for connection in gone[2::3]:
            assert connection.recv(1) == b""  # closed without a word


def test_a_client_that_breaks_off_in_the_middle_of_its_reply(program: Path, folder: Path, sockets: ExitStack) -> None:
    with Server(program, folder) as server:
        begun = [sockets.enter_context(ask_large(server)) for _ in range(4)]
        for connection in begun:
            assert connection.recv(12) == b"HTTP/1.1 200"
        begin_drain(server)
        for i, connection in enumerate(begun):
            if i % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            connection.close()
        assert server.process.wait(HANG) == 0


def test_a_client_that_reads_slowly_gets_all(program: Path, folder: Path, sockets: ExitStack) -> None:
    with Server(program, folder) as server:
        connection = sockets.enter_context(ask_large(server))
        data = connection.recv(1000)
        begin_drain(server)
        while chunk := connection.recv(1 << 20):
            data += chunk
            time.sleep(0.005)
        answer, rest = split_answer(data)
        assert (answer.status, rest) == (200, b"")
        assert answer.body[-4 * LARGE :] == bytes(4 * LARGE)
        assert server.process.wait(HANG) == 0


def test_a_client_that_does_not_read_is_given_up(program: Path, folder: Path, sockets: ExitStack) -> None:
    """After --stall-timeout, and the second for each 64 KiB of the reply that is stuck."""
    small = {"name": "x", "datatype": "FP32", "shape": [0, LARGE // 40], "data": []}
    with Server(program, folder, "--stall-timeout", "1") as server:
        connection = ask(server, "total", [small], parameters={"binary_data_output": True}, times=40)
        sockets.enter_context(connection)
        answered: list[int] = []

        def stuck() -> bool:
            answered.append(server.statistics("total")["execution_count"])
            return len(answered) > 50 and 0 < answered[-50] == answered[-1]

        wait_for(stuck, "no more replies")
        assert answered[-1] < 40
        begin_drain(server)
        assert server.process.wait(HANG) == 0


def test_a_client_that_does_not_read_outlasts_the_drain(program: Path, folder: Path, sockets: ExitStack) -> None:
    """A large reply may take its time: then --drain-timeout ends it, and the exit status says so."""
    server = Server(program, folder, "--drain-timeout", "2")
    sockets.enter_context(ask_large(server))
    wait_for(lambda: server.statistics("total")["execution_count"] == 1, "the reply")
    begun = time.monotonic()
    begin_drain(server)
    assert server.process.wait(HANG) == 1
    assert time.monotonic() - begun >= 2
    (told,) = server.told("not all requests were answered in time")
    assert told["seconds"] == 2


def test_grpc_calls_that_are_cancelled(program: Path, folder: Path) -> None:
    skip_without_grpc(program)
    with Server(program, folder, "--sessions", "1") as server, Calls(server) as calls:
        answer = running(server)
        waiting = [start(calls) for _ in range(6)]
        wait_for(lambda: server.metric("hardtack_waiting_requests", LABELS) == 6, "calls that wait")
        for call in waiting[:3]:
            call.cancel()
        begin_drain(server)
        for call in waiting[3:5]:
            call.cancel()
        assert answer.result().status == 200
        assert waiting[5].result()  # a reply
        assert server.process.wait(HANG) == 0
        assert all(call.cancelled() for call in waiting[:5])


def test_grpc_clients_that_vanish(program: Path, folder: Path) -> None:
    skip_without_grpc(program)
    with Server(program, folder, "--sessions", "1") as server:
        answer = running(server)
        with Calls(server) as calls:
            waiting = [start(calls) for _ in range(3)]
            wait_for(lambda: server.metric("hardtack_waiting_requests", LABELS) == 3, "calls that wait")
            begin_drain(server)
        assert answer.result().status == 200
        assert server.process.wait(HANG) == 0
        assert all(call.done() for call in waiting)
