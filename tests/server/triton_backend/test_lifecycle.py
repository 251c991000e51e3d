"""Models that come, change and go while requests arrive; versions, instances, shared memory, bundles that are bad."""

from __future__ import annotations

import os
import resource
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from torch import nn
from triton_server import Array, TritonServer, infer, infer_grpc, tensor
from tritonclient.utils import InferenceServerException, shared_memory

X = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)
BATCHED = "max_batch_size: 16 dynamic_batching { }"


def eager(module: nn.Module) -> Array:
    with torch.no_grad():
        out: Array = module(torch.from_numpy(X)).numpy()
    return out


class Traffic:
    """Threads that ask a model without pause; every answer is one of `allowed`, or an error."""

    def __init__(self, server: TritonServer, model: str, allowed: list[Array]) -> None:
        self.server, self.model, self.allowed = server, model, allowed
        self.counts = [0] * len(allowed)
        self.problems: list[str] = []
        self.going = True
        self.threads = [threading.Thread(target=self._ask) for _ in range(3)]

    def _ask(self) -> None:
        client = triton_grpc.InferenceServerClient(f"127.0.0.1:{self.server.grpc_port}")
        while self.going:
            try:
                reply = client.infer(self.model, [tensor(triton_grpc, "x", X)], client_timeout=30)
            except InferenceServerException as error:
                self.problems.append(error.message())
                continue
            out = reply.as_numpy("output")
            same = [np.allclose(out, wanted, rtol=1e-5, atol=1e-5) for wanted in self.allowed]
            if any(same):
                self.counts[same.index(True)] += 1
            else:
                self.problems.append(f"{out}")
        client.close()

    def wait_for(self, which: int, more: int = 20) -> None:
        start, end = self.counts[which], time.monotonic() + 30
        while self.counts[which] < start + more:
            assert time.monotonic() < end, (self.counts, self.problems[-3:])
            time.sleep(0.002)


@contextmanager
def traffic(server: TritonServer, model: str, allowed: list[Array]) -> Any:
    made = Traffic(server, model, allowed)
    for thread in made.threads:
        thread.start()
    try:
        yield made
    finally:
        made.going = False
        for thread in made.threads:
            thread.join()


@pytest.fixture
def answers(modules: dict[str, nn.Module]) -> list[Array]:
    return [eager(modules["mlp"]), eager(modules["mlp2"])]


def test_reload_under_traffic(server: TritonServer, bundles: dict[str, Path], answers: list[Array]) -> None:
    server.add("changing", bundles["mlp"], BATCHED)
    with traffic(server, "changing", answers) as asked:
        for turn in range(6):
            asked.wait_for(turn % 2)
            server.add("changing", bundles[("mlp2", "mlp")[turn % 2]])
        asked.wait_for(0)
    assert asked.problems == []


def test_unload_and_load_under_traffic(server: TritonServer, bundles: dict[str, Path], answers: list[Array]) -> None:
    server.add("leaving", bundles["mlp"], BATCHED)
    with traffic(server, "leaving", answers) as asked:
        asked.wait_for(0)
        server.http.unload_model("leaving")
        end = time.monotonic() + 10
        while not asked.problems and time.monotonic() < end:
            time.sleep(0.01)
        server.add("leaving", bundles["mlp2"])
        asked.wait_for(1)
    assert asked.problems
    assert all("leaving" in problem for problem in asked.problems), asked.problems[:3]


def corrupt(path: Path, to: Path) -> Path:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    to.write_bytes(data)
    return to


def cut(path: Path, to: Path) -> Path:
    to.write_bytes(path.read_bytes()[:-100])
    return to


def test_a_bad_bundle_is_refused_and_the_old_one_goes_on(
    backend: Path, bundles: dict[str, Path], answers: list[Array], tmp_path: Path
) -> None:
    with TritonServer(tmp_path / "triton", backend, lingers=True) as server:
        server.add("spoiled", bundles["mlp"], BATCHED)
        with traffic(server, "spoiled", answers) as asked:
            for spoil in (corrupt, cut):
                asked.wait_for(0)
                with pytest.raises(InferenceServerException, match=r"spoiled version 1: .*model\.pkg"):
                    server.add("spoiled", spoil(bundles["mlp2"], tmp_path / "bad.pkg"))
            asked.wait_for(0)
            server.add("spoiled", bundles["mlp2"])
            asked.wait_for(1)
        assert asked.problems == []


def states(server: TritonServer, model: str) -> list[tuple[str, str]]:
    """(version, state) of every version that the server knows."""
    return sorted((m["version"], m["state"]) for m in server.http.get_model_repository_index() if m["name"] == model)


