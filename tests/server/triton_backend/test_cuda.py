"""The backend on CUDA, through the null driver: nothing is computed, everything else is as on a GPU.

At its end the driver looks for what was done wrong and what is left behind, and then Triton does not end with 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import sample_cuda
from triton_server import Array, TritonServer, infer, infer_grpc
from tritonclient.utils import InferenceServerException

from hardtack.codegen.package.writer import write_bundle

BATCHED = "max_batch_size: 16 dynamic_batching { max_queue_delay_microseconds: 20000 }"


@pytest.fixture
def on_cuda(null_library: Path) -> str:
    """For a configuration. The driver's path is given to the backend alone: Triton itself would ask it for more."""
    given = {"device": "cuda:0", "cuda_driver": str(null_library)}
    return " ".join(f'parameters {{ key: "{k}" value: {{ string_value: "{v}" }} }}' for k, v in given.items())


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """forward(x: f32[n, 4]) -> y, n from 0 to 64, for cuda:sm_90."""
    path = tmp_path_factory.mktemp("cuda") / "scale.pkg"
    write_bundle(path, sample_cuda.content())
    return path


@pytest.fixture(scope="module")
def server(backend: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    strict = {"HARDTACK_NULL_STRICT": "1"}
    with TritonServer(tmp_path_factory.mktemp("triton"), backend, environment=strict) as started:
        yield started
    assert "null driver:" not in started.log()


def is_of_the_driver(array: Array, rows: int) -> bool:
    """What the null driver's memory has in each byte."""
    return array.shape == (rows, 4) and array.tobytes() == b"\xcd" * (16 * rows)


def x(rows: int) -> dict[str, Array]:
    return {"x": np.ones((rows, 4), np.float32)}


def test_answers_have_the_right_shape(server: TritonServer, bundle: Path, on_cuda: str) -> None:
    server.add("plain", bundle, f"max_batch_size: 64 {on_cuda}")
    for rows in (1, 64, 5, 5, 5):
        assert is_of_the_driver(infer(server, "plain", x(rows))["y"], rows)
        assert is_of_the_driver(infer_grpc(server, "plain", x(rows))["y"], rows)
    assert "target cuda:sm_90" in server.log()


def test_requests_become_batches_on_several_instances(server: TritonServer, bundle: Path, on_cuda: str) -> None:
    server.add("batched", bundle, f"{BATCHED} instance_group {{ count: 2 kind: KIND_CPU }} {on_cuda}")
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: infer_grpc(server, "batched", x(i % 3 + 1))["y"], range(96)))
    assert all(is_of_the_driver(y, i % 3 + 1) for i, y in enumerate(replies))
    stats = server.stats("batched")
    assert (stats["inference_count"], stats["execution_count"] < 96) == (192, True)


def test_a_model_is_replaced_while_it_serves(server: TritonServer, bundle: Path, on_cuda: str) -> None:
    server.add("changing", bundle, f"{BATCHED} {on_cuda}")
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            asked = [pool.submit(infer_grpc, server, "changing", x(2)) for _ in range(20)]
            server.add("changing", bundle)
            assert all(is_of_the_driver(one.result()["y"], 2) for one in asked)
    server.http.unload_model("changing")


def test_a_group_on_gpus_is_refused_in_words(server: TritonServer, bundle: Path, on_cuda: str) -> None:
    """By Triton itself, where it sees no GPU; else by the backend, which says how a device is named."""
    with pytest.raises(InferenceServerException, match=r"KIND_GPU|gpu"):
        server.add("group", bundle, f"max_batch_size: 0 instance_group {{ kind: KIND_GPU gpus: [0] }} {on_cuda}")
