"""Random and damaged calls of gRPC: each gets a status that fits and a sentence, and the server lives on."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import http2
import numpy as np
import pytest
import served
from grpc_calls import SERVICE, Calls, raw, request, tensor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import HANG, Server
from tritonclient.grpc import service_pb2 as pb

X = np.array([[1, 2, 3, 0]], np.float32)
FIXED = settings(max_examples=150, derandomize=True, suppress_health_check=list(HealthCheck))
FEW = settings(FIXED, max_examples=60)
LEGAL = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED"}
"""What a client can cause by what it sends; a deadline may be in the request."""
GOOD = request(x=X, id="é")
LISTED = request(inputs=[tensor("x", "FP32", [1, 4], fp32_contents=[1, 2, 3, 0])], outputs=[{"name": "y"}])
SEEDS = {
    "ServerLive": pb.ServerLiveRequest(),
    "ServerReady": pb.ServerReadyRequest(),
    "ModelReady": pb.ModelReadyRequest(name="spin", version="1"),
    "ServerMetadata": pb.ServerMetadataRequest(),
    "ModelMetadata": pb.ModelMetadataRequest(name="spin", version="1"),
    "ModelInfer": GOOD,
    "ModelConfig": pb.ModelConfigRequest(name="spin", version="1"),
    "ModelStatistics": pb.ModelStatisticsRequest(name="spin", version="1"),
    "RepositoryIndex": pb.RepositoryIndexRequest(ready=True),
    "RepositoryModelLoad": pb.RepositoryModelLoadRequest(model_name="spin"),
    "RepositoryModelUnload": pb.RepositoryModelUnloadRequest(model_name="spin"),
    "SystemSharedMemoryStatus": pb.SystemSharedMemoryStatusRequest(name="r"),
    "SystemSharedMemoryRegister": pb.SystemSharedMemoryRegisterRequest(name="r", key="/k", offset=1, byte_size=2),
    "SystemSharedMemoryUnregister": pb.SystemSharedMemoryUnregisterRequest(name="r"),
    "CudaSharedMemoryStatus": pb.CudaSharedMemoryStatusRequest(name="r"),
    "CudaSharedMemoryRegister": pb.CudaSharedMemoryRegisterRequest(name="r", raw_handle=b"h", byte_size=2),
    "CudaSharedMemoryUnregister": pb.CudaSharedMemoryUnregisterRequest(name="r"),
}


@pytest.fixture(scope="module")
def target(program: Path, models: Path) -> Iterator[Server]:
    """A server of its own, which no request can make unload its models."""
    if not served.speaks_grpc(program):
        pytest.skip("the server was built without gRPC")
    with Server(program, models, "--max-body", "1000000", "--no-control") as started:
        yield started
        assert [line for line in started.raw_log if not line.startswith("{")] == []  # libraries write no text of theirs


@pytest.fixture(scope="module")
def calls(target: Server) -> Iterator[Calls]:
    with Calls(target) as opened:
        yield opened


def is_well(calls: Calls) -> None:
    np.testing.assert_array_equal(raw(calls.infer(x=X)), X * 2)


def answered(calls: Calls, method: str, data: bytes) -> None:
    """Sends bytes as the message of a method."""
    call = calls.method(method).future(data, timeout=HANG)
    assert call.code().name in LEGAL, (call.code(), call.details())
    assert call.code() == grpc.StatusCode.OK or len(call.details()) > 10, call.details()
    is_well(calls)


PLACES = st.floats(0, 1, exclude_max=True)
HOW = st.sampled_from(["set", "flip", "cut", "double", "insert", "remove"])
DAMAGES = st.lists(st.tuples(PLACES, st.integers(0, 255), HOW), min_size=1, max_size=4)


def damaged(data: bytes, damages: list[tuple[float, int, str]]) -> bytes:
    for where, byte, how in damages:
        at, one = int(where * len(data)), bytes([byte])
        data = {
            "set": data[:at] + one + data[at + 1 :],
            "flip": data[:at] + bytes(b ^ (1 << byte % 8) for b in data[at : at + 1]) + data[at + 1 :],
            "cut": data[:at],
            "double": data[:at] + data[at // 2 :],
            "insert": data[:at] + one + data[at:],
            "remove": data[:at] + data[at + 1 + byte % 8 :],
        }[how]
    return data


@FIXED
@given(st.sampled_from(sorted(SEEDS)), st.binary(max_size=200))
def test_noise_for_every_method(calls: Calls, method: str, noise: bytes) -> None:
    answered(calls, method, noise)


@FIXED
@given(st.sampled_from(sorted(SEEDS)), DAMAGES)
def test_damaged_messages_for_every_method(calls: Calls, method: str, damages: list[tuple[float, int, str]]) -> None:
    answered(calls, method, damaged(SEEDS[method].SerializeToString(), damages))


WORDS = st.sampled_from(["", "x", "y", "spin", "types", "1", "2", "FP32", "FP16", "INT8", "BOOL", "BYTES", "é" * 150])
WHOLE = st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 9)
PARAMETERS = st.dictionaries(
    st.sampled_from(
        [*("timeout", "sequence_id", "sequence_start", "sequence_end", "entry", "classification", "other"),
         *("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size", "binary_data_size")]
    ),
    st.one_of(
        st.builds(lambda v: pb.InferParameter(int64_param=v), WHOLE),
        st.builds(lambda v: pb.InferParameter(string_param=v), WORDS),
        st.builds(lambda v: pb.InferParameter(bool_param=v), st.booleans()),
        st.builds(lambda v: pb.InferParameter(double_param=v), st.floats()),
        st.builds(lambda v: pb.InferParameter(uint64_param=v), st.integers(0, 2**64 - 1)),
        st.just(pb.InferParameter()),
    ),
    max_size=3,
)  # fmt: skip
SMALL = st.lists(st.integers(0, 1), max_size=8)
CONTENTS = st.dictionaries(
    st.sampled_from([f"{kind}_contents" for kind in ("bool", "int", "int64", "uint", "uint64", "fp32", "fp64")]),
    SMALL,
    max_size=2,
)
INPUTS = st.builds(
    lambda name, datatype, shape, contents, parameters: pb.ModelInferRequest.InferInputTensor(
        name=name, datatype=datatype, shape=shape, contents=contents, parameters=parameters
    ),
    *(WORDS, WORDS, st.lists(WHOLE, max_size=4) | st.just([1, 4]), CONTENTS, PARAMETERS),
)
OUTPUTS = st.builds(
    lambda name, parameters: pb.ModelInferRequest.InferRequestedOutputTensor(name=name, parameters=parameters),
    *(WORDS, PARAMETERS),
)
REQUESTS = st.builds(
    lambda model, version, name, inputs, outputs, blocks, parameters: pb.ModelInferRequest(
        model_name=model, model_version=version, id=name, inputs=inputs, outputs=outputs, parameters=parameters,
        raw_input_contents=blocks,
    ),
    st.sampled_from(["spin", "types", "count", "nobody", ""]),
    st.sampled_from(["", "1", "2", "one"]),
    WORDS,
    st.lists(INPUTS, max_size=3),
    st.lists(OUTPUTS, max_size=2),
    st.lists(st.sampled_from([b"", b"\0" * 4, X.tobytes()]), max_size=3),
    PARAMETERS,
)  # fmt: skip


@FIXED
@given(REQUESTS)
def test_requests_of_any_form(calls: Calls, message: Any) -> None:
    answered(calls, "ModelInfer", message.SerializeToString())


@FEW
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            REQUESTS.map(lambda message: message.SerializeToString()),
            DAMAGES.map(lambda damages: damaged(LISTED.SerializeToString(), damages)),
            st.just(GOOD.SerializeToString()),
        ),
        max_size=12,
    )
)
def test_streams_of_anything(calls: Calls, messages: list[bytes]) -> None:
    """Each message gets one reply, in order, and the stream ends well."""
    replies = list(calls.stream()(iter([*messages, GOOD]), timeout=HANG))
    assert len(replies) == len(messages) + 1
    for message, reply in zip(messages, replies[:-1], strict=True):
        assert reply.error_message == "" or len(reply.error_message) > 10
        if message == GOOD.SerializeToString():
            assert (reply.error_message, reply.infer_response.id) == ("", "é")
    np.testing.assert_array_equal(raw(replies[-1].infer_response), X * 2)


INFER = SERVICE + "ModelInfer"
PACK = {b"gzip": lambda data: gzip.compress(data, mtime=0), b"deflate": zlib.compress}


@FEW
@given(st.sampled_from([b"gzip", b"deflate"]), DAMAGES)
def test_damaged_compressed_messages(target: Server, calls: Calls, how: bytes, damages: Any) -> None:
    """The flag says compressed, and the stream is broken: the status of a bad message, in words of ours."""
    headers = http2.call_headers(INFER, grpc_encoding=how)
    packed = PACK[how](GOOD.SerializeToString())
    assert http2.ask(target.grpc_port, headers, http2.message(packed, 1)) == (0, "")
    broken = damaged(packed, damages)
    status, sentence = http2.ask(target.grpc_port, headers, http2.message(broken, 1))
    if status != 0:
        assert status == 3, (status, sentence)
        assert sentence == "the compressed message is broken" or sentence.startswith("the request's bytes"), sentence
    is_well(calls)


@FEW
@given(st.integers(0, 255), st.integers(0, 2**32 - 1) | st.integers(0, 60), st.binary(max_size=60), st.booleans())
def test_damaged_framing(target: Server, calls: Calls, flag: int, nbytes: int, payload: bytes, more: bool) -> None:
    """The prefix of a message is wrong: gRPC refuses it, or closes the stream."""
    body = http2.message(payload, flag, nbytes) + (http2.message(GOOD.SerializeToString()) if more else b"")
    status, sentence = http2.ask(target.grpc_port, http2.call_headers(INFER, grpc_encoding=b"gzip"), body)
    assert status in (None, 0, 3, 5, 8, 12, 13), (status, sentence)
    is_well(calls)


@FEW
@given(DAMAGES, st.binary(max_size=60))
def test_damaged_http2(target: Server, calls: Calls, damages: list[tuple[float, int, str]], noise: bytes) -> None:
    """Frames that are none, and headers that are none: an answer or the end of the connection."""
    good = http2.message(GOOD.SerializeToString())
    headers = http2.call_headers(INFER)
    for body, block, before in (
        (good, damaged(headers, damages), b""),
        (good, headers, noise),
        (good, headers, http2.frame(noise[0] if noise else 9, 0, 1, noise)),
    ):
        with suppress(TimeoutError):  # a frame that announced more than came: the server waits, as it must
            http2.ask(target.grpc_port, block, body, before, seconds=0.2)
    is_well(calls)


def test_what_is_cut_stays_text(calls: Calls) -> None:
    """Long names are cut in sentences, and never within a character: protobuf would not take the reply."""
    name = "a" * 199 + "éé"
    wrong = request(inputs=[tensor(name, "FP33", [1])])
    (reply,) = calls.stream()(iter([wrong]), timeout=HANG)
    assert reply.error_message.startswith(f'input "{"a" * 199}" has datatype "FP33"; the protocol has BOOL')
    assert calls.refusal("ModelInfer", wrong)[1] == reply.error_message


def test_names_that_are_no_text(target: Server, calls: Calls) -> None:
    """HTTP can name a region in any bytes; over gRPC a name is text."""
    told = target.post("/v2/systemsharedmemory/region/a%FF/register", {"key": "/k", "byte_size": 1})
    assert (told.status, told.error) == (
        400,
        "the name of a shared memory region must be UTF-8 of at most 1024 bytes; this one has 2",
    )
    assert not calls.call("SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest()).regions
