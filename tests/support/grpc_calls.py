"""A gRPC client that can also send what no client should: messages as bytes, or made with tritonclient's classes."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
from served import HANG, Server
from tritonclient.grpc import service_pb2 as pb

Array = npt.NDArray[Any]
SERVICE = "/inference.GRPCInferenceService/"
LONG = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Calls:
    """A channel to a started server; use it as a context."""

    def __init__(self, server: Server, credentials: Any = None, **options: int) -> None:
        where, more = f"127.0.0.1:{server.grpc_port}", [*LONG, ("grpc.use_local_subchannel_pool", 1), *options.items()]
        self.channel = (
            grpc.insecure_channel(where, more) if credentials is None else grpc.secure_channel(where, credentials, more)
        )

    def __enter__(self) -> Calls:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def method(self, name: str) -> Any:
        """Takes and gives bytes."""
        return self.channel.unary_unary(SERVICE + name)

    def call(self, name: str, message: Any, timeout: float = HANG, **more: Any) -> Any:
        """Sends a message, or bytes, and gives the reply's message."""
        data = message if isinstance(message, bytes) else message.SerializeToString()
        reply = getattr(pb, name + "Response")()
        reply.ParseFromString(self.method(name)(data, timeout=timeout, **more))
        return reply

    def infer(self, *args: Any, timeout: float = HANG, **more: Any) -> Any:
        return self.call("ModelInfer", request(*args, **more), timeout)

    def refusal(self, name: str, message: Any, timeout: float = HANG) -> tuple[str, str]:
        """The code and the sentence of a call that must fail."""
        try:
            reply = self.call(name, message, timeout)
        except grpc.RpcError as error:
            return error.code().name, error.details()  # type: ignore[attr-defined]
        raise AssertionError(f"{name} was answered: {reply}")

    def stream(self) -> Any:
        """A bidirectional call from messages to ModelStreamInferResponses."""
        return self.channel.stream_stream(
            SERVICE + "ModelStreamInfer",
            lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            pb.ModelStreamInferResponse.FromString,
        )


def tensor(name: str, datatype: str, shape: Any, **contents: Any) -> Any:
    return pb.ModelInferRequest.InferInputTensor(
        name=name,
        datatype=datatype,
        shape=shape,
        contents=pb.InferTensorContents(**contents) if contents else None,
    )


def request(model: str = "spin", x: Array | None = None, **more: Any) -> Any:
    """A request with one input x of raw data."""
    if x is not None:
        more = {
            "inputs": [tensor("x", "FP32", x.shape)],
            "raw_input_contents": [x.tobytes()],
            **more,
        }
    return pb.ModelInferRequest(model_name=model, **more)


def raw(reply: Any, i: int = 0) -> Array:
    """An FP32 output of a reply."""
    values = np.frombuffer(reply.raw_output_contents[i], np.float32)
    return values.reshape(list(reply.outputs[i].shape))
