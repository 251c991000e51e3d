"""What clients of gRPC do wrong, and what happens to calls that wait: each gets a status and a sentence, once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_calls import Calls, raw, request, tensor
from served import HANG, Server, wait_for
from tritonclient.grpc import service_pb2 as pb

X = np.array([[1, 2, 3, 0], [4, 5, 6, 0]], np.float32)
ONES = [1.0] * 8
TAG = b"\x3a"  # raw_input_contents


def slow(ms: float) -> Any:
    return np.array([[1, 2, 3, ms]], np.float32)


@pytest.fixture
def calls(server: Server) -> Iterator[Calls]:
    with Calls(server) as opened:
        yield opened


def with_parameter(message: Any, name: str, **value: Any) -> Any:
    message.parameters[name].MergeFrom(pb.InferParameter(**value))
    return message


def with_input_parameters(**values: Any) -> Any:
    message = request(inputs=[tensor("x", "FP32", [2, 4])])
    for name, value in values.items():
        kind = "string_param" if isinstance(value, str) else "int64_param"
        message.inputs[0].parameters[name].MergeFrom(pb.InferParameter(**{kind: value}))
    return message


def two_of(message: Any) -> Any:
    message.inputs.append(message.inputs[0])
    message.raw_input_contents.append(message.raw_input_contents[0])
    return message


DATATYPES = {"f32": "FP32", "f64": "FP64", "f16": "FP16", "bf16": "BF16", "i8": "INT8", "i16": "INT16"}
DATATYPES |= {"i32": "INT32", "i64": "INT64", "u8": "UINT8", "u16": "UINT16", "u32": "UINT32", "bool": "BOOL"}
TYPES = [*(tensor(f"x_{name}", t, [2, 3]) for name, t in DATATYPES.items()), tensor("x_s", "FP32", [])]


def of_types(first: Any) -> list[Any]:
    """All inputs of the model types, one of them in another form and before the others."""
    return [first, *(other for other in TYPES if other.name != first.name)]


BAD: list[tuple[Any, str, str]] = [
    (request("nobody", X), "NOT_FOUND", 'there is no model "nobody"'),
    (request("nobody"), "NOT_FOUND", 'there is no model "nobody"'),
    (request("", X), "NOT_FOUND", 'there is no model ""'),
    (request(x=X, model_version="7"), "NOT_FOUND", 'model "spin" has no version 7'),
    (request(x=X, model_version="one"), "INVALID_ARGUMENT", 'version "one" is no number; versions are 1, 2, ...'),
    (
        request(),
        "INVALID_ARGUMENT",
        'model "spin" (version 1) needs input "x", which is missing; its inputs are "x"',
    ),
    (
        request(inputs=[tensor("x", "FP32", [2, 4])], raw_input_contents=[b"\0" * 31]),
        "INVALID_ARGUMENT",
        'input "x" has 31 bytes of data; shape [2,4] of FP32 takes 32',
    ),
    (
        request(inputs=[tensor("x", "FP32", [2, 4])]),
        "INVALID_ARGUMENT",
        'input "x" has 0 elements in fp32_contents; shape [2,4] takes 8',
    ),
    (
        request(inputs=[tensor("x", "FP32", [2, 4], fp32_contents=ONES[:7])]),
        "INVALID_ARGUMENT",
        'input "x" has 7 elements in fp32_contents; shape [2,4] takes 8',
    ),
    (
        request(inputs=[tensor("x", "FP32", [2, 4], fp64_contents=ONES)]),
        "INVALID_ARGUMENT",
        'input "x" is FP32, whose elements belong into fp32_contents; it has 8 elements in fp64_contents',
    ),
    (
        request(inputs=[tensor("x", "FP32", [2, 4], fp32_contents=ONES)], raw_input_contents=[X.tobytes()]),
        "INVALID_ARGUMENT",
        'input "x" has contents and the request has raw_input_contents; it must have one of them',
    ),
    (
        request("types", inputs=TYPES, raw_input_contents=[b"\0" * 24]),
        "INVALID_ARGUMENT",
        'input "x_f64" has no data: the request has 1 raw_input_contents, '
        "and each input that is not in shared memory takes one",
    ),
    (
        request(inputs=[tensor("x", "FP32", [2, 4])], raw_input_contents=[X.tobytes(), b""]),
        "INVALID_ARGUMENT",
        "the request has 2 raw_input_contents for 1 inputs; each input that is not in shared memory takes one",
    ),
    (
        request(inputs=[tensor("x", "FLOAT", [2, 4])]),
        "INVALID_ARGUMENT",
        'input "x" has datatype "FLOAT"; '
        "the protocol has BOOL, UINT8, UINT16, UINT32, INT8, INT16, INT32, INT64, FP16, BF16, FP32 and FP64",
    ),
    (request(inputs=[tensor("x", "", [2, 4])]), "INVALID_ARGUMENT", 'input "x" has no datatype'),
    (request(inputs=[tensor("", "FP32", [2, 4])]), "INVALID_ARGUMENT", "an input has no name"),
    (
        request(inputs=[tensor("x", "BYTES", [1], bytes_contents=[b"text"])]),
        "UNIMPLEMENTED",
        'input "x" has datatype BYTES; models here take numbers only, so encode text in the client (a tokenizer)',
    ),
    (
        request("types", inputs=of_types(tensor("x_i8", "INT8", [2, 3], int_contents=[1, 128, 0, 0, 0, 0]))),
        "INVALID_ARGUMENT",
        'input "x_i8": element 1 is 128, which INT8 does not hold',
    ),
    (
        request("types", inputs=of_types(tensor("x_u8", "UINT8", [2, 3], uint_contents=[256, 0, 0, 0, 0, 0]))),
        "INVALID_ARGUMENT",
        'input "x_u8": element 0 is 256, which UINT8 does not hold',
    ),
    (
        request(inputs=[tensor("x", "INT64", [2, 4])], raw_input_contents=[b"\0" * 64]),
        "INVALID_ARGUMENT",
        'input "x" of model "spin" (version 1) is FP32, INT64 was sent',
    ),
    (
        request(inputs=[tensor("x", "FP32", [2, 5])], raw_input_contents=[b"\0" * 40]),
        "INVALID_ARGUMENT",
        'input "x" of model "spin" (version 1) has shape [2,5], expected [n from 0 to 64,4]',
    ),
    (
        request(inputs=[tensor("x", "FP32", [-1, 4])], raw_input_contents=[b""]),
        "INVALID_ARGUMENT",
        'input "x" of model "spin" (version 1) has shape [-1,4], expected [n from 0 to 64,4]',
    ),
    (
        request(inputs=[tensor("x", "FP32", [2**62, 2**62])], raw_input_contents=[b""]),
        "INVALID_ARGUMENT",
        f'input "x" of model "spin" (version 1) has shape [{2**62},{2**62}], expected [n from 0 to 64,4]',
    ),
    (two_of(request(x=X)), "INVALID_ARGUMENT", 'input "x" is given twice'),
    (
        request(x=X, outputs=[{"name": "z"}]),
        "INVALID_ARGUMENT",
        'model "spin" (version 1) has no output "z"; its outputs are "y"',
    ),
    (request(x=X, outputs=[{}]), "INVALID_ARGUMENT", "an output has no name"),
    (
        request(x=X, outputs=[{"name": "y", "parameters": {"classification": pb.InferParameter(int64_param=2)}}]),
        "UNIMPLEMENTED",
        'output "y": classification is not done by this server; ask for the output itself and sort it in the client',
    ),
    (
        with_parameter(request(x=X), "timeout", double_param=1.5),
        "INVALID_ARGUMENT",
        'parameter "timeout" must be a whole number of microseconds',
    ),
    (
        with_parameter(request(x=X), "sequence_start", int64_param=1),
        "INVALID_ARGUMENT",
        'parameter "sequence_start" must be true or false',
    ),
    (
        with_input_parameters(shared_memory_region="no", shared_memory_byte_size=32),
        "INVALID_ARGUMENT",
        'shared memory region "no" is not registered',
    ),
    (
        with_input_parameters(shared_memory_region="no"),
        "INVALID_ARGUMENT",
        'input "x" lies in shared memory and has no parameter "shared_memory_byte_size"',
    ),
    (
        with_input_parameters(shared_memory_region="no", shared_memory_byte_size=-1),
        "INVALID_ARGUMENT",
        'parameter "shared_memory_byte_size" of input "x" must be a whole number, not negative',
    ),
    (
        with_input_parameters(shared_memory_region=3),
        "INVALID_ARGUMENT",
        'parameter "shared_memory_region" of input "x" must be a name',
    ),
    (b"\xff\xff", "INVALID_ARGUMENT", "the request's bytes are no message inference.ModelInferRequest"),
    (b"\x2a\x05abc", "INVALID_ARGUMENT", "the request's bytes are no message inference.ModelInferRequest"),
    (b"\x0a\x02\xff\xfe", "INVALID_ARGUMENT", "the request's bytes are no message inference.ModelInferRequest"),
    (
        TAG + b"\0" + (TAG + b"\0") * 70000,
        "RESOURCE_EXHAUSTED",
        "the request has more than 65536 fields; send elements packed or as raw_input_contents",
    ),
]


@pytest.mark.parametrize(("message", "code", "sentence"), BAD, ids=range(len(BAD)))
def test_bad_requests(calls: Calls, message: Any, code: str, sentence: str) -> None:
    assert calls.refusal("ModelInfer", message) == (code, sentence)
    np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)  # on the same connection


def test_an_id_that_is_too_long(calls: Calls) -> None:
    assert len(calls.infer(x=X, id="a" * 4096).id) == 4096
    sentence = "the request's id has 4097 bytes; it may have 4096"
    assert calls.refusal("ModelInfer", request(x=X, id="a" * 4097)) == ("INVALID_ARGUMENT", sentence)


def test_a_model_that_refuses_its_data(calls: Calls) -> None:
    code, sentence = calls.refusal("ModelInfer", request(x=np.array([[-1, 0, 0, 0]], np.float32)))
    assert code == "INVALID_ARGUMENT"
    assert "k_spin" in sentence


@pytest.mark.parametrize(
    ("method", "message", "code", "sentence"),
    [
        ("ModelMetadata", pb.ModelMetadataRequest(name="a"), "NOT_FOUND", 'there is no model "a"'),
        ("ModelReady", pb.ModelReadyRequest(name="a"), "NOT_FOUND", 'there is no model "a"'),
        ("ModelConfig", pb.ModelConfigRequest(name="spin", version="2"), "NOT_FOUND", 'model "spin" has no version 2'),
        ("ModelStatistics", pb.ModelStatisticsRequest(name="a"), "NOT_FOUND", 'there is no model "a"'),
        (
            "SystemSharedMemoryStatus",
            pb.SystemSharedMemoryStatusRequest(name="a"),
            "NOT_FOUND",
            'shared memory region "a" is not registered',
        ),
        (
            "SystemSharedMemoryRegister",
            pb.SystemSharedMemoryRegisterRequest(name="a", key="/../etc", byte_size=1),
            "INVALID_ARGUMENT",
            'shared memory region "a": key "/../etc" is no name for shm_open, like "/input"',
        ),
        (
            "SystemSharedMemoryRegister",
            pb.SystemSharedMemoryRegisterRequest(name="a", key="/" + "é" * 5000, byte_size=1),
            "INVALID_ARGUMENT",
            f'shared memory region "a": key "/{"é" * 99}" is no name for shm_open, like "/input"',
        ),
        ("ServerLive", b"\x0b", "INVALID_ARGUMENT", "the request's bytes are no message inference.ServerLiveRequest"),
        (
            "RepositoryModelLoad",
            b"\xff",
            "INVALID_ARGUMENT",
            "the request's bytes are no message inference.RepositoryModelLoadRequest",
        ),
    ],
)
def test_other_methods(calls: Calls, method: str, message: Any, code: str, sentence: str) -> None:
    assert calls.refusal(method, message) == (code, sentence)


def peak_nbytes(server: Server) -> int:
    """The most memory that the server has had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def test_messages_beyond_the_limit(server: Server, calls: Calls) -> None:
    """The server of these tests takes 1000000 bytes."""
    code, sentence = calls.refusal("ModelInfer", request(raw_input_contents=[bytes(1_000_001)]))
    assert (code, "1000000" in sentence) == ("RESOURCE_EXHAUSTED", True), sentence
    code, sentence = calls.refusal("ModelReady", bytes(990_000) + b"\x0a\x01a")
    assert code == "INVALID_ARGUMENT"
    np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)
    with Calls(server) as rude, pytest.raises(grpc.RpcError) as refused:
        rude.method("ServerLive")(b"", timeout=HANG, metadata=[("a", "b" * 8000)])
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_message_that_inflates_to_much_costs_little(server: Server, calls: Calls, compression: Any) -> None:
    before = peak_nbytes(server)
    bomb = request(raw_input_contents=[bytes(30_000_000)]).SerializeToString()
    with pytest.raises(grpc.RpcError) as refused:
        calls.method("ModelInfer")(bomb, timeout=HANG, compression=compression)
    assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.details() == "the message inflates to more than the limit of 1000000 bytes"
    assert peak_nbytes(server) - before < 15_000_000
    x = np.zeros((64, 4), np.float32)
    sound = request(x=x).SerializeToString()
    reply = pb.ModelInferResponse.FromString(calls.method("ModelInfer")(sound, timeout=HANG, compression=compression))
    np.testing.assert_array_equal(raw(reply), x)


