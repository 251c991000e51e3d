"""The server on CUDA, through the null driver: nothing is computed, everything else is as on a GPU.

The driver ends the process with status 3 when it saw a problem or something is left behind, and each server of these
tests must end with 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sample_cuda
import served
from grpc_calls import Calls, raw, request
from served import HANG, Answer, Array, Server, binary_body, wait_for
from serving_bundles import put

NOTHING = 0xCD
"""What the null driver's memory has in each byte."""


@pytest.fixture
def driver_folder(null_library: Path, tmp_path: Path) -> dict[str, str]:
    """Variables with which a program finds the null driver as libcuda.so.1."""
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "libcuda.so.1").symlink_to(null_library)
    return {"LD_LIBRARY_PATH": str(tmp_path / "driver"), "HARDTACK_NULL_STRICT": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(sample_cuda.content(), tmp_path / "models" / "scale" / "1" / "model.pkg")
    return tmp_path / "models"


@pytest.fixture
def server(program: Path, folder: Path, driver_folder: dict[str, str]) -> Iterator[Server]:
    arguments = ("--device", "cuda", "--max-batch", "64", "--sessions", "1", "--poll", "30")
    with Server(program, folder, *arguments, environment=driver_folder) as started:
        yield started


def ask(server: Server, rows: int) -> Answer:
    body, headers = binary_body(
        [("x", "FP32", np.ones((rows, 4), np.float32))], parameters={"binary_data_output": True}
    )
    return server.request("POST", "/v2/models/scale/infer", body, headers)


def is_of_the_driver(array: Array, rows: int) -> bool:
    return array.shape == (rows, 4) and array.tobytes() == bytes([NOTHING]) * (16 * rows)


def answers(server: Server, rows: int) -> bool:
    reply = ask(server, rows)
    assert reply.status == 200, reply.body
    size = int(reply.headers["inference-header-content-length"])
    return is_of_the_driver(np.frombuffer(reply.body[size:], np.float32).reshape(-1, 4), rows)


def test_answers_have_the_right_shape(server: Server, program: Path) -> None:
    assert all(answers(server, rows) for rows in (1, 64, 0, 5, 5, 5, 5))
    config = server.get("/v2/models/scale/config").json()
    assert (config["instance_group"][0]["kind"], config["max_batch_size"]) == ("KIND_GPU", 64)
    assert config["parameters"]["target"]["string_value"] == "cuda:sm_90"
    assert server.told("model loaded")[0]["target"] == "cuda:sm_90"
    if served.speaks_grpc(program):
        with Calls(server) as calls:
            reply = calls.call("ModelInfer", request("scale", np.ones((7, 4), np.float32)))
            assert is_of_the_driver(raw(reply), 7)


def test_requests_become_batches(server: Server) -> None:
    def batches() -> set[int]:
        return {int(b["batch_size"]) for b in server.statistics("scale")["batch_stats"]}

    until = time.monotonic() + HANG
    with ThreadPoolExecutor(8) as pool:
        while max(batches(), default=0) <= 6:  # a request has 6 rows at most
            assert all(pool.map(lambda i: answers(server, i % 6 + 1), range(64)))
            assert time.monotonic() < until, batches()
    assert (
        server.statistics("scale")["execution_count"]
        < server.statistics("scale")["inference_stats"]["success"]["count"]
    )


def test_a_file_is_replaced_while_it_serves(server: Server, folder: Path) -> None:
    path = folder / "scale" / "1" / "model.pkg"
    with ThreadPoolExecutor(2) as pool:
        for reloads in (1, 2, 3):
            put(sample_cuda.content(), path)
            while len(server.events("model reloaded")) < reloads:
                assert all(pool.map(lambda rows: answers(server, rows), (1, 2, 3, 4)))
    path.write_bytes(b"no bundle")
    wait_for(lambda: bool(server.events("reload failed, the old bundle serves on")), "the load to fail")
    assert answers(server, 2)


def test_a_device_that_fails_is_an_answer(program: Path, folder: Path, driver_folder: dict[str, str]) -> None:
    environment = driver_folder | {"HARDTACK_NULL_FAIL": "cuMemAlloc_v2=2"}  # out of memory
    with Server(program, folder, "--device", "cuda", ready=False, environment=environment) as server:
        wait_for(lambda: bool(server.events("load failed")), "the load to fail")
        assert "CUDA_ERROR_OUT_OF_MEMORY" in server.events("load failed")[0]["reason"]
        assert server.get("/v2/health/ready").status == 503


def test_a_process_that_lost_its_device_says_so(program: Path, folder: Path, driver_folder: dict[str, str]) -> None:
    """Kubernetes starts another where the server is not live."""
    environment = driver_folder | {"HARDTACK_NULL_FAIL": "cuLaunchKernelEx=719"}  # a kernel failed
    with Server(program, folder, "--device", "cuda", environment=environment) as server:
        assert server.get("/v2/health/live").json() == {"live": True}
        for _ in range(3):
            reply = ask(server, 2)
            assert reply.status == 500
            assert (
                "launching a kernel: CUDA_ERROR_OTHER (719: as the test asked); this process has lost the device"
                in reply.error
            )
        for name in ("live", "ready"):
            health = server.get(f"/v2/health/{name}")
            assert (health.status, health.json()) == (503, {name: False, "error": f'model "scale": {reply.error}'})
        assert server.metric("hardtack_requests_total", 'model="scale",version="1",result="device"') == 3
        if served.speaks_grpc(program):
            with Calls(server) as calls:
                assert not calls.call("ServerLive", b"").live


def test_no_device(program: Path, folder: Path, driver_folder: dict[str, str], tmp_path: Path) -> None:
    nothing = {"LD_LIBRARY_PATH": str(tmp_path / "none")}
    with Server(program, folder, "--device", "cuda", ready=False, environment=nothing) as server:
        wait_for(lambda: bool(server.events("load failed")), "the load to fail")
        assert "there is no CUDA driver: " in server.events("load failed")[0]["reason"]
        reply = ask(server, 1)
        assert reply.status == 400
        assert reply.error.startswith('model "scale" is not ready: ')
    with Server(program, folder, ready=False, environment=driver_folder) as server:
        wait_for(lambda: bool(server.events("load failed")), "the load to fail")
        assert "cuda:sm_90 is for device cuda" in server.events("load failed")[0]["reason"]
