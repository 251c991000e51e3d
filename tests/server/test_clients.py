"""Real clients: tritonclient, with all that it can do over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tritonclient.http as client
import tritonclient.utils.shared_memory as regions
from served import Server
from tritonclient.utils import InferenceServerException

X = np.array([[1, 2, 3, 0], [4, 5, 6, 0]], np.float32)


@pytest.fixture(scope="module")
def triton(server: Server) -> Iterator[client.InferenceServerClient]:
    with client.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4) as made:
        yield made


def given(x: np.ndarray[tuple[int, ...], np.dtype[np.float32]], binary: bool = True) -> client.InferInput:
    tensor = client.InferInput("x", x.shape, "FP32")
    tensor.set_data_from_numpy(x, binary_data=binary)
    return tensor


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("packed", [None, "gzip", "deflate"])
def test_inference(triton: client.InferenceServerClient, binary_in: bool, binary_out: bool, packed: str | None) -> None:
    outputs = [client.InferRequestedOutput("y", binary_data=binary_out)]
    more = {"request_compression_algorithm": packed, "response_compression_algorithm": packed}
    reply = triton.infer("spin", [given(X, binary_in)], outputs=outputs, request_id="r1", **more)
    assert np.array_equal(reply.as_numpy("y"), X * 2)
    assert reply.get_response()["id"] == "r1"
    assert np.array_equal(triton.infer("spin", [given(X, binary_in)], **more).as_numpy("y"), X * 2)


def test_what_it_asks_about(triton: client.InferenceServerClient) -> None:
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("spin")
    assert not triton.is_model_ready("nobody")
    assert triton.get_server_metadata()["name"] == "hardtack"
    assert triton.get_model_metadata("spin")["inputs"][0]["shape"] == [-1, 4]
    assert triton.get_model_config("spin")["max_batch_size"] == 0
    assert {m["name"] for m in triton.get_model_repository_index()} == {"spin", "types", "count"}
    before = triton.get_inference_statistics("spin")["model_stats"][0]["inference_count"]
    triton.infer("spin", [given(X)], model_version="1", timeout=10_000_000, priority=1)
    assert triton.get_inference_statistics("spin")["model_stats"][0]["inference_count"] == before + 1
    triton.load_model("spin")


def test_errors_arrive(triton: client.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match='there is no model "nobody"'):
        triton.infer("nobody", [given(X)])
    with pytest.raises(InferenceServerException, match="has shape"):
        triton.infer("spin", [given(np.zeros((2, 5), np.float32))])


def test_shared_memory(triton: client.InferenceServerClient) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    x[:, 3] = 0
    inside = regions.create_shared_memory_region("in", "/hardtack_test_in", 64)
    outside = regions.create_shared_memory_region("out", "/hardtack_test_out", 64)
    try:
        regions.set_shared_memory_region(inside, [x], offset=16)
        triton.register_system_shared_memory("in", "/hardtack_test_in", 64)
        triton.register_system_shared_memory("out", "/hardtack_test_out", 48, offset=16)
        status = triton.get_system_shared_memory_status()
        assert [(r["name"], r["offset"], r["byte_size"]) for r in status] == [("in", 0, 64), ("out", 16, 48)]
        assert triton.get_cuda_shared_memory_status() == []
        tensor = client.InferInput("x", x.shape, "FP32")
        tensor.set_shared_memory("in", 32, offset=16)
        wanted = client.InferRequestedOutput("y")
        wanted.set_shared_memory("out", 32, offset=8)
        told = triton.infer("spin", [tensor], outputs=[wanted]).get_response()["outputs"][0]["parameters"]
        assert told == {"shared_memory_region": "out", "shared_memory_offset": 8, "shared_memory_byte_size": 32}
        assert np.array_equal(regions.get_contents_as_numpy(outside, np.float32, [2, 4], offset=24), x * 2)
        with pytest.raises(InferenceServerException, match="is registered already"):
            triton.register_system_shared_memory("in", "/hardtack_test_in", 64)
        with pytest.raises(InferenceServerException, match="pass the end"):
            triton.register_system_shared_memory("more", "/hardtack_test_in", 65)
        with pytest.raises(InferenceServerException, match="cannot be opened"):
            triton.register_system_shared_memory("none", "/hardtack_test_none", 1)
        tensor.set_shared_memory("in", 32, offset=40)
        with pytest.raises(InferenceServerException, match="do not lie in it"):
            triton.infer("spin", [tensor])
        tensor.set_shared_memory("in", 32, offset=16)
        wanted.set_shared_memory("out", 24)
        with pytest.raises(InferenceServerException, match="24 bytes were set aside for an output of 32"):
            triton.infer("spin", [tensor], outputs=[wanted])
        shrink(inside)
        with pytest.raises(InferenceServerException, match="became shorter"):
            triton.infer("spin", [tensor])
        triton.unregister_system_shared_memory("in")
        triton.unregister_system_shared_memory()
        assert triton.get_system_shared_memory_status() == []
    finally:
        for region in (inside, outside):
            regions.destroy_shared_memory_region(region)


def shrink(region: object) -> None:
    """The client cuts its own region short after it was registered: the server may not die of it."""
    with open("/dev/shm/hardtack_test_in", "r+b") as file:
        file.truncate(8)
    assert region is not None


def test_many_at_once(server: Server) -> None:
    """Every answer belongs to its request."""

    def ask(number: int) -> bool:
        x = np.zeros((1 + number % 5, 4), np.float32)
        x[:, 0] = number
        with client.InferenceServerClient(f"127.0.0.1:{server.port}") as one:
            replies = [one.infer("spin", [given(x)], request_id=f"{number}.{i}") for i in range(10)]
        right = [
            np.array_equal(r.as_numpy("y"), x * 2) and r.get_response()["id"] == f"{number}.{i}"
            for i, r in enumerate(replies)
        ]
        return all(right)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(40)))
