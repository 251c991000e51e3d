"""Throughput of a real Triton server with Hardtack's backend and with Triton's own python backend.

    python -m bench.triton_serving

A small MLP, one row a request, 8 clients over HTTP that send the next request when they have the answer to the last.
All systems are models of one server and take turns, so that all meet the same weather. The python backend runs the same
bundle through Hardtack's Python package, and the module in TorchScript; both join the requests that Triton hands them.

The clients are one thread with raw sockets and requests made beforehand: a client library would cost more than the
servers. On a busy machine: `chrt -r 5 python -m bench.triton_serving`.
"""

from __future__ import annotations

import argparse
import json
import selectors
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn
from torch.export import Dim

import hardtack

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from triton_server import MISSING, TRITON, TritonServer, build_backend, is_there  # noqa: E402

# The wheel's python backend is made for numpy 1: of a later one's arrays it takes 0 bytes.
NUMPY = ROOT / "build" / "tritonserver" / "numpy1"
NUM_FEATURES, MAX_BATCH_SIZE = 64, 64
SYSTEMS = {
    "hardtack": "Hardtack's backend",
    "bundle": "python backend, the same bundle",
    "torch": "python backend, TorchScript",
}

# A python backend's model; {load} makes `self.run`, from an array to an array.
MODEL_PY = """
import site, sys
sys.path.insert(0, {numpy!r})
site.addsitedir({site!r})
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
{load}

    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        out = self.run(rows[0] if len(rows) == 1 else np.concatenate(rows))
        responses, first = [], 0
        for given in rows:
            part = out[first : first + len(given)]
            first += len(given)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("output", part)]))
        return responses
"""
LOAD = {
    "bundle": """
        import hardtack
        session = hardtack.load({bundle!r}).session("forward")
        self.run = session
""",
    "torch": """
        import torch
        module = torch.jit.load({script!r})
        def run(x):
            with torch.no_grad():
                return module(torch.from_numpy(x)).numpy()
        self.run = run
""",
}
CONFIG = f"""
name: "NAME"
backend: "BACKEND"
max_batch_size: {MAX_BATCH_SIZE}
input {{ name: "x" data_type: TYPE_FP32 dims: {NUM_FEATURES} }}
output {{ name: "output" data_type: TYPE_FP32 dims: 10 }}
dynamic_batching {{ }}
"""


class Mlp(nn.Module):
    """(batch, 64) -> (batch, 10)"""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(NUM_FEATURES, 128), nn.ReLU(), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