def test_versions(server: TritonServer, bundles: dict[str, Path], answers: list[Array]) -> None:
    three = {1: bundles["mlp"], 2: bundles["mlp2"], 3: bundles["mlp"]}
    server.add("versions", three, "version_policy { specific { versions: [ 1, 2 ] } }")
    for version, answer in ((1, answers[0]), (2, answers[1])):
        out = infer(server, "versions", {"x": X}, model_version=str(version))["output"]
        np.testing.assert_allclose(out, answer, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(infer(server, "versions", {"x": X})["output"], answers[1], rtol=1e-5, atol=1e-5)
    with pytest.raises(InferenceServerException, match="version 3"):
        infer(server, "versions", {"x": X}, model_version="3")
    server.put("versions", three, "version_policy { latest { num_versions: 1 } }")
    server.http.load_model("versions")
    wanted = [("1", "UNAVAILABLE"), ("2", "UNAVAILABLE"), ("3", "READY")]
    end = time.monotonic() + 20
    while states(server, "versions") != wanted and time.monotonic() < end:
        time.sleep(0.01)
    assert states(server, "versions") == wanted
    server.put("versions", three, "version_policy { all { } }")
    server.http.load_model("versions")
    assert server.http.get_model_metadata("versions")["versions"] == ["1", "2", "3"]


def test_instances(server: TritonServer, bundles: dict[str, Path], answers: list[Array]) -> None:
    group = "instance_group { count: 3 kind: KIND_CPU } max_batch_size: 4"
    server.add("instances", bundles["mlp"], f'{group} parameters {{ key: "threads" value: {{ string_value: "1" }} }}')
    with ThreadPoolExecutor(6) as pool:
        outs = list(pool.map(lambda _: infer_grpc(server, "instances", {"x": X})["output"], range(60)))
    for out in outs:
        np.testing.assert_allclose(out, answers[0], rtol=1e-5, atol=1e-5)
    counted = server.metrics("instances")
    assert (counted["request_success"], counted["count"]) == (60, 120)
    server.put("instances", bundles["mlp"], group.replace("3", "1"))
    server.http.load_model("instances")
    np.testing.assert_allclose(infer(server, "instances", {"x": X})["output"], answers[0], rtol=1e-5, atol=1e-5)


def test_counts_of_a_model_without_batches(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("counted", bundles["words"], "input { name: 'ids' data_type: TYPE_INT64 dims: [ -1, -1 ] }")
    for ids in (np.zeros((2, 4), np.int64), np.zeros((1, 3), np.int64)):
        infer(server, "counted", {"ids": ids})
    for client in (infer, infer_grpc):
        with pytest.raises(InferenceServerException, match="index"):
            client(server, "counted", {"ids": np.full((1, 1), 10)})
    counted = server.metrics("counted")
    assert (counted["request_success"], counted["failure.BACKEND"]) == (2, 2)
    assert (counted["count"], counted["exec_count"]) == (2, 2)
    stats = server.stats("counted")
    assert (stats["inference_stats"]["success"]["count"], stats["inference_stats"]["fail"]["count"]) == (2, 2)
    assert [b["batch_size"] for b in stats["batch_stats"]] == [1]


def test_a_step_of_an_ensemble(server: TritonServer, bundles: dict[str, Path], answers: list[Array]) -> None:
    server.add("step", bundles["mlp"], BATCHED)
    (server.repository / "whole" / "1").mkdir(parents=True)
    (server.repository / "whole" / "config.pbtxt").write_text("""
        platform: "ensemble" max_batch_size: 8
        input { name: "in" data_type: TYPE_FP32 dims: 16 }
        output { name: "out" data_type: TYPE_FP32 dims: 4 }
        ensemble_scheduling { step {
          model_name: "step" model_version: -1
          input_map { key: "x" value: "in" }
          output_map { key: "output" value: "out" }
        } }""")
    server.http.load_model("whole")
    for bundle, answer in (("mlp", answers[0]), ("mlp2", answers[1])):
        server.add("step", bundles[bundle])
        np.testing.assert_allclose(infer(server, "whole", {"in": X})["out"], answer, rtol=1e-5, atol=1e-5)


def memory_kib(server: TritonServer, field: str) -> int:
    """A field of /proc/PID/status of the server."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1])


def test_reloads_give_their_memory_back(server: TritonServer, bundles: dict[str, Path]) -> None:
    x = {"x": np.zeros((1, 1024), np.float32)}
    before = 0
    for turn in range(20):
        server.add("heavy", bundles["heavy"], "instance_group { count: 2 kind: KIND_CPU }")
        infer(server, "heavy", x)
        if turn == 4:
            before = memory_kib(server, "RssAnon")
    assert memory_kib(server, "RssAnon") - before < 5 * 4096  # one bundle has 4096 of weights


def test_no_memory_for_an_answer(server: TritonServer, bundles: dict[str, Path]) -> None:
    server.add("outer", bundles["outer"], "")
    limit = memory_kib(server, "VmSize") * 1024 + 300_000_000
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        with pytest.raises(InferenceServerException) as caught:
            infer(server, "outer", {"x": np.ones(20000, np.float32)})
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (caught.value.status(), caught.value.message()) == ("503", "an output: cannot allocate 1600000000 bytes")
    assert infer(server, "outer", {"x": np.ones(3, np.float32)})["output"].shape == (3, 3)


def test_shared_memory(server: TritonServer, bundles: dict[str, Path], answers: list[Array]) -> None:
    server.add("shared", bundles["mlp"], BATCHED)
    keys = [f"/hardtack_{os.getpid()}_{end}" for end in ("in", "out")]
    into = shared_memory.create_shared_memory_region("in", keys[0], X.nbytes)
    out_of = shared_memory.create_shared_memory_region("out", keys[1], answers[0].nbytes)
    try:
        shared_memory.set_shared_memory_region(into, [X])
        server.http.register_system_shared_memory("in", keys[0], X.nbytes)
        server.http.register_system_shared_memory("out", keys[1], answers[0].nbytes)
        given = triton_http.InferInput("x", list(X.shape), "FP32")
        given.set_shared_memory("in", X.nbytes)
        wanted = triton_http.InferRequestedOutput("output")
        wanted.set_shared_memory("out", answers[0].nbytes)
        server.http.infer("shared", [given], outputs=[wanted])
        out = shared_memory.get_contents_as_numpy(out_of, np.float32, list(answers[0].shape))
        np.testing.assert_allclose(out, answers[0], rtol=1e-5, atol=1e-5)
    finally:
        server.http.unregister_system_shared_memory()
        shared_memory.destroy_shared_memory_region(into)
        shared_memory.destroy_shared_memory_region(out_of)
