"""Runs that take too long: loops are stopped, kernels are told of; nothing else waits for them."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import serving_bundles
from served import Answer, Server, wait_for
from serving_bundles import put

AGES = {"inputs": [{"name": "turns", "datatype": "INT64", "shape": [], "data": [1 << 62]}]}
FEW = {"inputs": [{"name": "turns", "datatype": "INT64", "shape": [], "data": [7]}]}
STOPPED = (
    'the run of entry point "forward" of model "loop" was stopped after 200 ms, which is as long as a run may take '
    "here (--max-run-ms)"
)


def running(server: Server, model: str) -> float:
    return server.metric("hardtack_running_requests", f'model="{model}",version="1"')


@pytest.fixture
def loop_folder(tmp_path: Path) -> Path:
    put(serving_bundles.loop(), tmp_path / "models" / "loop.pkg")
    return tmp_path / "models"


def test_a_loop_without_an_end_is_stopped(program: Path, loop_folder: Path) -> None:
    with Server(program, loop_folder, "--sessions", "1", "--max-run-ms", "200") as server:
        for _ in range(2):
            ages = server.post("/v2/models/loop/infer", AGES)
            assert (ages.status, ages.error) == (504, STOPPED)
            assert server.get("/v2/health/live").status == 200
            few = server.post("/v2/models/loop/infer", FEW)
            assert (few.status, few.json()["outputs"][0]["data"]) == (200, [7])
        assert server.metric("hardtack_requests_total", 'model="loop",version="1",result="run_limit"') == 2


def test_a_loop_stops_no_drain_no_unload_and_no_other_model(program: Path, loop_folder: Path) -> None:
    """The limit of one model, by name; the process ends with 0 (the context says so) while such a run goes on."""
    with Server(program, loop_folder, "--sessions", "1", "--max-run-ms", "loop=1500") as server:
        answers: list[Answer] = []

        def ask() -> None:
            answers.append(server.post("/v2/models/loop/infer", AGES))

        threads = [threading.Thread(target=ask)]
        threads[0].start()
        wait_for(lambda: running(server, "loop") == 1, "the run")
        put(serving_bundles.spin(), loop_folder / "spin.pkg")
        assert server.post("/v2/repository/models/spin/load").status == 200
        assert server.infer("spin", np.zeros((1, 4), np.float32)).status == 200
        assert running(server, "loop") == 1
        assert server.post("/v2/repository/models/loop/unload").status == 200
        assert server.post("/v2/repository/models/loop/load").status == 200
        threads.append(threading.Thread(target=ask))
        threads[1].start()
        wait_for(lambda: running(server, "loop") == 1, "the second run")
        assert server.stop() == 0
        for thread in threads:
            thread.join()
        assert [a.status for a in answers] == [504, 504]


def test_a_kernel_that_does_not_come_back_is_told_of(program: Path, spin_folder: Path) -> None:
    """Nothing ends a kernel but itself: until then, live and ready say so."""
    with Server(program, spin_folder, "--sessions", "2", "--max-run-ms", "100") as server:
        busy = np.array([[1, 2, 3, 4000]], np.float32)
        thread = threading.Thread(target=server.infer, args=("spin", busy))
        thread.start()
        wait_for(lambda: server.get("/v2/health/live").status == 503, "live to say so")
        told = 'model "spin": 1 of 2 sessions do not come back from a run that was to end after 100 ms'
        assert server.get("/v2/health/live").json() == {"live": False, "error": told}
        assert server.get("/v2/health/ready").json() == {"ready": False, "error": told}
        assert server.metric("hardtack_stuck_runs", 'model="spin",version="1"') == 1
        assert server.infer("spin", np.zeros((1, 4), np.float32)).status == 200  # the other session serves
        thread.join()
        assert server.get("/v2/health/live").status == 200
        assert server.metric("hardtack_stuck_runs", 'model="spin",version="1"') == 0
