"""What the serving benchmarks compare: servers with their models, and the load generator that drives them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.serving_cases import Case, Protocol, write_cases
from bench.serving_models import MAX_BATCH
from tests.support.triton_server import TRITON, TritonServer

ROOT = Path(__file__).resolve().parents[1]

# The wheel's python backend is made for numpy 1: of a later one's arrays it takes 0 bytes.
NUMPY = ROOT / "build" / "tritonserver" / "numpy1"
TRITON_MODELS = {
    "hardtack": "Triton, Hardtack's backend",
    "example": "Triton, python backend, TorchScript as in its examples",
    "torch": "Triton, python backend, TorchScript, requests joined",
    "bundle": "Triton, python backend, the bundle, requests joined",
}


@dataclass(frozen=True)
class Endpoint:
    """A model behind a port of this machine."""

    protocol: Protocol
    port: int
    model: str


@dataclass(frozen=True)
class Result:
    """Of one turn; times in microseconds, client_cpu in processors."""

    answers: int
    per_second: float
    p50_us: float
    p90_us: float
    p99_us: float
    max_us: float
    client_cpu: float


def middle(results: Sequence[Result], field: str) -> float:
    """The median over turns."""
    return median(float(getattr(result, field)) for result in results)


class Load:
    """The load generator, built for this run; `folder` takes it and its files."""

    def __init__(self, server_program: Path, folder: Path) -> None:
        library = server_program.resolve().parents[1] / "runtime_cpp"
        self.folder = folder
        self.program = folder / "serving_load"
        sources = sorted(map(str, (ROOT / "bench" / "serving_load").glob("*.cpp")))
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"], capture_output=True, text=True, check=True
        ).stdout.split()
        include = ROOT / "runtime_cpp" / "include"
        options = ["-std=c++17", "-O2", f"-I{include}", f"-L{library}", f"-Wl,-rpath,{library}"]
        subprocess.run(["g++", *options, *sources, "-o", str(self.program), "-lhardtack", *flags], check=True)

    def run(self, endpoint: Endpoint, cases: Sequence[Case], clients: int, seconds: float, rate: float = 0) -> Result:
        """Stops the program where an answer was wrong, came twice or not at all. Rate 0: as fast as answers come."""
        path = self._write(endpoint.protocol, endpoint.model, cases)
        return Result(**self._call(endpoint.protocol, endpoint.port, path, clients, seconds, rate))

    def direct(self, bundle: Path, cases: Sequence[Case], seconds: float) -> float:
        """Microseconds of a call of the library, the median."""
        return float(self._call("direct", bundle, self._write("http", "direct", cases), seconds)["p50_us"])

    @contextmanager
    def canned(self, cases: Sequence[Case]) -> Iterator[Endpoint]:
        """A server that computes nothing: what the machine and the load generator take."""
        path = write_cases(self.folder / "canned", "http", "mlp", cases)
        with subprocess.Popen([self.program, "canned", path], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield Endpoint("http", int(process.stdout.readline()), "mlp")
            finally:
                process.kill()

    def _write(self, protocol: Protocol, model: str, cases: Sequence[Case]) -> Path:
        return write_cases(self.folder / "cases", protocol, model, cases)

    def _call(self, *arguments: object) -> dict[str, Any]:
        done = subprocess.run([self.program, *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{done.stdout}{done.stderr}")
        return dict(json.loads(done.stdout))


# A python backend's model; {load} makes `self.run`, from an array to an array. Triton's examples run one request after
# the other; {joined} puts those of a batch together, as Hardtack's backend does.
_MODEL_PY = """
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
        if {joined}:
            out = self.run(rows[0] if len(rows) == 1 else np.concatenate(rows))
            outs = np.split(out, np.cumsum([len(given) for given in rows])[:-1])
        else:
            outs = [self.run(given) for given in rows]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("output", out)]) for out in outs]
"""
_LOAD = {
    "bundle": """
        import hardtack
        self.run = hardtack.load({path!r}).session("forward")
""",
    "torch": """
        import torch
        module = torch.jit.load({path!r})
        def run(x):
            with torch.inference_mode():
                return module(torch.from_numpy(x)).numpy()
        self.run = run
""",
}
_CONFIG = """
max_batch_size: {max_batch}
input {{ name: "x" data_type: TYPE_FP32 dims: {num_inputs} }}
output {{ name: "output" data_type: TYPE_FP32 dims: {num_outputs} }}
dynamic_batching {{ }}
"""


def _python_backend(folder: Path) -> Path:
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


@contextmanager
def triton(folder: Path, backend: Path, bundle: Path, script: Path, sizes: Sequence[int]) -> Iterator[TritonServer]:
    """A Triton server with the perceptron of `sizes` as all of TRITON_MODELS; `script` is its module in TorchScript."""
    more = _python_backend(folder / "more_backends")
    config = _CONFIG.format(max_batch=MAX_BATCH, num_inputs=sizes[0], num_outputs=sizes[-1])
    with TritonServer(folder / "triton", backend, more_backends=more) as server:
        for name in TRITON_MODELS:
            version = server.repository / name / "1"
            version.mkdir(parents=True)
            if name == "hardtack":
                shutil.copy2(bundle, version / "model.pkg")
            else:
                kind = "bundle" if name == "bundle" else "torch"
                load = _LOAD[kind].format(path=str(bundle if name == "bundle" else script))
                site = sysconfig.get_path("purelib")
                text = _MODEL_PY.format(numpy=str(NUMPY), site=site, load=load, joined=name != "example")
                (version / "model.py").write_text(text)
            head = f'name: "{name}"\nbackend: "{"hardtack" if name == "hardtack" else "python"}"\n'
            (server.repository / name / "config.pbtxt").write_text(head + config)
            server.http.load_model(name)
        yield server
