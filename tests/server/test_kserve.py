"""KServe's SDK, the package kserve itself, as a client over HTTP and gRPC.

It needs older packages than ours, so that it lives in an environment of its own, build/kserve, which the first run
makes; tests/server/programs/kserve_client.py runs there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import served
from served import ROOT, Server

VENV = ROOT / "build" / "kserve"
CLIENT = Path(__file__).parent / "programs" / "kserve_client.py"
CHECKS = [
    *("rest types in binary", "rest types in JSON", "grpc types", "rest ids and versions", "grpc ids and versions"),
    *(
        "rest no rows",
        "grpc no rows",
        "rest errors",
        "grpc errors",
        "rest health",
        "grpc health",
        "rest many",
        "grpc many",
    ),
]


@pytest.fixture(scope="module")
def python() -> Path:
    """The Python of the environment with the SDK; skips where it cannot be made."""
    requirements, stamp = ROOT / "requirements" / "kserve.txt", VENV / "requirements.stamp"
    wanted, program = hashlib.sha256(requirements.read_bytes()).hexdigest(), VENV / "bin" / "python"
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(VENV, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        command = [program, "-m", "pip", "install", "-q", "-q", "--no-compile", "--no-deps", "-r", requirements]
        if subprocess.run(command, check=False).returncode != 0:
            pytest.skip("KServe's SDK, requirements/kserve.txt, cannot be installed")
        stamp.write_text(wanted)
    return program


@pytest.fixture(scope="module")
def found(python: Path, program: Path, server: Server) -> dict[str, str | None]:
    """What the client says of each check."""
    if not served.speaks_grpc(program):
        pytest.skip("the server was built without gRPC")
    command = [python, CLIENT, str(server.port), str(server.grpc_port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_no_check_is_forgotten(found: dict[str, str | None]) -> None:
    assert sorted(found) == sorted(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_sdk(found: dict[str, str | None], check: str) -> None:
    assert found[check] is None, found[check]