@pytest.mark.parametrize("where", ["contents", "shape"])
def test_packed_numbers_count_as_what_they_become(program: Path, spin_folder: Path, where: str) -> None:
    """A byte for each number on the wire, eight and more in memory."""
    many = pb.ModelInferRequest(model_name="spin")
    tensor = many.inputs.add(name="x", datatype="INT64")
    (tensor.shape if where == "shape" else tensor.contents.int64_contents).extend([0] * 8_000_000)
    limit = 100 << 20
    with Server(program, spin_folder, "--max-memory", str(limit)) as server, Calls(server) as calls:
        before = peak_nbytes(server)
        with pytest.raises(grpc.RpcError) as refused:
            calls.method("ModelInfer")(many.SerializeToString(), timeout=HANG, compression=grpc.Compression.Gzip)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert re.fullmatch(
            rf"no memory for the message: it takes 200\d{{6}} bytes, and all requests together may take {limit} "
            r"\(--max-memory\); send less",
            refused.value.details(),
        )
        assert peak_nbytes(server) - before < 40_000_000
        assert raw(calls.infer(x=X))[0, 0] == 2 * X[0, 0]


@pytest.fixture
def narrow(program: Path, spin_folder: Path) -> Iterator[tuple[Server, Calls]]:
    """One session, one request that waits."""
    with Server(program, spin_folder, "--sessions", "1", "--max-queue", "1") as server, Calls(server) as calls:
        yield server, calls


