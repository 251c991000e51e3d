"""What KServe's SDK sends, sent to a server that runs: kserve_client.py HTTP_PORT GRPC_PORT.

Runs in the environment that has the SDK (tests/server/test_kserve.py makes it) and writes one JSON object: the name of
each check, and null or what went wrong.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

X = np.array([[1, 2, 3, 0], [4, 5, 6, 0]], np.float32)
ARRAYS = {
    "f32": np.array([[0.1, -2.5, 3e38], [0, 1e-40, 7]], np.float32),
    "f64": np.array([[0.1, -2.5, 1e300], [0, 5e-324, 7]], np.float64),
    "f16": np.array([[0.1, -2.5, 3], [0, 1, 7]], np.float16),
    "i8": np.array([[-128, 127, 0], [1, 2, 3]], np.int8),
    "i16": np.array([[-32768, 32767, 0], [1, 2, 3]], np.int16),
    "i32": np.array([[-(2**31), 2**31 - 1, 0], [1, 2, 3]], np.int32),
    "i64": np.array([[-(2**63), 2**63 - 1, 0], [1, 2**53 + 1, 3]], np.int64),
    "u8": np.array([[255, 0, 1], [1, 2, 3]], np.uint8),
    "u16": np.array([[65535, 0, 1], [1, 2, 40000]], np.uint16),
    "u32": np.array([[2**32 - 1, 0, 1], [1, 2**31, 3]], np.uint32),
    "bool": np.array([[True, False, True], [False, True, True]]),
    "s": np.array(1.5, np.float32),
}
NAMES = {"f": "FP", "i": "INT", "u": "UINT"}
Infer = Callable[[InferRequest], Awaitable[Any]]


class Sdk:
    """Both clients of one server; the SDK's defaults, but for retries, which would hide an error."""

    def __init__(self, http_port: str, grpc_port: str) -> None:
        self.url = f"http://127.0.0.1:{http_port}"
        self.rest = InferenceRESTClient(RESTConfig(protocol="v2", retries=0))
        self.grpc = InferenceGRPCClient(f"127.0.0.1:{grpc_port}", retries=0)

    async def over_rest(self, request: InferRequest) -> Any:
        return await self.rest.infer(self.url, request, model_name=request.model_name)

    async def over_grpc(self, request: InferRequest) -> Any:
        return await self.grpc.infer(request)


def given(name: str, array: np.ndarray[Any, Any], binary: bool) -> InferInput:
    kind, bits = array.dtype.kind, array.dtype.itemsize * 8
    tensor = InferInput(name, list(array.shape), "BOOL" if kind == "b" else f"{NAMES[kind]}{bits}")
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def output(response: Any, name: str) -> np.ndarray[Any, Any]:
    return next(o for o in response.outputs if o.name == name).as_numpy()