class Client:
    """One connection: a request that was made beforehand, again and again."""

    def __init__(self, port: int, request: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request = request
        self.received = b""
        self.sent_at = 0.0

    def send(self) -> None:
        self.sent_at = time.perf_counter()
        self.socket.sendall(self.request)

    def receive(self) -> bytes | None:
        """The body of the answer, or None while there is more to come."""
        self.received += self.socket.recv(65536)
        head, found, body = self.received.partition(b"\r\n\r\n")
        if not found:
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(self.received.decode(errors="replace"))
        length = int(head.lower().partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return None
        self.received = b""
        return body


def request_bytes(model: str, x: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    description = {
        "inputs": [
            {"name": "x", "shape": list(x.shape), "datatype": "FP32", "parameters": {"binary_data_size": x.nbytes}}
        ],
        "parameters": {"binary_data_output": True},
    }
    header = json.dumps(description).encode()
    lines = (
        f"POST /v2/models/{model}/infer HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(header) + x.nbytes}",
        f"Inference-Header-Content-Length: {len(header)}", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode() + header + x.tobytes()


def check(model: str, answer: bytes, wanted: np.ndarray, good: set[bytes]) -> None:
    """The last bits may depend on the batch; answers that were good before need no arithmetic."""
    if answer not in good:
        if not np.allclose(np.frombuffer(answer, np.float32), wanted.ravel(), atol=1e-4):
            raise RuntimeError(f"{model} gives wrong values")
        good.add(answer)


def drive(port: int, model: str, num_clients: int, seconds: float, x: np.ndarray, wanted: np.ndarray) -> list[float]:
    """Seconds from request to answer of every request that was answered in time; checks every answer's values."""
    request = request_bytes(model, x)
    clients = [Client(port, request) for _ in range(num_clients)]
    times: list[float] = []
    good: set[bytes] = set()
    try:
        with selectors.DefaultSelector() as selector:
            for client in clients:
                selector.register(client.socket, selectors.EVENT_READ, client)
                client.send()
            end = time.perf_counter() + seconds
            while time.perf_counter() < end:
                for key, _ in selector.select(timeout=5):
                    body = key.data.receive()
                    if body is None:
                        continue
                    times.append(time.perf_counter() - key.data.sent_at)
                    check(model, body[-wanted.nbytes :], wanted, good)
                    key.data.send()
    finally:
        for client in clients:
            client.socket.close()
    return times


def python_backend(folder: Path) -> Path:
    """Triton's python backend with the stub for this Python, as a folder of backends; fetches its numpy once."""
    if not NUMPY.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(NUMPY)]
        subprocess.run([*pip, "numpy==1.26.4"], check=True)
    shutil.copytree(TRITON / "backends" / "python", folder / "python")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    stub = folder / "python" / "triton_python_backend_stub"
    shutil.copy2(TRITON / "python_backend_stubs" / version / stub.name, stub)
    stub.chmod(0o755)
    return folder


def put_models(server: TritonServer, folder: Path, module: nn.Module) -> None:
    bundle, script = folder / "mlp.pkg", folder / "mlp.pt"
    x = torch.zeros(2, NUM_FEATURES)
    hardtack.export(module, (x,), path=bundle, dynamic_shapes=({0: Dim("batch", max=MAX_BATCH_SIZE)},))
    torch.jit.trace(module, x).save(str(script))
    for name in SYSTEMS:
        version = server.repository / name / "1"
        version.mkdir(parents=True)
        if name == "hardtack":
            shutil.copy2(bundle, version / "model.pkg")
        else:
            load = LOAD[name].format(bundle=str(bundle), script=str(script))
            (version / "model.py").write_text(
                MODEL_PY.format(numpy=str(NUMPY), site=sysconfig.get_path("purelib"), load=load)
            )
        config = CONFIG.replace("NAME", name).replace("BACKEND", "hardtack" if name == "hardtack" else "python")
        (server.repository / name / "config.pbtxt").write_text(config)
        server.http.load_model(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each system in each round")
    options = parser.parse_args()
    if not is_there():
        sys.exit(MISSING)
    module = Mlp().eval()
    x = np.random.default_rng(0).standard_normal((1, NUM_FEATURES), dtype=np.float32)
    with torch.no_grad():
        wanted = module(torch.from_numpy(x)).numpy()
    rates: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    waits: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        more = python_backend(folder / "backends")
        with TritonServer(folder / "triton", build_backend(), more_backends=more) as server:
            put_models(server, folder, module)
            for name in SYSTEMS:
                drive(server.http_port, name, options.clients, 0.5, x, wanted)
            for _ in range(options.rounds):
                for name in SYSTEMS:
                    times = drive(server.http_port, name, options.clients, options.seconds, x, wanted)
                    rates[name].append(len(times) / options.seconds)
                    waits[name].append(median(times) * 1e6)
            rows = {name: server.metrics(name) for name in SYSTEMS}
    for name, title in SYSTEMS.items():
        rate, wait = median(rates[name]), median(waits[name])
        joined = rows[name]["count"] / rows[name]["exec_count"]
        print(f"{title:32} {rate:9.0f} requests/s   median {wait:6.0f} us   {joined:.1f} rows a run")
    for name in ("bundle", "torch"):
        ratio = median(a / b for a, b in zip(rates["hardtack"], rates[name], strict=True))
        print(f"Hardtack's backend / {SYSTEMS[name]}: {ratio:.2f}")


if __name__ == "__main__":
    main()
