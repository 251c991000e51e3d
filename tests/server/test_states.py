"""A request of a sequence that is answered with an error has not moved the sequence's states."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sample
import served
from served import Answer, Server
from serving_bundles import put

GOOD, INFINITE = [1.0, 1.0, 1.0, 1.0], [3e38, 3e38, 3e38, 3e38]


@pytest.fixture(scope="module", params=["1", "2"])
def counting(
    request: pytest.FixtureRequest, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """forward counts its runs in a state, from 5 on; with one session and with two."""
    folder = tmp_path_factory.mktemp("counting")
    put(sample.content(("x86-64-v3",)), folder / "count.pkg")
    with Server(program, folder, "--sessions", request.param) as started:
        yield started


@pytest.fixture
def region(counting: Server) -> Iterator[str]:
    key = f"/hardtack_states_{os.getpid()}"
    path = Path("/dev/shm" + key)
    path.write_bytes(bytes(64))
    counting.post("/v2/systemsharedmemory/region/out/register", {"key": key, "byte_size": 64})
    yield "out"
    counting.post("/v2/systemsharedmemory/region/out/unregister")
    path.unlink()


def ask(server: Server, sequence: str, data: list[float], start: bool = False, **more: object) -> Answer:
    parameters = {"sequence_id": sequence, "sequence_start": start}
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": data}
    request = {"inputs": [tensor], "parameters": parameters, **more}
    return server.post("/v2/models/count/infer", request)


def calls(answer: Answer) -> int:
    assert answer.status == 200, answer.body
    return int(next(o for o in answer.json()["outputs"] if o["name"] == "calls")["data"][0])


def test_an_output_that_json_does_not_carry(counting: Server) -> None:
    assert calls(ask(counting, "json", GOOD, start=True)) == 5
    for turn in range(6, 9):
        bad = ask(counting, "json", INFINITE)
        assert (bad.status, "which JSON does not carry" in bad.error) == (400, True)
        calls(ask(counting, "other", GOOD, start=True))  # others push the states out of the session, and back
        assert calls(ask(counting, "json", GOOD)) == turn


def test_a_start_that_fails_starts_nothing(counting: Server) -> None:
    assert calls(ask(counting, "again", GOOD, start=True)) == 5
    assert calls(ask(counting, "again", GOOD)) == 6
    assert ask(counting, "again", INFINITE, start=True).status == 400
    assert calls(ask(counting, "again", GOOD)) == 7
    calls(ask(counting, "other", GOOD, start=True))
    assert ask(counting, "again", INFINITE, start=True).status == 400
    assert calls(ask(counting, "again", GOOD)) == 8
    assert ask(counting, "fresh", INFINITE, start=True).status == 400
    unknown = ask(counting, "fresh", GOOD)
    assert (unknown.status, unknown.error[:30]) == (400, 'sequence "fresh" is not known ')


def test_what_is_binary_moves_on(counting: Server) -> None:
    assert calls(ask(counting, "binary", GOOD, start=True)) == 5
    outputs = [{"name": "y", "parameters": {"binary_data": True}}]
    answer = ask(counting, "binary", INFINITE, outputs=outputs)
    assert answer.status == 200
    assert np.isinf(np.frombuffer(answer.body[-16:], np.float32)).any()
    assert calls(ask(counting, "binary", GOOD)) == 7


def test_an_output_region_that_is_too_small(counting: Server, region: str) -> None:
    assert calls(ask(counting, "small", GOOD, start=True)) == 5
    place = {"shared_memory_region": region, "shared_memory_byte_size": 8}
    outputs = [{"name": "y", "parameters": place}]
    bad = ask(counting, "small", GOOD, outputs=outputs)
    assert (bad.status, bad.error) == (
        400,
        'shared memory region "out": 8 bytes were set aside for an output of 16',
    )
    assert calls(ask(counting, "small", GOOD)) == 6
    outputs = [{"name": "y", "parameters": place | {"shared_memory_byte_size": 16}}, {"name": "calls"}]
    assert calls(ask(counting, "small", GOOD, outputs=outputs)) == 7


def test_a_region_that_became_shorter(counting: Server, region: str) -> None:
    assert calls(ask(counting, "cut", GOOD, start=True)) == 5
    os.truncate(f"/dev/shm/hardtack_states_{os.getpid()}", 8)
    place = {"shared_memory_region": region, "shared_memory_byte_size": 16}
    bad = ask(counting, "cut", GOOD, outputs=[{"name": "y", "parameters": place}])
    assert (bad.status, "became shorter than it was registered" in bad.error) == (400, True)
    assert calls(ask(counting, "cut", GOOD)) == 6


def test_over_grpc(counting: Server, program: Path, region: str) -> None:
    if not served.speaks_grpc(program):
        pytest.skip("the server is built without gRPC")
    import tritonclient.grpc as triton
    from tritonclient.utils import InferenceServerException

    client = triton.InferenceServerClient(f"127.0.0.1:{counting.grpc_port}")
    tensor = triton.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))

    def count(start: bool = False) -> int:
        answer = client.infer("count", [tensor], sequence_id="rpc", sequence_start=start)
        return int(answer.as_numpy("calls"))

    assert count(start=True) == 5
    small = triton.InferRequestedOutput("y")
    small.set_shared_memory(region, 8)
    with pytest.raises(InferenceServerException, match="8 bytes were set aside for an output of 16"):
        client.infer("count", [tensor], outputs=[small], sequence_id="rpc")
    assert count() == 6
    client.close()
