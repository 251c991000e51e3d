"""The program: signals, logs, TLS, its command line, and `hardtack serve`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import served
from served import HANG, Answer, Server, wait_for

X = np.array([[1, 2, 3, 0]], np.float32)
SLOW = np.array([[1, 2, 3, 500]], np.float32)


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=HANG, check=False)


def refuses_connections(server: Server) -> bool:
    try:
        server.socket().close()
    except ConnectionRefusedError:
        return True
    return False


def ask_in_vain(server: Server, x: npt.NDArray[np.float32]) -> None:
    """A request whose server ends before it answers."""
    with suppress(OSError, HTTPException):
        server.infer("spin", x)


def test_a_signal_finishes_what_was_begun(program: Path, spin_folder: Path) -> None:
    with Server(program, spin_folder, "--sessions", "1") as server:
        replies: list[Answer] = []
        threads = [threading.Thread(target=lambda: replies.append(server.infer("spin", SLOW))) for _ in range(3)]
        for thread in threads:
            thread.start()
        wait_for(
            lambda: server.metric("hardtack_waiting_requests", 'model="spin",version="1"') == 2, "requests to wait"
        )
        kept = server.socket()
        kept.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
        assert kept.recv(4096).startswith(b"HTTP/1.1 200")
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: bool(server.events("draining")), "the drain")
        wait_for(lambda: refuses_connections(server), "new connections to be refused")
        # an open connection is served once more, and told that this was the last time
        kept.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n")
        last = kept.recv(4096)
        assert last.startswith(b"HTTP/1.1 503")
        assert b"Connection: close" in last
        for thread in threads:
            thread.join()
        assert [r.status for r in replies] == [200] * 3
        assert server.process.wait(HANG) == 0
        assert server.events("stopped")


def test_a_second_signal_ends_at_once(program: Path, spin_folder: Path) -> None:
    server = Server(program, spin_folder, "--sessions", "1")
    busy = SLOW.copy()
    busy[0, 3] = 60_000
    connection = server.socket()
    body = json.dumps(
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": busy.ravel().tolist()}]}
    ).encode()
    connection.sendall(
        b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    wait_for(lambda: server.metric("hardtack_running_requests", 'model="spin",version="1"') == 1, "the run")
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: bool(server.events("draining")), "the drain")
    assert server.process.poll() is None
    assert server.stop() == 1


def test_a_drain_that_takes_too_long_says_so(program: Path, spin_folder: Path) -> None:
    server = Server(program, spin_folder, "--drain-timeout", "0")
    busy = SLOW.copy()
    busy[0, 3] = 60_000
    thread = threading.Thread(target=ask_in_vain, args=(server, busy))
    thread.start()
    wait_for(lambda: server.metric("hardtack_running_requests", 'model="spin",version="1"') == 1, "the run")
    assert server.stop() == 1
    thread.join()
    wait_for(lambda: bool(server.events("not all requests were answered in time")), "the log to say so")


def test_kill_and_start_again(program: Path, spin_folder: Path) -> None:
    server = Server(program, spin_folder)
    port = server.port
    server.infer("spin", X)
    server.process.kill()
    server.process.wait()
    with Server(program, spin_folder, "--http-port", str(port)) as again:
        assert (again.port, again.infer("spin", X).status) == (port, 200)


def test_logs_are_json_lines(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.log"
    with Server(program, spin_folder, "--log-requests") as server:
        server.infer("spin", X)
        server.get("/v2/models/%22%7f")
        wait_for(lambda: len(server.events("request")) >= 3, "the lines")
    assert {"level", "time", "event"} <= set(server.log[0])
    assert [line for line in server.raw_log if not line.startswith("{")] == []
    assert any(r["status"] == 200 and r["target"] == "/v2/models/spin/infer" for r in server.events("request"))
    process = subprocess.Popen([program, spin_folder, "--http-port", "0", "--log-file", file, "--log-format", "text"])
    wait_for(lambda: file.exists() and "model loaded" in file.read_text(), "the log file")
    process.terminate()
    assert process.wait(HANG) == 0
    assert file.read_text().splitlines()[-1].endswith(" info stopped")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_does_not_stop_serving(program: Path, spin_folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, spin_folder, "--http-port", str(port), "--log-file", "/dev/full", "--log-requests"]
    )
    server = Server.__new__(Server)
    server.process, server.port, server.log, server.raw_log = process, port, [], []

    def answers() -> bool:
        try:
            return server.infer("spin", X).status == 200
        except OSError:
            return False

    wait_for(answers, "an answer")
    for _ in range(20):
        assert answers()
    wait_for(lambda: server.metric("hardtack_log_lines_dropped_total") > 20, "the dropped lines to be counted")
    assert server.stop() == 0


def test_no_memory_is_an_answer(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nexec prlimit --as=1000000000 "{program.resolve()}" "$@"\n')
    limited.chmod(0o755)
    with Server(limited, spin_folder) as server:
        item = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[' + b"1," * 50_000_000 + b"1]}]}"
        answer = server.request("POST", "/v2/models/spin/infer", item)
        assert answer.status == 503
        assert re.fullmatch(
            r"no memory for the numbers and names of the JSON: it takes \d+ bytes, and .*", answer.error
        )
        assert server.infer("spin", X).status == 200


def test_a_model_that_wants_more_threads_than_there_are(program: Path, models: Path, tmp_path: Path) -> None:
    limited = tmp_path / "limited"
    limited.write_text(f'#!/bin/sh\nexec prlimit --as=1000000000 "{program.resolve()}" "$@"\n')
    limited.chmod(0o755)
    with Server(limited, models, "--sessions", "1", "--sessions", "spin=1000", ready=False) as server:
        wait_for(lambda: len(server.events("model loaded")) == 2, "the other models")
        wait_for(lambda: bool(server.events("load failed")), "the load to fail")
        (told,) = server.events("load failed")
        assert (told["model"], told["reason"]) == (
            "spin",
            "the system gives no more threads, and each session takes one: Resource temporarily unavailable; "
            "use fewer --sessions, or raise the limit",
        )
        assert server.get("/v2/models/types/ready").status == 200


def test_tls(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    openssl = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        key,
        "-out",
        certificate,
        "-days",
        "1",
    ]
    subprocess.run(
        [*openssl, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True
    )
    arguments = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with Server(program, spin_folder, *arguments, ready=False) as server:
        trust = ssl.create_default_context(cafile=str(certificate))
        body = json.dumps(
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 0]}]}
        ).encode()
        request = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        wait_for(lambda: bool(server.events("model loaded")), "the model")
        with trust.wrap_socket(server.socket(), server_hostname="127.0.0.1") as connection:
            for _ in range(3):
                connection.sendall(request)
                assert connection.recv(4096).endswith(b'"data":[2,4,6,0]}]}')
        with server.socket() as plain:
            plain.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
            assert not plain.recv(4096).startswith(b"HTTP")
    bad = run(program, str(spin_folder), "--http-port", "0", "--tls-certificate", str(key), "--tls-key", str(key))
    assert bad.returncode == 1
    assert f"hardtack-server: the TLS certificate {key} cannot be used: " in bad.stderr
    for protocol in (("--grpc-port", "0"), ("--no-grpc",)) if served.speaks_grpc(program) else ((),):
        pair = ("--tls-certificate", str(certificate), "--tls-key", str(tmp_path / "none"))
        gone = run(program, str(spin_folder), "--http-port", "0", *protocol, *pair)
        sentence = f"hardtack-server: the TLS key {tmp_path / 'none'} cannot be used: No such file or directory"
        assert sentence in gone.stderr.splitlines()


def test_the_command_line_teaches(program: Path, tmp_path: Path) -> None:
    told = run(program, "--help")
    assert told.returncode == 0
    assert "hardtack-server mlp.pkg" in told.stdout
    assert "--max-batch [NAME=]N" in told.stdout
    assert run(program, "--version").stdout == "hardtack-server 0.1.0\n"
    assert run(program).returncode == 2
    wrong = run(program, str(tmp_path), "--max-batch", "spin=many")
    assert wrong.returncode == 2
    assert '--max-batch: "many" is no whole number of at least 1 (N for all models, NAME=N for one)' in wrong.stderr
    beyond = run(program, str(tmp_path), "--http-port", "65536")
    assert (beyond.returncode, beyond.stderr.splitlines()[0]) == (2, "--http-port: Value 65536 not in range 0 to 65535")
    if served.speaks_grpc(program):
        twice = run(program, str(tmp_path), "--http-port", "8001")
        assert (twice.returncode, twice.stderr.splitlines()[0]) == (2, "--grpc-port: 8001 is --http-port, too")
    missing = run(program, str(tmp_path / "nothing"))
    assert (missing.returncode, missing.stderr) == (
        1,
        f"hardtack-server: {tmp_path / 'nothing'} cannot be read: No such file or directory\n",
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = ["--http-port", str(port), *(["--grpc-port", "0"] if served.speaks_grpc(program) else [])]
        refused = run(program, str(tmp_path), *ports)
        file = tmp_path / "log"
        logged = run(program, str(tmp_path), *ports, "--log-file", str(file))
    assert refused.returncode == 1
    sentence = f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert refused.stderr.endswith(f"hardtack-server: {sentence}\n")
    assert logged.stderr == f"hardtack-server: {sentence}\n"
    last = json.loads(file.read_text().splitlines()[-1])
    assert (last["event"], last["reason"]) == ("cannot serve", sentence)


def test_hardtack_serve_runs_the_program(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from hardtack.cli import main; main()", "serve"]
    environment = {**os.environ, "PATH": f"{program.resolve().parent}:{os.environ['PATH']}"}
    told = subprocess.run([*command, "--version"], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "hardtack-server 0.1.0\n"
    nowhere = {**os.environ, "PATH": str(tmp_path)}
    refused = subprocess.run([*command, "x"], env=nowhere, capture_output=True, text=True, check=False)
    beside = Path(sys.executable).parent / "hardtack-server"
    if not beside.exists():
        assert refused.returncode == 2
        assert "hardtack-server was not found" in refused.stderr
