"""Wrong requests: each gets the right status and a sentence, and the connection survives where HTTP allows it."""

from __future__ import annotations

import gzip
import json
import socket
import time
from typing import Any

import numpy as np
import pytest
from served import Server, binary_body, read_answers

X = np.array([[1, 2, 3, 0]], np.float32)
GOOD = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 0]}
OF_SPIN = 'of model "spin" (version 1)'
OF_TYPES = 'model "types" (version 1)'


def request(**changes: Any) -> dict[str, Any]:
    """A request for spin whose input has these members instead; None takes one away."""
    merged = {**GOOD, **changes}
    return {"inputs": [{k: v for k, v in merged.items() if v is not None}]}


INFER = "/v2/models/spin/infer"
DOCUMENTS: list[tuple[object, int, str]] = [
    ([], 400, "the request must be an object"),
    (3, 400, "the request must be an object"),
    ({}, 400, 'the request has no "inputs"'),
    ({"inputs": {}}, 400, '"inputs" must be a list'),
    ({"inputs": "x"}, 400, '"inputs" must be a list, not text'),
    ({"inputs": [3]}, 400, "inputs and outputs must be objects"),
    ({"inputs": [GOOD], "outputs": [[]]}, 400, "inputs and outputs must be objects"),
    ({"inputs": [GOOD], "parameters": []}, 400, '"parameters" must be an object'),
    ({"inputs": [GOOD], "id": {}}, 200, ""),
    ({"inputs": [GOOD], "id": "a" * 4096}, 200, ""),
    ({"inputs": [GOOD], "id": "a" * 4097}, 400, "the request's id has 4097 bytes; it may have 4096"),
    ({"inputs": []}, 400, 'model "spin" (version 1) needs input "x", which is missing; its inputs are "x"'),
    ({"inputs": [GOOD, GOOD]}, 400, 'input "x" is given twice'),
    (request(name=None), 400, "an input has no name"),
    (request(name="z"), 400, 'model "spin" (version 1) has no input "z"; its inputs are "x"'),
    (request(name=3), 400, '"name" must be text, not a number'),
    (request(datatype=None), 400, 'input "x" has no datatype'),
    (
        request(datatype="FP33"),
        400,
        'input "x" has datatype "FP33"; the protocol has BOOL, UINT8, UINT16, UINT32, INT8, INT16, INT32, INT64, FP16, BF16, FP32 and FP64',
    ),
    (request(datatype="FP64"), 400, f'input "x" {OF_SPIN} is FP32, FP64 was sent'),
    (
        request(datatype="BYTES", data=["a"]),
        400,
        'input "x" has text in its data; models here take numbers only',
    ),
    (
        request(datatype="BYTES", data=None, parameters={"binary_data_size": 0}),
        400,
        'input "x" has datatype BYTES; models here take numbers only, so encode text in the client (a tokenizer)',
    ),
    (request(shape=None), 400, 'input "x" has no shape'),
    (request(shape=[1, 5], data=[0] * 5), 400, f'input "x" {OF_SPIN} has shape [1,5], expected [n from 0 to 64,4]'),
    (request(shape=[65, 4], data=[0] * 260), 400, f'input "x" {OF_SPIN} has shape [65,4], expected [n from 0 to 64,4]'),
    (request(shape=[4]), 400, f'input "x" {OF_SPIN} has shape [4], expected [n from 0 to 64,4]'),
    (request(shape=[-1, 4]), 400, f'input "x" {OF_SPIN} has shape [-1,4], expected [n from 0 to 64,4]'),
    (request(shape=[2**40, 2**40]), 400, f'input "x" {OF_SPIN} has shape [{2**40},{2**40}], expected [n from 0 to 64,4]'),
    (request(shape=[1.5, 4]), 400, "a shape has a size that is no whole number"),
    (request(shape="big"), 400, '"shape" must be a list, not text'),
    (request(shape=[[1, 4]]), 400, "a shape must be a list of whole numbers"),
    (request(data=[1, 2, 3]), 400, 'input "x" has 3 elements in its data; shape [1,4] takes 4'),
    (request(data=[[1, 2], [3, 4]]), 400, 'input "x": its data is nested like [2,2], its shape is [1,4]'),
    (request(data=[[1, 2, 3], [4]]), 400, 'input "x": the lists of its data have different lengths'),
    (request(data=[1, [2], 3, 4]), 400, 'input "x": the lists of its data have different lengths'),
    (request(data=[1, 2, 3, None]), 400, 'input "x" has null in its data'),
    (request(data=[1, 2, 3, {}]), 400, 'input "x" has an object in its data'),
    (request(data=[1, 2, 3, True]), 400, 'input "x" is FP32 and its data has true or false'),
    (request(data=[1, 2, 3, 1e39]), 400, 'input "x": element 3 is too large for FP32'),
    (
        request(data=None),
        400,
        'input "x" must have exactly one of "data", the parameter binary_data_size and shared memory',
    ),
    (
        request(parameters={"binary_data_size": 16}),
        400,
        'input "x" must have exactly one of "data", the parameter binary_data_size and shared memory',
    ),
    (
        request(data=None, parameters={"binary_data_size": 16}),
        400,
        'input "x" has binary_data_size 16, but only 0 bytes of the body are left',
    ),
    (request(data=None, parameters={"binary_data_size": -1}), 400, 'parameter "binary_data_size" of input "x" must be a whole number, not negative'),
    (request(data=None, parameters={"shared_memory_region": "r"}), 400, 'input "x" lies in shared memory and has no parameter "shared_memory_byte_size"'),
    (
        request(data=None, parameters={"shared_memory_region": "r", "shared_memory_byte_size": 16}),
        400,
        'shared memory region "r" is not registered',
    ),
    ({"inputs": [GOOD], "outputs": [{"name": "q"}]}, 400, 'model "spin" (version 1) has no output "q"; its outputs are "y"'),
    ({"inputs": [GOOD], "outputs": [{"name": "y"}, {"name": "y"}]}, 400, 'output "y" is asked for twice'),
    ({"inputs": [GOOD], "outputs": [{}]}, 400, "an output has no name"),
    (
        {"inputs": [GOOD], "outputs": [{"name": "y", "parameters": {"classification": 3}}]},
        400,
        'output "y": classification is not done by this server; ask for the output itself and sort it in the client',
    ),
    ({"inputs": [GOOD], "outputs": [{"name": "y", "parameters": {"binary_data": 1}}]}, 400, 'parameter "binary_data" must be true or false'),
    ({"inputs": [GOOD], "parameters": {"timeout": "soon"}}, 400, 'parameter "timeout" must be a whole number of microseconds'),
    ({"inputs": [GOOD], "parameters": {"timeout": -4}}, 400, 'parameter "timeout" must be a whole number of microseconds, not negative'),
    ({"inputs": [GOOD], "parameters": {"entry": "backward"}}, 400, 'model "spin" (version 1) has no entry point "backward"; it has "forward"'),
    (
        {"inputs": [GOOD], "parameters": {"sequence_id": 7, "sequence_start": True}},
        400,
        'model "spin" (version 1) keeps no states, so a sequence means nothing to it; leave out sequence_id',
    ),
    ({"inputs": [GOOD], "parameters": {"sequence_start": True}}, 400, "sequence_start and sequence_end need a sequence_id"),
    (
        request(data=[-1, 0, 0, 0]),
        400,
        'entry "forward", instruction 0 (model.py:12, aten.mul.Tensor): an assertion of the model failed [kernel k_spin]',
    ),
    (
        request(shape=[13, 4], data=[0] * 52),
        400,
        'entry "forward" requires n must not be 13; with n = 13 the left side is 13, expected other than 13',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("document", "status", "sentence"), DOCUMENTS, ids=range(len(DOCUMENTS)))
def test_documents(server: Server, document: object, status: int, sentence: str) -> None:
    answer = server.post(INFER, document)
    assert (answer.status, answer.json().get("error", "")) == (status, sentence)


BODIES: list[tuple[bytes, str]] = [
    (b"", "the request is no JSON: at byte 1: syntax error while parsing value - unexpected end of input"),
    (b"{", "the request is no JSON: at byte 2: syntax error while parsing object key - unexpected end of input"),
    (b'{"a": NaN}', "the request is no JSON: at byte 7: syntax error while parsing value - invalid literal"),
    (b'{"a":1}{}', "the request is no JSON: at byte 8: syntax error while parsing value - unexpected '{'"),
    (
        b'{"a":"\xff"}',
        "the request is no JSON: at byte 7: syntax error while parsing value - invalid string: ill-formed UTF-8",
    ),
    (b"[" * 100, "the request must be an object"),
    (b'{"a":' * 65, "the request nests lists and objects deeper than 64"),
    (b'{"inputs":[{"data":' + b"[" * 100000, "the request nests lists and objects deeper than 64"),
]


@pytest.mark.parametrize(("body", "start"), BODIES, ids=range(len(BODIES)))
def test_bodies_that_are_no_json(server: Server, body: bytes, start: str) -> None:
    answer = server.request("POST", INFER, body)
    assert answer.status == 400
    assert answer.error.startswith(start)


def test_numbers_that_a_type_does_not_hold(server: Server) -> None:
    types = {"FP32": "f32", "FP64": "f64", "FP16": "f16", "BF16": "bf16", "INT8": "i8", "INT16": "i16"}
    types |= {"INT32": "i32", "INT64": "i64", "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "BOOL": "bool"}

    def sent(datatype: str, value: Any) -> str:
        """The value in an input of its type, and all others in order behind it."""
        inputs = [
            {"name": f"x_{name}", "datatype": t, "shape": [2, 3], "data": [value if t == datatype else 0] * 6}
            for t, name in types.items()
        ]
        inputs.sort(key=lambda item: item["datatype"] != datatype)
        scalar = {"name": "x_s", "datatype": "FP32", "shape": [], "data": [0]}
        answer = server.post("/v2/models/types/infer", {"inputs": [*inputs, scalar]})
        return answer.error.replace(f"x_{types[datatype]}", "x")

    assert sent("INT8", 128) == 'input "x": element 0 is 128, which INT8 does not hold'
    assert sent("UINT8", -1) == 'input "x": element 0 is -1, which UINT8 does not hold'
    assert sent("UINT16", 65536) == 'input "x": element 0 is 65536, which UINT16 does not hold'
    assert sent("UINT32", -1) == 'input "x": element 0 is -1, which UINT32 does not hold'
    assert sent("BOOL", 2) == 'input "x": element 0 is 2, which BOOL does not hold'
    assert sent("INT32", 1.5) == 'input "x" is INT32 and its data has numbers with a fraction or exponent'
    assert sent("INT64", 2**63) == 'input "x" is INT64 and its data has a number beyond 64 bits'
    assert sent("FP16", 1) == 'input "x" is FP16, which JSON does not carry; use the binary form'
    named = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [1]}]}
    assert server.post(
        "/v2/models/types/infer", named
    ).error == f'{OF_TYPES} has no input "x"; its inputs are ' + ", ".join(
        f'"x_{t}"' for t in ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "bool", "s")
    )