def queued(server: Server) -> float:
    return server.metric("hardtack_waiting_requests", 'model="spin",version="1"')


def test_a_full_queue_refuses_at_once(narrow: tuple[Server, Calls]) -> None:
    server, calls = narrow
    with ThreadPoolExecutor(4) as pool:
        work = [pool.submit(calls.infer, x=slow(1500))]
        wait_for(lambda: server.metric("hardtack_running_requests", 'model="spin",version="1"') == 1, "a run")
        work.append(pool.submit(calls.infer, x=slow(0)))
        wait_for(lambda: queued(server) == 1, "a full queue")
        assert calls.refusal("ModelInfer", request(x=X)) == (
            "UNAVAILABLE",
            'model "spin" has 1 requests waiting, and no more may; try again later',
        )
        assert not work[-1].done()  # it does not wait for those before it
        assert [raw(one.result())[0, 0] for one in work] == [2, 2]


def test_deadlines_of_calls_and_requests(narrow: tuple[Server, Calls]) -> None:
    server, calls = narrow
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(calls.infer, x=slow(1500))
        wait_for(lambda: server.metric("hardtack_running_requests", 'model="spin",version="1"') == 1, "a run")
        patient = with_parameter(request(x=X), "timeout", int64_param=100_000)
        assert calls.refusal("ModelInfer", patient) == (
            "DEADLINE_EXCEEDED",
            "the request's timeout passed before it was started",
        )
        assert calls.refusal("ModelInfer", request(x=X), timeout=0.1)[0] == "DEADLINE_EXCEEDED"
        wait_for(lambda: queued(server) == 0, "the queue to be empty before the run ends")
        assert not running.done()
        assert server.statistics("spin")["inference_stats"]["fail"]["count"] == 2
        np.testing.assert_array_equal(raw(running.result())[:, :3], [[2, 4, 6]])


