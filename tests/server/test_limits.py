"""Clients that are slow, half gone or too many."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from served import HANG, Server, read_answers, wait_for

X = np.array([[1, 2, 3, 0]], np.float32)
HEAD = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture(scope="module")
def strict(program: Path, models: Path) -> Iterator[Server]:
    arguments = ("--header-timeout", "1", "--stall-timeout", "1", "--idle-timeout", "1")
    with Server(program, models, *arguments) as started:
        yield started


@pytest.mark.parametrize("begun", [b"GET /v2 HT", HEAD, HEAD + b"abc"])
def test_a_request_that_does_not_come_to_its_end(strict: Server, begun: bytes) -> None:
    with strict.socket() as connection:
        connection.sendall(begun)
        (answer,) = read_answers(connection)
        assert (answer.status, answer.error) == (408, "the request did not arrive in time")


def test_a_trickle_does_not_hold_a_connection(strict: Server) -> None:
    trickle = HEAD[:-2] + b"X: " + b"x" * 2000  # more than a minute and a half of it
    sent = 0
    with strict.socket() as connection, contextlib.suppress(OSError):
        while sent < len(trickle):
            connection.settimeout(HANG)
            connection.sendall(trickle[sent : sent + 1])
            sent += 1
            connection.settimeout(0.05)
            with contextlib.suppress(TimeoutError):
                if connection.recv(4096).startswith(b"HTTP/1.1 408"):
                    break
    assert 0 < sent < len(trickle)


def test_an_idle_connection_is_closed_without_a_word(strict: Server) -> None:
    with strict.socket() as connection:
        assert read_answers(connection) == []
    with strict.socket() as connection:
        connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert [a.status for a in read_answers(connection)] == [200]


def test_a_client_that_does_not_read(strict: Server) -> None:
    """Replies that nobody takes fill the socket; then the connection is given up, and others are served meanwhile."""
    with strict.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asked = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"
        connection.setblocking(False)
        until = time.monotonic() + HANG
        closed = False
        while time.monotonic() < until and not closed:
            try:
                connection.send(asked * 50)
            except BlockingIOError:
                assert strict.get("/v2/health/live").status == 200
                time.sleep(0.02)
            except OSError:
                closed = True
        assert closed


def test_one_connection_too_many(program: Path, models: Path) -> None:
    with Server(program, models, "--max-connections", "6") as server:
        held: list[socket.socket] = []
        while len(held) < 6:  # those of the start may take a moment to go
            connection = server.socket()
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            if connection.recv(4096).startswith(b"HTTP/1.1 200"):
                held.append(connection)
        with server.socket() as connection:
            (answer,) = read_answers(connection)
        assert (answer.status, answer.error) == (503, "this server has 6 connections, and no more; try again later")
        for connection in held:
            connection.close()
        wait_for(lambda: server.get("/v2/health/live").status == 200, "the places to be free again")
        assert server.metric("hardtack_http_connections_refused_total") >= 1
        (told,) = server.told("connections beyond --max-connections are refused")
        assert (told["level"], told["protocol"], told["max_connections"]) == ("warning", "HTTP", 6)


def test_out_of_descriptors(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    """Connections wait, and one line tells of it; what serves goes on, and models stay."""
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nexec prlimit --nofile=40:40 "{program.resolve()}" "$@"\n')
    limited.chmod(0o755)
    with Server(limited, spin_folder, "--poll", "20") as server:
        held = [server.socket() for _ in range(40)]
        wait_for(lambda: bool(server.events("a connection cannot be accepted")), "the descriptors to run out")
        wait_for(lambda: bool(server.events("the repository cannot be read; what serves goes on")), "a look in vain")
        held[0].sendall(b"GET /v2/models/spin/ready HTTP/1.1\r\nHost: a\r\n\r\n")
        assert held[0].recv(4096).startswith(b"HTTP/1.1 200")
        time.sleep(0.5)  # some failures more
        for connection in held:
            connection.close()
        assert server.infer("spin", X).status == 200
        (told,) = server.events("a connection cannot be accepted")
        assert told["reason"] == "Too many open files"
        assert server.events("version unloaded") == []


def test_half_open_clients_leave_nothing_behind(server: Server) -> None:
    """Connections that end in the middle of a head, of a body, or right after a request."""
    before = server.metric("hardtack_http_connections")
    for part in (b"", b"GET", HEAD, HEAD + b"{", b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n"):
        for reset in (False, True):
            connection = server.socket()
            connection.sendall(part)
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
    wait_for(lambda: server.metric("hardtack_http_connections") == before, "the connections to go")
    assert server.infer("spin", X).status == 200