def test_outputs_that_json_does_not_carry(server: Server) -> None:
    x = np.array([[np.nan, 0, 0, 0]], np.float32)
    body, headers = binary_body([("x", "FP32", x)])
    answer = server.request("POST", INFER, body, headers)
    assert (answer.status, answer.error) == (
        400,
        'output "y" has NaN or infinity at element 0, which JSON does not carry; ask for it with binary_data',
    )


def test_the_binary_part(server: Server) -> None:
    body, headers = binary_body([("x", "FP32", X)])
    text = int(headers["Inference-Header-Content-Length"])

    def sent(body: bytes, length: str) -> tuple[int, str]:
        answer = server.request("POST", INFER, body, {"inference-header-content-length": length})
        return answer.status, answer.error

    assert sent(body[:-1], str(text)) == (
        400,
        'input "x" has binary_data_size 16, but only 15 bytes of the body are left',
    )
    assert sent(body + b"abc", str(text)) == (
        400,
        "the body has 3 bytes after what the inputs' binary_data_size and the JSON account for",
    )
    assert sent(body, "many") == (400, "the header Inference-Header-Content-Length must be a whole number")
    assert sent(body, str(len(body) + 1)) == (
        400,
        f"Inference-Header-Content-Length is {len(body) + 1}, the body has {len(body)} bytes",
    )
    assert sent(body, str(text - 1))[1].startswith(f"the request is no JSON: at byte {text}")
    wrong = body.replace(b'"binary_data_size": 16', b'"binary_data_size": 12')[:-4]
    assert sent(wrong, str(text)) == (400, 'input "x" has 12 bytes of data; shape [1,4] of FP32 takes 16')


