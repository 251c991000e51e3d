"""The photograph classifier as a Ray Serve deployment of two replicas, and eager PyTorch beside it.

./dev demo ray_serve runs this. Ray is large: it goes into an environment of its own, build/ray/venv, together with
Hardtack's wheel and without torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from examples.classify.demo import class_names, export, load_model, run_eager, write_photo
from examples.common import ROOT, console, folder_of, run, step

VENV = ROOT / "build" / "ray" / "venv"
REPLICAS = 2


class NoRay(Exception):
    """Ray cannot be installed here."""


def main() -> None:
    python = step("put Ray and Hardtack's wheel into build/ray/venv", ray_python)
    photo = step("read the photograph", write_photo)
    module = step("load PyTorch and the trained weights", load_model)
    bundle = step("export the model", lambda: export(module), spinner=False)
    with served(python, bundle) as url:
        answers = step("classify 32 times over HTTP", lambda: classify(url, [photo] * 32))
    eager = run_eager(module, photo, len(os.sched_getaffinity(0)))["probabilities"]
    replicas, batches = {a["pid"] for a in answers}, [a["batch"] for a in answers]
    console.print(f"\n{len(replicas)} replicas answered, with batches of up to {max(batches)}")
    for found in answers[0]["classes"]:
        console.print(f"  {found['probability']:.6f}  {eager[found['class']]:.6f}  {class_names()[found['class']]}")
    if any(abs(c["probability"] - eager[c["class"]]) > 1e-4 for a in answers for c in a["classes"]):
        sys.exit("error: eager PyTorch says something else")


def ray_python() -> Path:
    """The Python of the environment with Ray and Hardtack; made on demand. Raises NoRay where that cannot be."""
    python = ray_environment()
    wheels = folder_of("ray_serve") / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    run(
        *(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps"),
        *("--wheel-dir", wheels, ROOT, "-C", "build-dir=build/python"),
    )
    (wheel,) = wheels.glob("*.whl")
    run(python, "-m", "pip", "install", "-q", "-q", "--no-deps", "--force-reinstall", wheel)
    return python


def ray_environment() -> Path:
    """The Python of the environment with Ray, as yet without Hardtack; as ray_python."""
    requirements, stamp = ROOT / "requirements" / "ray.txt", VENV / "requirements.stamp"
    wanted, python = hashlib.sha256(requirements.read_bytes()).hexdigest(), VENV / "bin" / "python"
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(VENV, ignore_errors=True)
        run(sys.executable, "-m", "venv", VENV)
        command = [str(python), "-m", "pip", "install", "-q", "-q", "--no-compile", "-r", str(requirements)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise NoRay(f"ray cannot be installed: {result.stderr.strip().splitlines()[-1]}")
        stamp.write_text(wanted)
    return python


@contextmanager
def served(python: Path, bundle: Path) -> Iterator[str]:
    """The program app.py, from its being ready until it is told to stop; gives its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    log = folder_of("ray_serve") / "app.log"
    command = [python, ROOT / "examples" / "ray_serve" / "app.py", bundle, "--replicas", str(REPLICAS), "--port", port]
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=log.parent, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("ready: "):
                    yield line.removeprefix("ready: ").strip()
                    break
            else:
                sys.exit(f"error: the deployment did not start:\n{log.read_text()[-2000:]}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def classify(url: str, photos: list[np.ndarray[Any, Any]]) -> list[dict[str, Any]]:
    """What the deployment answers to photographs u8 [224, 224, 3], all asked at once."""
    with ThreadPoolExecutor(len(photos)) as pool:
        return list(pool.map(lambda p: ask(url, p.tobytes()), photos))


def ask(url: str, body: bytes) -> dict[str, Any]:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/octet-stream"})
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


if __name__ == "__main__":
    main()
