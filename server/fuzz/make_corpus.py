"""Seeds for the fuzz targets of the servers: make_corpus.py FOLDER writes FOLDER/http, FOLDER/grpc, FOLDER/inflate."""

from __future__ import annotations

import gzip
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

from tritonclient.grpc import service_pb2 as pb

ROWS = struct.pack("<8f", *range(8))
INPUT = {"name": "x", "datatype": "FP32", "shape": [2, 4]}
INFER = "/v2/models/m/infer"
HEAD_OF_STREAM = {False: b"\0\6", True: b"\1\6"}
"""Of seeds for inflate: the format, and a limit of 4096 bytes."""
PLAIN, GZIP, DEFLATE = 0, 0x80, 0xC0
"""How a message for grpc is compressed: the upper bits of its first byte; the lower ones are the method."""


def http(method: str, target: str, body: bytes = b"", **headers: str) -> bytes:
    """A request as it travels."""
    named = {"Host": "a", "Content-Length": str(len(body))} | {k.replace("_", "-"): v for k, v in headers.items()}
    lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in named.items()), "", ""]
    return "\r\n".join(lines).encode() + body


def document(**more: Any) -> bytes:
    return json.dumps({"id": "é", "inputs": [{**INPUT, "data": [[1, 2, 3, 4.5], [5, 6, -7e3, 8]]}], **more}).encode()


