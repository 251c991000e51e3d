"""hardtack-server as a process of the tests, and a plain HTTP client that can also do what no client should."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from tests.support.builds import bring_up_to_date

ROOT = Path(__file__).resolve().parents[2]
HANG = 120.0
"""Seconds that nothing takes: not on a busy machine, not with a server that counts or that a sanitizer slows down."""
Array = npt.NDArray[Any]


def build_program() -> Path:
    """The server of the release build, brought up to date; HARDTACK_SERVER_PROGRAM names another."""
    named = os.environ.get("HARDTACK_SERVER_PROGRAM")
    if named:
        return Path(named)
    return bring_up_to_date("hardtack-server", "-DHARDTACK_SERVER=ON") / "server" / "hardtack-server"


@cache
def speaks_grpc(program: Path) -> bool:
    """Whether the program was built with gRPC."""
    return "--grpc-port" in subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout


@dataclass
class Answer:
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json()["error"])


def wait_for(condition: Callable[[], bool], what: str, seconds: float = HANG) -> None:
    """Fails when the condition does not come true."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited {seconds} s for: {what}"
        time.sleep(0.01)


class Server:
    """A started server; `log` has its lines. Use it as a context: it must then end with exit status 0."""

    def __init__(
        self,
        program: Path,
        models: Path,
        *arguments: str,
        ready: bool = True,
        environment: dict[str, str] | None = None,
    ) -> None:
        ports = ["--http-port", "0", *(["--grpc-port", "0"] if speaks_grpc(program) else [])]
        command = [str(program), str(models), *ports, "--log-format", "json", *arguments]
        variables = os.environ | (environment or {})
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8", env=variables)
        self.log: list[dict[str, Any]] = []
        self.raw_log: list[str] = []
        threading.Thread(target=self._read_log, daemon=True).start()
        wait_for(lambda: bool(self.events("listening")) or self.process.poll() is not None, "the server to listen")
        assert self.process.poll() is None, "\n".join(self.raw_log)
        self.port = int(self.events("listening")[0]["http_port"])
        self.grpc_port = int(self.events("listening")[0].get("grpc_port", 0))
        if ready:
            wait_for(lambda: self.get("/v2/health/ready").status == 200, "the server to be ready")

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.raw_log.append(line)
            if line.startswith("{"):
                self.log.append(json.loads(line))

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in list(self.log) if line["event"] == event]

    def told(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """The lines of an event once there are `count`: the log is written a moment after what it tells of."""
        wait_for(lambda: len(self.events(event)) >= count, f"{count} lines of the log: {event}")
        return self.events(event)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        code = self.stop() if self.process.poll() is None else self.process.returncode
        if kind is None:
            assert code == 0, "\n".join(self.raw_log)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        try:
            return self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    # --- requests ---

    def request(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG)
        try:
            with contextlib.suppress(BrokenPipeError):  # a server that refuses before it has everything says why
                connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            names = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, names, reply.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def post(self, path: str, document: object = None, headers: dict[str, str] | None = None) -> Answer:
        body = b"" if document is None else json.dumps(document).encode()
        return self.request("POST", path, body, headers)

    def infer(self, model: str, *arrays: Array, **more: Any) -> Answer:
        """Arrays for inputs x (one array) as JSON; `more` are further members of the request."""
        inputs = [{"name": "x", "datatype": "FP32", "shape": list(a.shape), "data": a.ravel().tolist()} for a in arrays]
        return self.post(f"/v2/models/{model}/infer", {"inputs": inputs, **more})

    def statistics(self, model: str, version: str = "1") -> dict[str, Any]:
        return dict(self.get(f"/v2/models/{model}/versions/{version}/stats").json()["model_stats"][0])

    def metric(self, name: str, labels: str = "", headers: dict[str, str] | None = None) -> float:
        """The value of one sample; 0 when it is not there."""
        text = self.request("GET", "/metrics", b"", headers or {}).body.decode()
        found = re.search(rf"^{re.escape(name + (f'{{{labels}}}' if labels else ''))} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def socket(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=HANG)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def raw(self, *parts: bytes) -> list[Answer]:
        """Sends bytes as they are, tells the end, and reads all replies until the server closes."""
        with self.socket() as connection:
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
            return read_answers(connection)


def read_answers(connection: socket.socket) -> list[Answer]:
    """All replies until the end of the connection."""
    data = b""
    while chunk := connection.recv(1 << 16):
        data += chunk
    answers = []
    while data:
        answer, data = split_answer(data)
        answers.append(answer)
    return answers


def split_answer(data: bytes) -> tuple[Answer, bytes]:
    head, found, rest = data.partition(b"\r\n\r\n")
    assert found, data[:200]
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
    status = int(lines[0].split(" ")[1])
    if status == 100:
        return split_answer(rest)
    size = int(headers["content-length"])
    assert len(rest) >= size, (lines[0], len(rest), size)
    return Answer(status, headers, rest[:size]), rest[size:]


def binary_body(model_inputs: Sequence[tuple[str, str, Array]], **more: Any) -> tuple[bytes, dict[str, str]]:
    """A body of the binary extension, and its header: (name, datatype, array) for each input."""
    inputs = [
        {"name": name, "datatype": datatype, "shape": list(a.shape), "parameters": {"binary_data_size": a.nbytes}}
        for name, datatype, a in model_inputs
    ]
    text = json.dumps({"inputs": inputs, **more}).encode()
    return text + b"".join(a.tobytes() for _, _, a in model_inputs), {"Inference-Header-Content-Length": str(len(text))}
