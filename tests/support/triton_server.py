"""A real Triton Inference Server, started on free ports of this machine with Hardtack's backend.

It is the one inside the wheel nvidia-pytriton 0.7.0 (Triton 2.51.0 for CPUs); `./dev test` fetches it to
build/tritonserver.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from tests.support.builds import bring_up_to_date

ROOT = Path(__file__).resolve().parents[2]
WHEEL = ROOT / "build" / "tritonserver" / "0.7.0"
TRITON = WHEEL / "pytriton" / "tritonserver"
SERVER_LIBRARIES = WHEEL / "nvidia_pytriton.libs"
MISSING = "Triton Inference Server is not in build/tritonserver; ./dev test fetches it"

TYPES = {
    "float32": "FP32", "float64": "FP64", "float16": "FP16", "bfloat16": "BF16", "int8": "INT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "bool": "BOOL",
    "object": "BYTES",
}  # fmt: skip
"""Triton's name of a dtype of numpy or ml_dtypes."""

Array = np.ndarray[Any, Any]


def is_there() -> bool:
    return (WHEEL / "done").is_file()


def build_backend() -> Path:
    """libtriton_hardtack.so of the release build, up to date."""
    folder = bring_up_to_date("triton_hardtack", "-DHARDTACK_TRITON_BACKEND=ON")
    return folder / "server" / "triton" / "libtriton_hardtack.so"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class TritonServer:
    """A server with explicit model control: nothing is loaded until a test says so.

    A server that refused to reload a model keeps something of it and waits for it when it ends, until its exit timeout;
    that is so with every backend. `lingers` says that this will happen.
    """

    def __init__(
        self,
        folder: Path,
        backend: Path,
        options: Sequence[str] = (),
        *,
        more_backends: Path | None = None,
        lingers: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.lingers = lingers
        self.repository = folder / "models"
        self.repository.mkdir(parents=True)
        backends = folder / "backends"
        (backends / "hardtack").mkdir(parents=True)
        shutil.copy2(backend, backends / "hardtack")
        if more_backends is not None:
            shutil.copytree(more_backends, backends, dirs_exist_ok=True)
        self.http_port, self.grpc_port, self.metrics_port = free_ports(3)
        command = [str(TRITON / "bin" / "tritonserver"), f"--model-repository={self.repository}"]
        command += [f"--backend-directory={backends}", "--model-control-mode=explicit"]
        command += [f"--exit-timeout-secs={1 if lingers else 20}"]
        for name in ("http", "grpc", "metrics"):
            command += [f"--{name}-address=127.0.0.1", f"--{name}-port={getattr(self, f'{name}_port')}"]
        self.log_path = folder / "server.log"
        folders = [str(SERVER_LIBRARIES), str(sysconfig.get_config_var("LIBDIR"))]  # the second for the python backend
        variables = {**os.environ, "LD_LIBRARY_PATH": ":".join(folders), **(environment or {})}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen([*command, *options], stdout=log, stderr=log, env=variables)
        self._wait()
        self.http = triton_http.InferenceServerClient(f"127.0.0.1:{self.http_port}", concurrency=4)
        self.grpc = triton_grpc.InferenceServerClient(f"127.0.0.1:{self.grpc_port}")

    def _wait(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/v2/health/ready", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.05)
        raise AssertionError(f"the server does not get ready: {self.log()}")

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def add(self, name: str, bundles: Mapping[int, Path] | Path, config: str | None = None) -> None:
        """Puts a model into the repository and loads it; `config` is its config.pbtxt without name and backend."""
        self.put(name, bundles, config)
        self.http.load_model(name)

    def put(self, name: str, bundles: Mapping[int, Path] | Path, config: str | None = None) -> None:
        folder = self.repository / name
        for version, bundle in ({1: bundles} if isinstance(bundles, Path) else bundles).items():
            (folder / str(version)).mkdir(parents=True, exist_ok=True)
            # A new file takes the place of the old one: bundles are never overwritten in place.
            shutil.copy2(bundle, folder / str(version) / "model.pkg.new")
            (folder / str(version) / "model.pkg.new").rename(folder / str(version) / "model.pkg")
        if config is not None:
            (folder / "config.pbtxt").write_text(f'name: "{name}"\nbackend: "hardtack"\n{config}\n')

    def metrics(self, model: str) -> dict[str, float]:
        """Counters of a model by name, over all of its versions; failures by reason, as `failure.BACKEND`."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        found: dict[str, float] = {}
        for line in lines:
            if line.startswith("nv_inference") and f'model="{model}"' in line:
                key = line.partition("{")[0].removeprefix("nv_inference_")
                if 'reason="' in line:
                    key = "failure." + line.partition('reason="')[2].partition('"')[0]
                found[key] = found.get(key, 0) + float(line.rpartition(" ")[2])
        return found

    def stats(self, model: str, version: str = "1") -> dict[str, Any]:
        found: dict[str, Any] = self.http.get_inference_statistics(model, version)["model_stats"][0]
        return found

    def stop(self) -> None:
        """Ends the server as an operator would; it must go in peace."""
        self.http.close()
        self.grpc.close()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the server does not end: {self.log()}") from None
        assert code == int(self.lingers), self.log()

    def __enter__(self) -> TritonServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def tensor(client: ModuleType, name: str, array: Array, binary: bool = True) -> Any:
    """An input of tritonclient.http or tritonclient.grpc."""
    made = client.InferInput(name, list(array.shape), TYPES[array.dtype.name])
    if client is triton_http:
        made.set_data_from_numpy(array, binary_data=binary)
    else:
        made.set_data_from_numpy(array)
    return made


def infer(server: TritonServer, model: str, inputs: Mapping[str, Array], **more: Any) -> dict[str, Array]:
    """Over HTTP; the outputs by name."""
    reply = server.http.infer(model, [tensor(triton_http, n, a) for n, a in inputs.items()], **more)
    return {output["name"]: reply.as_numpy(output["name"]) for output in reply.get_response()["outputs"]}


def infer_grpc(server: TritonServer, model: str, inputs: Mapping[str, Array], **more: Any) -> dict[str, Array]:
    reply = server.grpc.infer(model, [tensor(triton_grpc, n, a) for n, a in inputs.items()], **more)
    return {output.name: reply.as_numpy(output.name) for output in reply.get_response().outputs}