def is_same(array: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    assert array.shape == wanted.shape, (array.shape, wanted.shape)
    assert array.dtype == wanted.dtype, (array.dtype, wanted.dtype)
    assert np.array_equal(array, wanted), (array, wanted)


async def every_type(infer: Infer, binary: bool) -> None:
    bf16 = InferInput("x_bf16", [2, 3], "BF16")  # numpy has no such type: bytes as they are
    bf16._raw_data = bytes(12)
    bf16.parameters = {"binary_data_size": 12}
    inputs = [given(f"x_{n}", a, binary or n == "f16") for n, a in ARRAYS.items()]
    asked = [RequestedOutput(f"y_{n}", {"binary_data": binary or n == "f16"}) for n in ARRAYS]
    response = await infer(InferRequest("types", [*inputs, bf16], request_outputs=asked))
    for name, array in ARRAYS.items():
        is_same(output(response, f"y_{name}"), array)


async def ids_and_versions(infer: Infer) -> None:
    request = InferRequest(
        "spin", [given("x", X, True)], request_id="é-1", model_version="1", parameters={"priority": 1}
    )
    response = await infer(request)
    assert response.id == "é-1", response.id
    assert response.model_name == "spin", response.model_name
    is_same(output(response, "y"), X * 2)


async def no_rows(infer: Infer) -> None:
    empty = np.zeros((0, 4), np.float32)
    is_same(output(await infer(InferRequest("spin", [given("x", empty, True)])), "y"), empty)


async def refusal(answer: Awaitable[Any], kind: type[Exception]) -> Any:
    """The error that a request must end with."""
    try:
        await answer
    except kind as error:
        return error
    raise AssertionError("a wrong request was answered")


def unknown() -> InferRequest:
    return InferRequest("nobody", [given("x", X, True)])


def too_narrow(binary: bool) -> InferRequest:
    return InferRequest("spin", [given("x", X[:, :3], binary)])


async def rest_refuses(sdk: Sdk) -> None:
    error = await refusal(sdk.over_rest(unknown()), httpx.HTTPStatusError)
    assert (error.response.status_code, 'there is no model "nobody"' in str(error)) == (404, True), error
    error = await refusal(sdk.over_rest(too_narrow(False)), httpx.HTTPStatusError)
    assert (error.response.status_code, "has shape [2,3], expected" in str(error)) == (400, True), error


async def grpc_refuses(sdk: Sdk) -> None:
    error = await refusal(sdk.over_grpc(unknown()), grpc.RpcError)
    assert (error.code().name, error.details()) == ("NOT_FOUND", 'there is no model "nobody"'), error
    error = await refusal(sdk.over_grpc(too_narrow(True)), grpc.RpcError)
    assert (error.code().name, "has shape [2,3]" in error.details()) == ("INVALID_ARGUMENT", True), error


async def rest_health(sdk: Sdk) -> None:
    assert await sdk.rest.is_server_live(sdk.url) is True
    assert await sdk.rest.is_server_ready(sdk.url) is True
    assert await sdk.rest.is_model_ready(sdk.url, "spin") is True
    assert await sdk.rest.is_model_ready(sdk.url, "nobody") is False


async def grpc_health(sdk: Sdk) -> None:
    assert await sdk.grpc.is_server_live() is True
    assert await sdk.grpc.is_server_ready() is True
    assert await sdk.grpc.is_model_ready("spin") is True


async def many_at_once(infer: Infer) -> None:
    """Every answer belongs to its request."""

    async def ask(number: int) -> None:
        x = np.full((1 + number % 5, 4), number, np.float32) * [1, 1, 1, 0]
        response = await infer(InferRequest("spin", [given("x", x.astype(np.float32), True)], request_id=str(number)))
        assert response.id == str(number), response.id
        is_same(output(response, "y"), (x * 2).astype(np.float32))

    await asyncio.gather(*(ask(i) for i in range(100)))


def checks(sdk: Sdk) -> dict[str, Callable[[], Awaitable[None]]]:
    return {
        "rest types in binary": lambda: every_type(sdk.over_rest, True),
        "rest types in JSON": lambda: every_type(sdk.over_rest, False),
        "grpc types": lambda: every_type(sdk.over_grpc, True),
        "rest ids and versions": lambda: ids_and_versions(sdk.over_rest),
        "grpc ids and versions": lambda: ids_and_versions(sdk.over_grpc),
        "rest no rows": lambda: no_rows(sdk.over_rest),
        "grpc no rows": lambda: no_rows(sdk.over_grpc),
        "rest errors": lambda: rest_refuses(sdk),
        "grpc errors": lambda: grpc_refuses(sdk),
        "rest health": lambda: rest_health(sdk),
        "grpc health": lambda: grpc_health(sdk),
        "rest many": lambda: many_at_once(sdk.over_rest),
        "grpc many": lambda: many_at_once(sdk.over_grpc),
    }


async def main(http_port: str, grpc_port: str) -> None:
    logging.disable()  # the SDK writes every error that it raises
    sdk = Sdk(http_port, grpc_port)
    found: dict[str, str | None] = {}
    for name, check in checks(sdk).items():
        try:
            await check()
            found[name] = None
        except Exception:
            found[name] = traceback.format_exc()
    await sdk.rest.close()
    await sdk.grpc.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
