"""KServe's SDK, the package kserve itself, as a client over HTTP and gRPC.

It lives in an environment of its own (tests/support/kserve_sdk.py); tests/server/programs/kserve_client.py runs there.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import served
from kserve_sdk import NoSdk, sdk_python
from served import Server

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
    try:
        return sdk_python()
    except NoSdk as error:
        pytest.skip(str(error))


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
