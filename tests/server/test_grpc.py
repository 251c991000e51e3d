"""The Open Inference Protocol over gRPC: what each method answers, and every form of a tensor in both directions."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.utils.shared_memory as triton_memory
from grpc_calls import Calls, raw, request, tensor
from protocol_arrays import ARRAYS, NAMES, SCALAR, X
from served import HANG, Server, wait_for
from tritonclient.grpc import model_config_pb2 as config_pb
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

LISTS = {
    "f32": "fp32_contents", "f64": "fp64_contents", "i8": "int_contents", "i16": "int_contents", "i32": "int_contents",
    "i64": "int64_contents", "u8": "uint_contents", "u16": "uint_contents", "u32": "uint_contents",
    "bool": "bool_contents",
}  # fmt: skip


@pytest.fixture
def calls(server: Server) -> Iterator[Calls]:
    with Calls(server) as opened:
        yield opened


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as opened:
        yield opened


def triton_input(name: str, datatype: str, array: Any) -> Any:
    made = triton.InferInput(name, array.shape, datatype)
    if datatype == "BF16":
        made._raw_content = array.tobytes()
    else:
        made.set_data_from_numpy(array)
    return made


@contextmanager
def memory(name: str, array: Any) -> Iterator[Any]:
    """A region /hardtack_NAME with the array in it."""
    region = triton_memory.create_shared_memory_region(name, f"/hardtack_{name}", array.nbytes)
    try:
        triton_memory.set_shared_memory_region(region, [array])
        yield region
    finally:
        triton_memory.destroy_shared_memory_region(region)


def test_health_and_metadata_as_tritonclient_asks_for_them(client: triton.InferenceServerClient) -> None:
    assert [client.is_server_live(), client.is_server_ready(), client.is_model_ready("spin")] == [True] * 3
    assert client.get_server_metadata().name == "hardtack"
    assert {"statistics", "system_shared_memory"} <= set(client.get_server_metadata().extensions)
    model = client.get_model_metadata("spin", "1", as_json=True)
    assert model == {
        "name": "spin",
        "versions": ["1"],
        "platform": "hardtack_pkg",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": ["-1", "4"]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": ["-1", "4"]}],
    }


def test_the_configuration_and_the_index(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config("spin").config
    assert (config.name, config.backend, config.max_batch_size) == ("spin", "hardtack", 0)
    assert [(i.name, i.data_type, list(i.dims)) for i in config.input] == [("x", config_pb.TYPE_FP32, [-1, 4])]
    assert config.instance_group[0].kind == config_pb.ModelInstanceGroup.KIND_CPU
    assert config.instance_group[0].count >= 1
    assert client.get_model_config("count").config.WhichOneof("scheduling_choice") == "sequence_batching"
    types = {i.name: i.data_type for i in client.get_model_config("types").config.input}
    assert [types["x_bf16"], types["x_bool"]] == [config_pb.TYPE_BF16, config_pb.TYPE_BOOL]
    index = client.get_model_repository_index().models
    assert [(m.name, m.version, m.state) for m in index] == [(n, "1", "READY") for n in ("count", "spin", "types")]


def test_every_type_raw(client: triton.InferenceServerClient) -> None:
    inputs = [triton_input(f"x_{n}", NAMES[n], a) for n, a in ARRAYS.items()] + [triton_input("x_s", "FP32", SCALAR)]
    reply = client.infer("types", inputs, request_id="job 7").get_response()
    assert (reply.model_name, reply.model_version, reply.id) == ("types", "1", "job 7")
    assert [o.name for o in reply.outputs] == [f"y_{n}" for n in (*ARRAYS, "s")]
    assert [o.datatype for o in reply.outputs] == [*NAMES.values(), "FP32"]
    assert list(reply.raw_output_contents) == [a.tobytes() for a in (*ARRAYS.values(), SCALAR)]
    # some outputs, in an order of one's own
    outputs = [triton.InferRequestedOutput(n) for n in ("y_u8", "y_f32")]
    some = client.infer("types", inputs, outputs=outputs)
    assert [o.name for o in some.get_response().outputs] == ["y_u8", "y_f32"]
    np.testing.assert_array_equal(some.as_numpy("y_f32"), ARRAYS["f32"])


def test_every_type_in_lists(calls: Calls, client: triton.InferenceServerClient) -> None:
    """16-bit floats have no list; they lie in shared memory here, as raw contents and lists do not mix."""
    half = np.concatenate([ARRAYS["f16"].view(np.uint16), ARRAYS["bf16"]])
    with memory("half", half):
        client.register_system_shared_memory("half", "/hardtack_half", half.nbytes)
        inputs = [tensor("x_s", "FP32", [], fp32_contents=[1.5])]
        for name, array in ARRAYS.items():
            lists = {LISTS[name]: array.ravel().tolist()} if name in LISTS else {}
            inputs.append(tensor(f"x_{name}", NAMES[name], [2, 3], **lists))
            if name not in LISTS:
                inputs[-1].parameters["shared_memory_region"].string_param = "half"
                inputs[-1].parameters["shared_memory_byte_size"].int64_param = 12
                inputs[-1].parameters["shared_memory_offset"].uint64_param = 12 if name == "bf16" else 0
        reply = calls.infer("types", inputs=inputs)
        client.unregister_system_shared_memory("half")
    assert list(reply.raw_output_contents) == [a.tobytes() for a in (*ARRAYS.values(), SCALAR)]


def test_lists_run_as_raw_contents_do(calls: Calls) -> None:
    reply = calls.infer(inputs=[tensor("x", "FP32", [2, 4], fp32_contents=X.ravel().tolist())])
    np.testing.assert_array_equal(raw(reply), X * 2)
    assert raw(calls.infer(inputs=[tensor("x", "FP32", [0, 4])])).shape == (0, 4)
    assert raw(calls.infer(x=np.empty((0, 4), np.float32))).shape == (0, 4)


def test_large_outputs_come_whole(calls: Calls) -> None:
    x = np.arange(64 * 4, dtype=np.float32).reshape(64, 4)
    x[:, 3] = 0
    for rows in (1, 63, 64):
        np.testing.assert_array_equal(raw(calls.infer(x=x[:rows])), x[:rows] * 2)


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_requests_may_be_compressed(client: triton.InferenceServerClient, algorithm: str) -> None:
    x = np.zeros((64, 4), np.float32)
    x[:, 0] = 3
    reply = client.infer("spin", [triton_input("x", "FP32", x)], compression_algorithm=algorithm)
    np.testing.assert_array_equal(reply.as_numpy("y"), x * 2)


def test_parameters_that_mean_nothing_here_are_skipped(client: triton.InferenceServerClient, calls: Calls) -> None:
    more = {"priority": 3, "parameters": {"trace": "abc", "weight": 1.5, "flag": True, "binary_data": True}}
    reply = client.infer("spin", [triton_input("x", "FP32", X)], **more)
    np.testing.assert_array_equal(reply.as_numpy("y"), X * 2)
    strange = request(x=X)
    strange.parameters["big"].uint64_param = 2**64 - 1
    strange.parameters["none"].SetInParent()
    strange.outputs.add(name="y").parameters["binary_data"].bool_param = True
    np.testing.assert_array_equal(raw(calls.call("ModelInfer", strange)), X * 2)


def test_shared_memory_in_and_out(client: triton.InferenceServerClient) -> None:
    with memory("both", np.concatenate([X, np.zeros_like(X)])) as region:
        client.register_system_shared_memory("both", "/hardtack_both", 2 * X.nbytes)
        status = client.get_system_shared_memory_status().regions["both"]
        assert (status.key, status.offset, status.byte_size) == ("/hardtack_both", 0, 2 * X.nbytes)
        placed = triton.InferInput("x", [2, 4], "FP32")
        placed.set_shared_memory("both", X.nbytes)
        wanted = triton.InferRequestedOutput("y")
        wanted.set_shared_memory("both", X.nbytes, offset=X.nbytes)
        reply = client.infer("spin", [placed], outputs=[wanted]).get_response()
        assert list(reply.raw_output_contents) == [b""]
        assert reply.outputs[0].parameters["shared_memory_region"].string_param == "both"
        answer = triton_memory.get_contents_as_numpy(region, np.float32, [2, 4], offset=X.nbytes)
        np.testing.assert_array_equal(answer, X * 2)
        wanted.set_shared_memory("both", 4)
        with pytest.raises(InferenceServerException, match="4 bytes were set aside for an output of 32"):
            client.infer("spin", [placed], outputs=[wanted])
        client.unregister_system_shared_memory("both")
        with pytest.raises(InferenceServerException, match='region "both" is not registered'):
            client.infer("spin", [placed])
    client.unregister_cuda_shared_memory()
    with pytest.raises(InferenceServerException, match="CUDA shared memory is not supported"):
        client.register_cuda_shared_memory("gpu", b"", 0, 64)


def test_a_sequence_keeps_its_state(client: triton.InferenceServerClient) -> None:
    def step(number: int | str, **flags: bool) -> int:
        x = np.zeros((1, 4), np.float32)
        reply = client.infer("count", [triton_input("x", "FP32", x)], sequence_id=number, **flags)
        return int(reply.as_numpy("calls"))

    first = step(7, sequence_start=True)
    assert step("other", sequence_start=True) == first
    assert [step(7), step(7), step("other")] == [first + 1, first + 2, first + 1]
    assert step(7, sequence_end=True) == first + 3
    assert step("other", sequence_end=True) == first + 2
    with pytest.raises(InferenceServerException, match='sequence "7" is not known to model "count"'):
        step(7)


def test_statistics_grow_by_what_was_asked_over_both_protocols(server: Server, calls: Calls) -> None:
    def now() -> Any:
        return calls.call("ModelStatistics", pb.ModelStatisticsRequest(name="spin")).model_stats[0]

    before = now()
    calls.infer(x=X)
    server.infer("spin", X)
    calls.refusal("ModelInfer", request(x=np.zeros((65, 4), np.float32)))
    after = now()
    assert after.execution_count - before.execution_count == 2
    assert after.inference_stats.success.count - before.inference_stats.success.count == 2
    assert after.inference_stats.fail.count - before.inference_stats.fail.count == 1
    assert after.inference_stats.queue.count - before.inference_stats.queue.count == 2
    assert after.inference_count == int(server.statistics("spin")["inference_count"])
    assert after.last_inference >= before.last_inference
    everything = calls.call("ModelStatistics", pb.ModelStatisticsRequest()).model_stats
    assert [s.name for s in everything] == ["count", "spin", "types"]


def test_metrics_count_calls(server: Server, calls: Calls) -> None:
    good, bad = (server.metric("hardtack_grpc_calls_total", f'code="{code}"') for code in (0, 3))
    calls.infer(x=X)
    calls.refusal("ModelInfer", b"\xff")
    assert server.metric("hardtack_grpc_calls_total", 'code="0"') == good + 1
    assert server.metric("hardtack_grpc_calls_total", 'code="3"') == bad + 1


def test_models_come_and_go_by_request(program: Path, spin_folder: Path) -> None:
    with Server(program, spin_folder) as server, Calls(server) as calls:
        client = triton.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.unload_model("spin")
        assert not client.is_model_ready("spin")
        with pytest.raises(InferenceServerException, match='model "spin" is not ready'):
            client.infer("spin", [triton_input("x", "FP32", X)])
        client.load_model("spin")
        np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)
        with pytest.raises(InferenceServerException, match='parameter "config" is not supported'):
            client.load_model("spin", config="{}")
        # KServe's form of the same calls: field 1 names the model, and the reply repeats it
        assert calls.method("RepositoryModelUnload")(b"\x0a\x04spin") == b"\x0a\x04spin\x10\x01"
        assert calls.method("RepositoryModelLoad")(b"\x0a\x04spin") == b"\x0a\x04spin\x10\x01"
        assert client.is_model_ready("spin")
        code, sentence = calls.refusal("RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="nobody"))
        assert (code, "nobody" in sentence) == ("NOT_FOUND", True)
        client.close()


def test_both_protocols_serve_the_same_model_at_once(server: Server) -> None:
    def over_http(i: int) -> bool:
        x = np.full((1 + i % 5, 4), i, np.float32) * [1, 1, 1, 0]
        reply = server.infer("spin", x.astype(np.float32)).json()["outputs"][0]["data"]
        return bool(np.array_equal(reply, (x * 2).ravel()))

    with Calls(server) as calls, ThreadPoolExecutor(8) as pool:

        def over_grpc(i: int) -> bool:
            x = (np.full((1 + i % 5, 4), i) * [1, 1, 1, 0]).astype(np.float32)
            return bool(np.array_equal(raw(calls.infer(x=x)), x * 2))

        work = [pool.submit((over_http, over_grpc)[i % 2], i) for i in range(200)]
        assert all(one.result() for one in work)


def test_a_second_server_does_not_share_the_port(program: Path, models: Path, server: Server) -> None:
    command = [str(program), str(models), "--http-port", "0", "--grpc-port", str(server.grpc_port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 1
    where = f"127.0.0.1:{server.grpc_port}"
    assert f"cannot listen on {where} for gRPC: Address already in use\n" in done.stderr


def certificate(folder: Path, name: str) -> tuple[bytes, bytes]:
    """A key and a certificate that signs itself, for 127.0.0.1; also as files NAME.key and NAME.pem."""
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*command, "-days", "2", *subject, *files], check=True, capture_output=True)
    return (folder / f"{name}.key").read_bytes(), (folder / f"{name}.pem").read_bytes()


def test_tls_with_certificates_of_clients(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    _, server_pem = certificate(tmp_path, "server")
    key, pem = certificate(tmp_path, "client")
    files = ["--tls-certificate", tmp_path / "server.pem", "--tls-key", tmp_path / "server.key"]
    tls = [*map(str, files), "--tls-client-ca", str(tmp_path / "client.pem")]
    with Server(program, spin_folder, *tls, ready=False) as server:
        known = grpc.ssl_channel_credentials(server_pem, key, pem)
        with Calls(server, known) as calls:
            live = pb.ModelReadyRequest(name="spin")
            wait_for(lambda: bool(calls.call("ModelReady", live).ready), "the model")
            np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)
        for stranger in (grpc.ssl_channel_credentials(server_pem), None):
            with Calls(server, stranger) as calls:
                assert calls.refusal("ServerLive", pb.ServerLiveRequest())[0] == "UNAVAILABLE"


def test_tls_files_that_cannot_be_used(program: Path, spin_folder: Path, tmp_path: Path) -> None:
    certificate(tmp_path, "one")
    certificate(tmp_path, "two")
    for pem, key, sentence in (
        ("none.pem", "one.key", "the TLS certificate {}/none.pem cannot be used"),
        ("one.pem", "two.key", "the TLS key {}/two.key cannot be used: key values mismatch"),
    ):
        tls = ["--tls-certificate", str(tmp_path / pem), "--tls-key", str(tmp_path / key)]
        ports = ["--http-port", "0", "--grpc-port", "0"]
        command = [str(program), str(spin_folder), *ports, *tls]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
        assert done.returncode == 1
        assert sentence.format(tmp_path) in done.stderr