def test_compressed_bodies(server: Server) -> None:
    body = json.dumps({"inputs": [GOOD]}).encode()
    packed = gzip.compress(body)

    def sent(body: bytes, encoding: str) -> tuple[int, str]:
        answer = server.request("POST", INFER, body, {"Content-Encoding": encoding})
        return answer.status, answer.json().get("error", "")

    assert sent(packed, "gzip") == (200, "")
    assert sent(packed, "br") == (400, 'Content-Encoding "br" is not known; use gzip or deflate')
    assert sent(packed[:-9], "gzip")[1].startswith("the body is no sound gzip stream: it breaks after")
    assert sent(body, "gzip")[1].startswith("the body is no sound gzip stream: it breaks after")
    assert sent(packed + b"x", "gzip") == (400, "the body has 1 bytes after the end of its gzip stream")
    bomb = gzip.compress(bytes(50_000_000))
    assert sent(bomb, "gzip") == (413, "the body inflates to more than this server's limit of 1000000 bytes")


PATHS = [
    ("GET", "/", 404, "there is nothing at /; the API starts at /v2"),
    ("GET", "/v3", 404, "there is nothing at /v3; the API starts at /v2"),
    ("GET", "/v2/models", 404, "there is nothing at /v2/models; the API starts at /v2"),
    ("GET", "/v2/models/spin/bake", 404, "there is nothing at /v2/models/spin/bake; the API starts at /v2"),
    ("GET", "/v2/models/nobody", 404, 'there is no model "nobody"'),
    ("GET", "/v2/models/nobody/ready", 404, 'there is no model "nobody"'),
    ("POST", "/v2/models/nobody/infer", 400, "the request is no JSON"),
    ("GET", "/v2/models/spin/versions/9", 404, 'model "spin" has no version 9'),
    ("GET", "/v2/models/spin/versions/one", 400, 'version "one" is no number; versions are 1, 2, ...'),
    ("GET", "/v2/models/spin/infer", 405, "this path takes POST"),
    ("POST", "/v2/models/spin", 405, "this path takes GET"),
    ("DELETE", "/v2/health/live", 405, "this path takes GET"),
    ("PUT", "/v2/repository/models/spin/load", 405, "this path takes POST"),
    ("POST", "/v2/repository/models/nobody/load", 404, 'there are no files of a model "nobody" in the repository'),
    ("POST", "/v2/repository/models/nobody/unload", 404, 'there is no model "nobody"'),
    ("GET", "/v2/models/..%2f..%2fetc/ready", 404, 'there is no model "../../etc"'),
    ("GET", "/v2/systemsharedmemory/region/r/status", 404, 'shared memory region "r" is not registered'),
    ("POST", "/v2/cudasharedmemory/region/r/register", 400, "CUDA shared memory is not supported; use system shared memory or the binary form"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "status", "sentence"), PATHS, ids=[f"{m} {p}" for m, p, _, _ in PATHS])
