"""llama.cpp's side of bench/llama_beside.py, in a process of its own, by the Python that has llama-cpp-python and gguf.

    python llama_worker.py THREADS products K N COUNT      products of one row with COUNT weights
    python llama_worker.py THREADS decode MODEL            a step of a llama of random weights; MODEL is JSON

For each line "q4_0" or "q8_0" of its input it prints the seconds of a call; "ready" before the first, or "absent: ..."
with what is missing. Nothing of Hardtack is imported here.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Call = Callable[[], None]
TYPES = {"f32": 0, "q4_0": 2, "q8_0": 8}
"""ggml.h: enum ggml_type."""
_SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
"""Takes what llama.cpp logs."""
CALLS = 3
"""Of a turn, behind one that is not counted."""


class _Init(ctypes.Structure):
    """ggml.h: struct ggml_init_params."""

    _fields_ = [("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


class _Plan(ctypes.Structure):
    """ggml-cpu.h: struct ggml_cplan."""

    _fields_ = [
        ("work_size", ctypes.c_size_t), ("work_data", ctypes.c_void_p), ("n_threads", ctypes.c_int),
        ("threadpool", ctypes.c_void_p), ("abort_callback", ctypes.c_void_p), ("abort_data", ctypes.c_void_p),
        ("use_ref", ctypes.c_bool),
    ]  # fmt: skip


def _libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """ggml's base and its CPU backend, of the installed package."""
    spec = importlib.util.find_spec("llama_cpp")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "lib"
    base, cpu = (ctypes.CDLL(str(folder / f"lib{name}.so")) for name in ("ggml-base", "ggml-cpu"))
    pointers = {
        base: ("ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_new_graph", "ggml_get_data"), cpu: ()
    }  # fmt: skip
    for library, names in pointers.items():
        for name in names:
            getattr(library, name).restype = ctypes.c_void_p
    base.ggml_row_size.restype = base.ggml_quantize_chunk.restype = ctypes.c_size_t
    cpu.ggml_graph_plan.restype = _Plan
    cpu.ggml_cpu_init()
    return base, cpu


def products(threads: int, kind: str, k: int, n: int, count: int) -> Call:
    """A graph of `count` products of one row of f32 [k] with weights [n, k] of their own.

    Raises SystemExit where the first differs from the product with the weights in float32 by more than such codes do.
    """
    import numpy as np

    base, cpu = _libraries()
    rng = np.random.default_rng(0)
    weight, x = rng.standard_normal((n, k), np.float32), rng.standard_normal(k, np.float32)
    nbytes = n * base.ggml_row_size(TYPES[kind], ctypes.c_int64(k))
    codes = ctypes.create_string_buffer(nbytes)
    base.ggml_quantize_chunk(
        TYPES[kind], weight.ctypes.data_as(ctypes.c_void_p), codes, ctypes.c_int64(0), ctypes.c_int64(n),
        ctypes.c_int64(k), None,
    )  # fmt: skip

    def tensor(type_of: str, rows: int, columns: int) -> ctypes.c_void_p:
        shape = ctypes.c_int64(columns), ctypes.c_int64(rows)
        return ctypes.c_void_p(base.ggml_new_tensor_2d(context, TYPES[type_of], *shape))

    context = ctypes.c_void_p(base.ggml_init(_Init(count * (nbytes + 4 * n + 4096) + 4 * k + (8 << 20), None, False)))
    row, graph, results = tensor("f32", 1, k), ctypes.c_void_p(base.ggml_new_graph(context)), []
    ctypes.memmove(base.ggml_get_data(row), x.ctypes.data, 4 * k)
    for _ in range(count):
        matrix = tensor(kind, n, k)
        ctypes.memmove(base.ggml_get_data(matrix), codes, nbytes)
        results.append(ctypes.c_void_p(base.ggml_mul_mat(context, matrix, row)))
        base.ggml_build_forward_expand(graph, results[-1])
    plan = cpu.ggml_graph_plan(graph, threads, None)
    work = ctypes.create_string_buffer(plan.work_size + 64)
    plan.work_data = ctypes.addressof(work)

    def call() -> None:
        status = cpu.ggml_graph_compute(graph, ctypes.byref(plan))
        if status or not work:
            sys.exit(f"ggml_graph_compute gives {status}")

    call()
    got = np.ctypeslib.as_array((ctypes.c_float * n).from_address(base.ggml_get_data(results[0])))
    error = float(np.linalg.norm(got - weight @ x) / np.linalg.norm(weight @ x))
    if not error < 0.15:
        sys.exit(f"llama.cpp's product of {kind} is off by {error:.2f}")
    return call