def sequence(**parameters: Any) -> bytes:
    """A request of a sequence of the model that keeps a state."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}
    body = {"inputs": [tensor], "parameters": {"sequence_id": "a"} | parameters}
    return http("POST", "/v2/models/s/infer", json.dumps(body).encode())


def http_seeds() -> dict[str, bytes]:
    binary = {**INPUT, "parameters": {"binary_data_size": 32}}
    text = json.dumps({"inputs": [binary], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    inside = {"shared_memory_region": "in", "shared_memory_byte_size": 32, "shared_memory_offset": 16}
    types = [
        {"name": "w", "datatype": "INT64", "shape": [2], "data": [-1, 9007199254740993]},
        {"name": "b", "datatype": "BOOL", "shape": [2], "data": [True, 0]},
        {"name": "u", "datatype": "UINT8", "shape": [1, 2], "data": [[0, 255]]},
        {"name": "s", "datatype": "FP64", "shape": [], "data": 1.5e300},
    ]
    half = {"datatype": "FP16", "shape": [2], "parameters": {"binary_data_size": 4}}
    plain = {"FP32": [0.5, -1], "FP64": [1e300, 2], "INT64": [-1, 2], "INT32": [3, 4], "INT16": [5, 6], "INT8": [7, 8]}
    plain |= {"UINT8": [9, 255], "BOOL": [True, False]}
    names = ["f32", "f64", "i64", "i32", "i16", "i8", "u8", "bool"]
    all_types = [
        {"name": f"x_{name}", "datatype": kind, "shape": [2], "data": data}
        for name, (kind, data) in zip(names, plain.items(), strict=True)
    ]
    all_types += [{"name": "x_f16", **half}, {"name": "x_bf16", **half, "datatype": "BF16"}]
    outputs = [{"name": "y_f16", "parameters": {"binary_data": True}}, *({"name": f"y_{name}"} for name in names)]
    entry = json.dumps({"inputs": all_types, "outputs": outputs, "parameters": {"entry": "types"}}).encode()
    many = {"name": "x", "datatype": "FP32", "shape": [64, 4], "data": [i / 7 for i in range(256)]}
    region = b'{"key": "/k", "offset": 0, "byte_size": 8}'
    zlib_in = {"Content_Encoding": "deflate", "Accept_Encoding": "gzip;q=1"}
    shared = {"inputs": [{**INPUT, "parameters": inside}], "outputs": [{"name": "y", "parameters": inside}]}
    bad_outputs = [{"name": "y", "parameters": {**inside, "shared_memory_byte_size": 8}}]
    parameters = {"timeout": 10, "sequence_id": "a", "sequence_start": True, "entry": "f", "binary_data_output": True}
    return {
        "json": http("POST", INFER, document(outputs=[{"name": "y"}], parameters=parameters)),
        "types": http("POST", "/v2/models/m/versions/1/infer", json.dumps({"inputs": types}).encode()),
        "plain": http("POST", INFER, document()),
        "entry": http("POST", INFER, entry + b"abcdefgh", Inference_Header_Content_Length=str(len(entry))),
        "compressed": http("POST", INFER, json.dumps({"inputs": [many]}).encode(), Accept_Encoding="deflate"),
        "guard": http("POST", INFER, json.dumps({"inputs": [{**many, "shape": [13, 4], "data": [0] * 52}]}).encode()),
        "start": sequence(sequence_start=True),
        "next": sequence(),
        "end": sequence(sequence_end=True, binary_data_output=True),
        "number": sequence(sequence_id=7, sequence_start=True, sequence_end=True),
        "alone": sequence(sequence_id=""),
        "statistics": http("GET", "/v2/models/m/versions/1/stats"),
        "all": http("GET", "/v2/models/stats"),
        "config": http("GET", "/v2/models/s/config"),
        "ready": http("GET", "/v2/models/m/ready"),
        "model": http("GET", "/v2/models/m"),
        "server": http("GET", "/v2"),
        "binary": http("POST", INFER, text + ROWS, Inference_Header_Content_Length=str(len(text))),
        "shared": http("POST", INFER, json.dumps(shared).encode()),
        "shared-in": http("POST", INFER, json.dumps({"inputs": shared["inputs"]}).encode()),
        "shared-bad": http("POST", INFER, json.dumps({**shared, "outputs": bad_outputs}).encode()),
        "gzip": http("POST", INFER, gzip.compress(document(), mtime=0), Content_Encoding="gzip"),
        "deflate": http("POST", INFER, zlib.compress(document()), **zlib_in),
        "chunked": http("POST", INFER, b"3\r\nabc\r\n0\r\n\r\n", Transfer_Encoding="chunked", Expect="100-continue"),
        "metadata": http("GET", "/v2/models/a%20b%C3%A9/versions/1"),
        "page": http("HEAD", "/v2/models/m/stats?x=1#y"),
        "metrics": http("GET", "/metrics"),
        "health": http("GET", "/v2/health/ready"),
        "index": http("POST", "/v2/repository/index", b'{"ready": true}'),
        "load": http("POST", "/v2/repository/models/m/load", b'{"parameters": {"config": "{}"}}'),
        "unload": http("POST", "/v2/repository/models/m/unload"),
        "register": http("POST", "/v2/systemsharedmemory/region/r/register", region),
        "status": http("GET", "/v2/systemsharedmemory/status"),
        "unregister": http("POST", "/v2/systemsharedmemory/region/r/unregister"),
        "cuda": http("POST", "/v2/cudasharedmemory/region/r/register", b"{}"),
    }  # fmt: skip


def grpc_seeds() -> dict[str, bytes]:
    tensor = pb.ModelInferRequest.InferInputTensor
    raw = pb.ModelInferRequest(
        model_name="m",
        model_version="1",
        id="é",
        inputs=[tensor(name="x", datatype="FP32", shape=[2, 4])],
        outputs=[{"name": "y"}],
        raw_input_contents=[ROWS],
    )
    raw.parameters["timeout"].int64_param = 10
    raw.parameters["sequence_id"].string_param = "a"
    raw.parameters["sequence_start"].bool_param = True
    kinds = {"FP32": "fp32", "FP64": "fp64", "INT64": "int64", "INT8": "int", "UINT8": "uint", "BOOL": "bool"}
    lists = pb.ModelInferRequest(
        model_name="m",
        inputs=[
            tensor(name=d, datatype=d, shape=[2], contents=pb.InferTensorContents(**{f"{kind}_contents": [1, 0]}))
            for d, kind in kinds.items()
        ],
    )
    shared = pb.ModelInferRequest(model_name="m", inputs=[tensor(name="x", datatype="FP32", shape=[2, 4])])
    for name, value in (("shared_memory_byte_size", 32), ("shared_memory_offset", 16)):
        shared.inputs[0].parameters[name].int64_param = value
    shared.inputs[0].parameters["shared_memory_region"].string_param = "in"
    shared.outputs.add(name="y").parameters.MergeFrom(shared.inputs[0].parameters)
    packed = lists.SerializeToString()
    load = pb.RepositoryModelLoadRequest(model_name="m")
    load.parameters["config"].string_param = "{}"
    return {
        "raw": bytes([PLAIN]) + raw.SerializeToString(),
        "lists": bytes([PLAIN]) + packed,
        "shared": bytes([PLAIN]) + shared.SerializeToString(),
        "gzip": bytes([GZIP]) + gzip.compress(packed, mtime=0),
        "deflate": bytes([DEFLATE]) + zlib.compress(raw.SerializeToString()),
        "ready": bytes([PLAIN | 6]) + pb.ModelReadyRequest(name="m", version="1").SerializeToString(),
        "statistics": bytes([PLAIN | 10]) + pb.ModelStatisticsRequest(name="m").SerializeToString(),
        "index": bytes([PLAIN | 11]) + pb.RepositoryIndexRequest(ready=True).SerializeToString(),
        "load": bytes([PLAIN | 12]) + load.SerializeToString(),
        "status": bytes([PLAIN | 14]) + pb.SystemSharedMemoryStatusRequest(name="in").SerializeToString(),
        "register": bytes([PLAIN | 15])
        + pb.SystemSharedMemoryRegisterRequest(name="é", key="/k", offset=1, byte_size=8).SerializeToString(),
    }


def inflate_seeds() -> dict[str, bytes]:
    texts = {"short": b"abc", "runs": bytes(3000) + b"x" * 1000, "text": document() * 3, "limit": b"y" * 4096}
    found = {}
    for name, text in texts.items():
        found[f"zlib-{name}"] = HEAD_OF_STREAM[False] + zlib.compress(text)
        found[f"gzip-{name}"] = HEAD_OF_STREAM[True] + gzip.compress(text, mtime=0)
        found[f"stored-{name}"] = HEAD_OF_STREAM[False] + zlib.compress(text, 0)
    return found


def write(folder: Path) -> None:
    """Writes all seeds, one file each."""
    for target, seeds in (("http", http_seeds()), ("grpc", grpc_seeds()), ("inflate", inflate_seeds())):
        (folder / target).mkdir(parents=True, exist_ok=True)
        for name, seed in seeds.items():
            (folder / target / name).write_bytes(seed)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