def test_paths(server: Server, method: str, path: str, status: int, sentence: str) -> None:
    answer = server.request(method, path)
    assert answer.status == status
    assert answer.error.startswith(sentence)
    if status == 405:
        assert answer.headers["allow"] == sentence.split()[-1]


@pytest.mark.parametrize("target", ["http://somewhere:80/v2/models/spin/ready?x", "https://a/v2/health/live", "/v2"])
def test_a_target_with_or_without_a_host(server: Server, target: str) -> None:
    (answer,) = server.raw(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert answer.status == 200


def test_an_unknown_model_is_the_first_thing_said(server: Server) -> None:
    answer = server.post("/v2/models/nobody/infer", {"inputs": [{}]})
    assert (answer.status, answer.error) == (404, 'there is no model "nobody"')


def test_the_connection_survives_what_http_allows(server: Server) -> None:
    bad = json.dumps(request(datatype="FP33")).encode()
    wrong = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (INFER.encode(), len(bad), bad)
    nothing = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
    fine = b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n"
    assert [a.status for a in server.raw(wrong + nothing + wrong + fine)] == [400, 404, 400, 200]


CHUNKED = b"POST /v2/models/spin/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
HEADS = [
    (b"HELLO\r\n\r\n", 400, "this is no sound HTTP: bad method"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "this is no sound HTTP: bad method"),
    (b"GET /v2 HTTP/3.0\r\nHost: a\r\n\r\n", 505, "this server speaks HTTP/1.1 and HTTP/1.0"),
    (b"GET /v2 HTTP/1.1\r\n\r\n", 400, "a request of HTTP/1.1 needs one Host header"),
    (b"GET /v2 HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "a request of HTTP/1.1 needs one Host header"),
    (b"GET /v2 HTTP/1.1\r\nHost a\r\n\r\n", 400, "this is no sound HTTP: bad field"),
    (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", 400, "this is no sound HTTP: bad Content-Length"),
    (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, "this is no sound HTTP: bad Content-Length"),
    (b"POST /v2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "Transfer-Encoding must be chunked or absent; compress with Content-Encoding"),
    (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: cake\r\n\r\nabc", 417, "the only expectation that is met is 100-continue"),
    (b"POST /v2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n", 400, "this is no sound HTTP: bad chunk"),
    (b"POST /v2 HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "a request of HTTP/1.0 has no Transfer-Encoding"),
    (b"GET /v2 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400, "a request has one Authorization header at most"),
    (CHUNKED + b"0\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", 431, "the request's header passes this server's limit of 4096 bytes"),
    (CHUNKED + b"1;x=" + b"x" * 200_000 + b"\r\na\r\n0\r\n\r\n", 431, "the request's header passes this server's limit of 4096 bytes"),
    (b"GET /v2 HTTP/1.1\r\nHo", 400, "the request ended before it was complete"),
    (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc", 400, "the body ended after 3 of the 10 bytes of its Content-Length"),
    (b"GET /v2 HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 5000 + b"\r\n\r\n", 431, "the request's header passes this server's limit of 4096 bytes"),
    (b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000001\r\n\r\n", 413, "the body has 1000001 bytes; this server takes at most 1000000"),
    (b"POST /v2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n" + bytes(0xFFFFF), 413, "the body passes this server's limit of 1000000 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "status", "sentence"), HEADS, ids=range(len(HEADS)))
def test_heads(server: Server, data: bytes, status: int, sentence: str) -> None:
    (answer,) = server.raw(data)
    assert (answer.status, answer.error, answer.headers["connection"]) == (status, sentence, "close")


def test_trailers_are_passed_over(server: Server) -> None:
    good = json.dumps({"inputs": [GOOD]}).encode()
    head = CHUNKED.replace(b"/v2/models/spin/infer", INFER.encode())
    data = head + b"%x\r\n%s\r\n0\r\nContent-Encoding: gzip\r\nHost: b\r\n\r\n" % (len(good), good)
    assert [a.status for a in server.raw(data + data)] == [200, 200]


def test_a_body_beyond_its_length_is_the_next_request(server: Server) -> None:
    good = json.dumps({"inputs": [GOOD]}).encode()
    data = b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%strailing\r\n\r\n" % (
        INFER.encode(),
        len(good),
        good,
    )
    assert [a.status for a in server.raw(data)] == [200, 400]


def test_a_refused_large_body_still_gets_its_answer(server: Server) -> None:
    """The client that keeps sending reads why, and no reset."""
    with server.socket() as connection:
        connection.sendall(b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 8000000\r\n\r\n")
        time.sleep(0.05)
        for _ in range(80):
            connection.sendall(bytes(100_000))
        connection.shutdown(socket.SHUT_WR)
        assert [a.status for a in read_answers(connection)] == [413]


def test_a_refused_client_that_sends_on_and_on_is_reset(server: Server) -> None:
    """The server reads some of it, and then lets the client know; a closed window would keep it waiting for a minute."""
    with server.socket() as connection:
        connection.sendall(b"POST /v2 HTTP/1.1\r\nHost: a\r\nContent-Length: 900000000\r\n\r\n")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(bytes(300_000_000))
