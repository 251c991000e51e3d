"""What one client, or one model, does to another: nothing."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sample
import serving_bundles
from served import Answer, Server, split_answer, wait_for
from serving_bundles import put

# Opening slow.pkg takes until it is told to go on.
SLOW_FILES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void hold(const char* path) {
  const char* go = getenv("HARDTACK_TEST_GO");
  if (go == NULL || path == NULL || strstr(path, "/slow.pkg") == NULL) return;
  while (access(go, F_OK) != 0) usleep(5000);
}
#define OPEN(name)                                                             \
  int name(const char* path, int flags, ...) {                                 \
    va_list more;                                                              \
    va_start(more, flags);                                                     \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(more, mode_t) : 0; \
    va_end(more);                                                              \
    hold(path);                                                                \
    int (*real)(const char*, int, ...) = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, #name); \
    return real(path, flags, mode);                                            \
  }
OPEN(open)
OPEN(open64)
"""
X = np.zeros((1, 4), np.float32)


@pytest.fixture(scope="session")
def slow_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slow_files")
    (folder / "slow.c").write_text(SLOW_FILES)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler for this machine")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "slow.so", folder / "slow.c", "-ldl"], check=True)
    return folder / "slow.so"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    put(serving_bundles.spin(), tmp_path / "models" / "slow.pkg")
    put(serving_bundles.spin(3.0), tmp_path / "models" / "fast.pkg")
    return tmp_path / "models"


def test_a_slow_load_delays_no_other_model(program: Path, repository: Path, slow_files: Path, tmp_path: Path) -> None:
    environment = {"LD_PRELOAD": str(slow_files), "HARDTACK_TEST_GO": str(tmp_path / "go")}
    with Server(program, repository, "--poll", "20", ready=False, environment=environment) as server:
        wait_for(lambda: server.infer("fast", X).status == 200, "the other model to be loaded")
        assert server.get("/v2/models/slow/ready").status == 400
        put(serving_bundles.spin(5.0), repository / "fast.pkg")
        wait_for(lambda: server.infer("fast", X + 1).json()["outputs"][0]["data"][0] == 5, "the other to be replaced")
        threads = [threading.Thread(target=server.post, args=("/v2/repository/models/slow/load",)) for _ in range(3)]
        for thread in threads:
            thread.start()
        put(serving_bundles.spin(7.0), repository / "third.pkg")
        assert server.post("/v2/repository/models/third/load").status == 200
        assert server.post("/v2/repository/models/fast/unload").status == 200
        assert server.infer("third", X + 1).json()["outputs"][0]["data"][0] == 7
        assert server.get("/v2/models/slow/ready").json()["error"] == 'model "slow" is not ready: it is being loaded'
        (tmp_path / "go").touch()
        for thread in threads:
            thread.join()
        assert server.infer("slow", X + 1).json()["outputs"][0]["data"][0] == 2


def test_a_slow_load_holds_up_no_drain(program: Path, repository: Path, slow_files: Path, tmp_path: Path) -> None:
    """Requests are finished; what is being loaded is not waited for, and the process ends with 0."""
    environment = {"LD_PRELOAD": str(slow_files), "HARDTACK_TEST_GO": str(tmp_path / "never")}
    with Server(program, repository, "--drain-timeout", "10", ready=False, environment=environment) as server:
        wait_for(lambda: server.infer("fast", X).status == 200, "the other model to be loaded")
        with ThreadPoolExecutor(1) as pool:
            busy = X.copy()
            busy[0, 3] = 500
            sent = pool.submit(server.infer, "fast", busy)
            running = 'model="fast",version="1"'
            wait_for(lambda: server.metric("hardtack_running_requests", running) == 1, "the run")
            server.process.send_signal(signal.SIGTERM)
            assert sent.result().status == 200
        assert server.process.wait(9) == 0
        assert server.told("stopped while a model was being loaded")


# --- the queue ---


def body(first: float, busy: float = 0) -> bytes:
    item = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [first, 0, 0, busy]}
    text = json.dumps({"inputs": [item]}).encode()
    return b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)


def waiting(server: Server) -> float:
    return server.metric("hardtack_waiting_requests", 'model="spin",version="1"')


def grpc_flood(server: Server, count: int, busy: float) -> tuple[object, list[object]]:
    """`count` requests of one gRPC connection, each of which takes `busy` milliseconds."""
    import tritonclient.grpc as triton

    client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    tensor = triton.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([[1, 0, 0, busy]], np.float32))
    answers: list[object] = []
    for _ in range(count):
        client.async_infer("spin", [tensor], lambda result, error: answers.append(error or result))
    return client, answers


def test_a_flood_leaves_others_their_turn(program: Path, spin_folder: Path) -> None:
    """40 requests of one connection take 4 s; who comes then waits for one of them, and not for all."""
    with Server(program, spin_folder, "--sessions", "1") as server:
        client, answers = grpc_flood(server, 40, 100)
        wait_for(lambda: waiting(server) >= 30, "the flood")
        for turn in range(3):
            assert server.infer("spin", X + turn).status == 200
        assert len(answers) < 30
        wait_for(lambda: len(answers) == 40, "the flood to be answered")
        client.close()  # type: ignore[attr-defined]


def test_a_full_queue_has_room_for_who_has_none(program: Path, spin_folder: Path) -> None:
    with Server(program, spin_folder, "--sessions", "1", "--max-queue", "8") as server:
        client, answers = grpc_flood(server, 9, 300)
        wait_for(lambda: waiting(server) == 8, "the queue to be full")
        with ThreadPoolExecutor(2) as pool:
            sent = [pool.submit(server.infer, "spin", X + i) for i in range(2)]
            assert [one.result().status for one in sent] == [200, 200]
        wait_for(lambda: len(answers) == 9, "the flood to be answered")
        refused = [str(a) for a in answers if "try again later" in str(a)]
        assert len(refused) == 2
        assert "this client's were the most, and others came" in refused[0]
        client.close()  # type: ignore[attr-defined]


# --- sequences ---


def count(server: Server, sequence: object, start: bool = False) -> Answer:
    item = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 1, 1]}
    parameters = {"sequence_id": sequence, "sequence_start": start}
    return server.post("/v2/models/count/infer", {"inputs": [item], "parameters": parameters})


def calls(answer: Answer) -> int:
    assert answer.status == 200, answer.body
    return int(answer.json()["outputs"][1]["data"][0])


def test_a_number_and_its_text_are_two_sequences(program: Path, tmp_path: Path) -> None:
    put(sample.content(("x86-64-v3",)), tmp_path / "models" / "count.pkg")
    with Server(program, tmp_path / "models", "--sessions", "1") as server:
        assert calls(count(server, 1, start=True)) == 5
        unknown = count(server, "1")
        assert (unknown.status, unknown.error[:31]) == (400, 'sequence "1" is not known to mo')
        assert calls(count(server, "1", start=True)) == 5
        assert [calls(count(server, 1)), calls(count(server, 1)), calls(count(server, "1"))] == [6, 7, 6]


def test_requests_of_one_sequence_keep_their_order(program: Path, tmp_path: Path) -> None:
    """From two connections, of which one has many requests waiting and the other none."""
    put(sample.content(("x86-64-v3",)), tmp_path / "models" / "count.pkg")
    with Server(program, tmp_path / "models", "--sessions", "2") as server:
        assert calls(count(server, "s", start=True)) == 5
        with ThreadPoolExecutor(8) as pool:
            found = sorted(calls(one) for one in pool.map(lambda _: count(server, "s"), range(40)))
        assert found == list(range(6, 46))
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
            assert split_answer(connection.recv(4096))[0].status == 200
