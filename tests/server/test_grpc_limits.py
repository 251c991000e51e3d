"""Clients of gRPC that are too many, too slow or half gone; and a server that was killed."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import http2
import numpy as np
import pytest
import served
from grpc_calls import SERVICE, Calls, raw, request
from served import HANG, Server, wait_for

X = np.array([[1, 2, 3, 0]], np.float32)
CONNECTIONS = "hardtack_grpc_connections"


@pytest.fixture(autouse=True)
def with_grpc(program: Path) -> None:
    if not served.speaks_grpc(program):
        pytest.skip("the server was built without gRPC")


@pytest.fixture(scope="module")
def strict(program: Path, models: Path) -> Iterator[Server]:
    with Server(program, models, "--max-connections", "4", "--header-timeout", "1") as started:
        yield started


def connect(server: Server) -> socket.socket:
    """A connection of HTTP/2 without calls."""
    connection = socket.create_connection(("127.0.0.1", server.grpc_port), timeout=HANG)
    connection.sendall(http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, b""))
    return connection


def is_served(connection: socket.socket) -> bool:
    """Whether the server speaks, too; False: it closed the connection."""
    try:
        return len(connection.recv(4096)) > 0
    except ConnectionResetError:
        return False


def test_one_connection_too_many(strict: Server) -> None:
    held = [connect(strict) for _ in range(4)]
    assert [is_served(one) for one in held] == [True] * 4
    assert strict.metric(CONNECTIONS) == 4
    with connect(strict) as fifth:
        assert not is_served(fifth)
    with Calls(strict) as calls:
        assert calls.refusal("ModelInfer", request(x=X), timeout=2)[0] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        assert strict.metric("hardtack_grpc_connections_refused_total") >= 2
        (told,) = strict.told("connections beyond --max-connections are refused")
        assert (told["level"], told["protocol"], told["max_connections"]) == ("warning", "gRPC", 4)
        held.pop().close()
        wait_for(lambda: strict.metric(CONNECTIONS) <= 3, "a place to be free")
        reply = calls.method("ModelInfer")(request(x=X).SerializeToString(), timeout=HANG, wait_for_ready=True)
    assert reply
    for one in held:
        one.close()
    wait_for(lambda: strict.metric(CONNECTIONS) == 0, "the connections to go")


def test_a_connection_that_says_nothing_is_closed(strict: Server) -> None:
    for begun in (b"", http2.PREFACE[:10], http2.PREFACE):
        with socket.create_connection(("127.0.0.1", strict.grpc_port), timeout=HANG) as connection:
            connection.sendall(begun)
            start = time.monotonic()
            while is_served(connection):
                assert time.monotonic() - start < HANG
    wait_for(lambda: strict.metric(CONNECTIONS) == 0, "the connections to go")


def test_a_call_whose_message_does_not_come(program: Path, models: Path) -> None:
    """One second, and one more for 64 KiB of --max-body; a stream may stay open without messages."""
    begun = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.call_headers(SERVICE + "ModelInfer"))
    part = http2.frame(http2.DATA, 0, 1, http2.message(request(x=X).SerializeToString())[:20])
    with Server(program, models, "--stall-timeout", "1", "--max-body", "65536") as server:
        stream = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.call_headers(SERVICE + "ModelStreamInfer"))
        with connect(server) as open_stream, connect(server) as nothing, connect(server) as some:
            open_stream.sendall(stream)
            nothing.sendall(begun)
            some.sendall(begun + part)
            wait_for(lambda: server.metric("hardtack_grpc_calls", 'kind="unary"') == 2, "the calls to begin")
            for held in (nothing, some):
                said = b""
                while b"grpc-message" not in said:
                    chunk = held.recv(4096)
                    assert chunk, said
                    said += chunk
                assert b"the request's message did not arrive in time" in said
            assert server.metric("hardtack_grpc_calls_total", 'code="4"') == 2
            wait_for(lambda: server.metric("hardtack_grpc_calls", 'kind="unary"') == 0, "the calls to end")
            assert server.metric("hardtack_grpc_calls", 'kind="stream"') == 1
            with Calls(server) as calls:
                np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)


def test_half_open_clients_leave_nothing_behind(server: Server) -> None:
    """Connections that end before, in and after a call, with and without a farewell."""
    before = server.metric(CONNECTIONS)
    opening = http2.PREFACE + http2.frame(http2.SETTINGS, 0, 0, b"")
    headers = http2.frame(http2.HEADERS, http2.END_HEADERS, 1, http2.call_headers(SERVICE + "ModelInfer"))
    good = http2.message(request(x=X).SerializeToString())
    whole = http2.frame(http2.DATA, http2.END_STREAM, 1, good)
    for part in (b"", opening, opening + headers, opening + headers + whole[:30], opening + headers + whole):
        for reset in (False, True):
            connection = socket.create_connection(("127.0.0.1", server.grpc_port), timeout=HANG)
            connection.sendall(part)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
    wait_for(lambda: server.metric(CONNECTIONS) == before, "the connections to go")
    wait_for(lambda: server.metric("hardtack_grpc_calls", 'kind="unary"') == 0, "the calls to end")
    with Calls(server) as calls:
        np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)


def test_a_client_that_does_not_read(server: Server) -> None:
    """Replies that nobody takes wait in their stream; others are served meanwhile."""
    large = np.zeros((64, 4), np.float32)

    def asked() -> Iterator[bytes]:
        for _ in range(20000):
            yield request(x=large).SerializeToString()

    with Calls(server) as lazy, Calls(server) as calls:
        stream = lazy.stream()(asked(), timeout=HANG)
        next(stream)
        for _ in range(20):
            np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)
            time.sleep(0.02)
        stream.cancel()
    wait_for(lambda: server.metric("hardtack_grpc_calls", 'kind="stream"') == 0, "the stream to end")


def test_killed_and_started_again_on_the_same_ports(program: Path, spin_folder: Path) -> None:
    """At once, and with connections of the old process that are still open."""
    with Server(program, spin_folder) as server:
        ports = ("--http-port", str(server.port), "--grpc-port", str(server.grpc_port))
        with Calls(server) as calls, server.socket() as kept:
            np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)
            kept.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert kept.recv(4096).startswith(b"HTTP/1.1 200")
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
            server.process.returncode = 0  # as this test wants it
            with Server(program, spin_folder, *ports) as again:
                assert (again.port, again.grpc_port) == (server.port, server.grpc_port)
                assert again.infer("spin", X).status == 200
                reply = calls.method("ModelInfer")(request(x=X).SerializeToString(), timeout=HANG, wait_for_ready=True)
                assert reply


def test_every_request_is_answered_and_counted_once(program: Path, spin_folder: Path) -> None:
    """Good, refused, late and cancelled ones over both protocols, while the bundle is replaced."""
    path = spin_folder / "spin" / "1" / "model.pkg"
    bad = np.array([[-1, 0, 0, 0]], np.float32)
    slow = np.array([[1, 2, 3, 5]], np.float32)
    stop = threading.Event()

    def ask(number: int) -> list[int]:
        """How many were answered over HTTP, and over gRPC by the model or otherwise."""
        found = [0, 0, 0]
        for turn in range(60):
            x, late, gone = (X, bad, slow, X)[(turn + number) % 4], turn % 3 == 0, turn % 7 == 0
            found[0] += server.infer("spin", x).status in (200, 400)
            call = calls.method("ModelInfer").future(request(x=x).SerializeToString(), timeout=0.003 if late else HANG)
            if gone:
                call.cancel()
            code = call.code()
            found[1] += code in (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)
            found[2] += late and code == grpc.StatusCode.DEADLINE_EXCEEDED
            found[2] += gone and code == grpc.StatusCode.CANCELLED
        return found

    def replace() -> None:
        data = path.read_bytes()
        while not stop.wait(0.2):
            path.with_name("next").write_bytes(data)
            path.with_name("next").rename(path)

    with Server(program, spin_folder, "--poll", "20", "--max-batch", "8") as server, Calls(server) as calls:
        replacing = threading.Thread(target=replace)
        replacing.start()
        with ThreadPoolExecutor(6) as pool:
            over_http, by_model, otherwise = (sum(found) for found in zip(*pool.map(ask, range(6)), strict=True))
        stop.set()
        replacing.join()
        assert (over_http, by_model + otherwise) == (360, 360)
        wait_for(lambda: server.metric("hardtack_grpc_calls", 'kind="unary"') == 0, "calls that were given up to end")
        stats = server.statistics("spin")["inference_stats"]
        counted = stats["success"]["count"] + stats["fail"]["count"]
        assert over_http + by_model <= counted <= 720  # a call may end before it reaches the model, or after
        assert len(server.told("model reloaded")) >= 1
