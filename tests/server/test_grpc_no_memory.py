"""Over gRPC, where an allocation of the server's own code fails: the call ends, and the next is answered.

Without what makes or reads maps of protobuf, as streams do: an allocation that fails in one leaves it broken.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_calls import Calls, raw
from served import Server, speaks_grpc, wait_for
from tritonclient.grpc import service_pb2 as pb

from tests.support.builds import build_faults

X = np.array([[1, 2, 3, 0]], np.float32)
MOST = 400
"""More allocations than any call here takes."""
SERVED = {
    "ModelInfer": lambda calls: calls.infer(x=X),
    "ModelInfer with an error": lambda calls: calls.infer("none", x=X),
    "ModelInfer that other threads read": lambda calls: calls.infer(x=np.zeros((64, 4), np.float32), id="i" * 70_000),
    "ModelMetadata": lambda calls: calls.call("ModelMetadata", pb.ModelMetadataRequest(name="spin")),
    "RepositoryModelLoad": lambda calls: calls.call(
        "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="none")
    ),
}


@pytest.fixture
def served(program: Path, models: Path, tmp_path: Path) -> Iterator[Server]:
    if not speaks_grpc(program):
        pytest.skip("the server was built without gRPC")
    if any(mark in program.read_bytes() for mark in (b"__asan_init", b"__tsan_init")):
        pytest.skip("the program has an allocator of its own")
    library = build_faults(tmp_path)
    environment = {"LD_PRELOAD": str(library), "FAULTS_IN": program.name}
    started = Server(program, models, "--log-requests", "--poll", "0", "--drain-timeout", "2", environment=environment)
    yield started
    if started.process.poll() is None:
        started.process.kill()
        started.process.wait()


def send(served: Server, number: int, line: str) -> None:
    before = served.raw_log.count(line)
    served.process.send_signal(number)
    wait_for(lambda: served.raw_log.count(line) > before or served.process.poll() is not None, line)
    assert served.process.poll() is None, served.raw_log[-5:]


def outcome(ask: Callable[[Calls], Any], calls: Calls) -> str:
    try:
        ask(calls)
    except grpc.RpcError as error:
        return str(error.code().name)  # type: ignore[attr-defined]
    return "OK"


@pytest.mark.parametrize("what", SERVED)
def test_every_allocation_of_a_call_fails_once(served: Server, what: str) -> None:
    with Calls(served) as calls:
        good = outcome(SERVED[what], calls)
        outcomes = []
        for _ in range(MOST):
            send(served, signal.SIGUSR2, "faults: armed\n")
            outcomes.append(outcome(SERVED[what], calls))
            send(served, signal.SIGUSR1, "faults: disarmed\n")
            assert raw(calls.infer(x=X))[0, 0] == 2, outcomes
            if outcomes[-25:] == [good] * 25:
                break
        assert "DEADLINE_EXCEEDED" not in outcomes  # a call that never ends
        assert "RESOURCE_EXHAUSTED" in outcomes
    lost = outcomes.count("CANCELLED")  # where gRPC itself found no memory to end the call
    assert lost <= 4
    assert served.stop() in ((0, 1) if lost else (0,))