def test_a_cancelled_call_is_not_run(narrow: tuple[Server, Calls]) -> None:
    server, calls = narrow
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(calls.infer, x=slow(1500))
        wait_for(lambda: server.metric("hardtack_running_requests", 'model="spin",version="1"') == 1, "a run")
        waiting = calls.method("ModelInfer").future(request(x=X).SerializeToString())
        wait_for(lambda: queued(server) == 1, "a request that waits")
        waiting.cancel()
        wait_for(lambda: queued(server) == 0, "the queue to be empty")
        assert not running.done()
        running.result()
    wait_for(lambda: server.metric("hardtack_grpc_calls_total", 'code="1"') == 1, "a cancelled call")
    assert server.statistics("spin")["execution_count"] == 1


def test_sigterm_finishes_what_was_begun(program: Path, spin_folder: Path) -> None:
    with (
        Server(program, spin_folder, "--sessions", "1") as server,
        Calls(server) as calls,
        ThreadPoolExecutor(4) as pool,
    ):
        stream = calls.stream()(iter([]), timeout=HANG)
        assert list(stream) == []
        work = [pool.submit(calls.infer, x=slow(300)) for _ in range(3)]
        wait_for(lambda: queued(server) == 2, "requests that wait")
        assert server.stop() == 0
        assert [raw(one.result())[0, 0] for one in work] == [2, 2, 2]
        assert calls.refusal("ServerLive", pb.ServerLiveRequest())[0] == "UNAVAILABLE"