def _write_model(path: Path, kind: str, m: dict[str, int]) -> None:
    """A GGUF file of random weights: linear layers of `kind`, the embedding of f16."""
    import gguf
    import numpy as np

    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    writer.add_context_length(2048)
    writer.add_embedding_length(m["hidden"])
    writer.add_block_count(m["layers"])
    writer.add_feed_forward_length(m["inner"])
    writer.add_head_count(m["heads"])
    writer.add_head_count_kv(m["key_heads"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(m["hidden"] // m["heads"])
    writer.add_vocab_size(m["vocabulary"])
    writer.add_tokenizer_model("no_vocab")
    quantised = getattr(gguf.GGMLQuantizationType, kind.upper())

    def add(name: str, rows: int, columns: int, linear: bool = True) -> None:
        numbers = rng.standard_normal((rows, columns), np.float32) * 0.02
        if linear:
            writer.add_tensor(name, gguf.quants.quantize(numbers, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(name, numbers.astype(np.float16))

    hidden, keys = m["hidden"], m["hidden"] // m["heads"] * m["key_heads"]
    add("token_embd.weight", m["vocabulary"], hidden, linear=False)
    add("output.weight", m["vocabulary"], hidden)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    for i in range(m["layers"]):
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(hidden, np.float32))
        for name, rows, columns in (
            ("attn_q", hidden, hidden), ("attn_k", keys, hidden), ("attn_v", keys, hidden),
            ("attn_output", hidden, hidden), ("ffn_gate", m["inner"], hidden), ("ffn_up", m["inner"], hidden),
            ("ffn_down", hidden, m["inner"]),
        ):  # fmt: skip
            add(f"blk.{i}.{name}.weight", rows, columns)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def decode(threads: int, kind: str, m: dict[str, int]) -> Call:
    """A step of one token behind m["cached"] others, which stay as they are."""
    import llama_cpp as lc

    lc.llama_log_set(_SILENT, ctypes.c_void_p(0))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        _write_model(path, kind, m)
        options = lc.llama_model_default_params()
        options.use_mmap, options.n_gpu_layers = False, 0
        model = lc.llama_model_load_from_file(str(path).encode(), options)
    params = lc.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 512, 512, threads, threads
    context = lc.llama_init_from_model(model, params)

    def run(tokens: list[int]) -> None:
        listed = (lc.llama_token * len(tokens))(*tokens)
        status = lc.llama_decode(context, lc.llama_batch_get_one(listed, len(tokens)))
        if status:
            sys.exit(f"llama_decode gives {status}")

    run([7 * i % m["vocabulary"] for i in range(m["cached"])])
    memory: Any = lc.llama_get_memory(context)

    def call() -> None:
        run([11])
        lc.llama_memory_seq_rm(memory, 0, m["cached"], -1)

    call()
    return call


def seconds(call: Call) -> float:
    """Of a call, in a turn."""
    call()
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - start) / CALLS


def main() -> None:
    threads, what, *rest = sys.argv[1:]
    needed = ("llama_cpp", "numpy") + (("gguf",) if what == "decode" else ())
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        print(f"absent: {', '.join(missing)}", flush=True)
        return
    if what == "products":
        k, n, count = map(int, rest)
        calls = {kind: products(int(threads), kind, k, n, count) for kind in ("q4_0", "q8_0")}
    else:
        calls = {kind: decode(int(threads), kind, json.loads(rest[0])) for kind in ("q4_0", "q8_0")}
    print("ready", flush=True)
    for line in sys.stdin:
        print(seconds(calls[line.strip()]), flush=True)


if __name__ == "__main__":
    main()
