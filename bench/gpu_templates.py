"""Template kernels on the GPU of this machine: right, and how fast beside torch's own.

    python bench/gpu_templates.py            every case checked, then timed
    python bench/gpu_templates.py attention  only cases whose name contains the word
    python bench/gpu_templates.py --check    no times

Times are medians of runs inside CUDA graphs of many launches; weights of memory-bound products change between the
launches of a graph, so that no cache holds them. Needs torch and triton; Hardtack itself need not be installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def _make_importable() -> None:
    """hardtack.codegen and hardtack.exporter from this tree, where Hardtack is not installed."""
    try:
        import hardtack.codegen  # noqa: F401
    except ImportError:
        for name in [n for n in sys.modules if n == "hardtack" or n.startswith("hardtack.")]:
            del sys.modules[name]
        package = types.ModuleType("hardtack")
        package.__path__ = [str(ROOT / "hardtack")]
        sys.modules["hardtack"] = package
        for name, folder in (("codegen", ROOT / "codegen"), ("exporter", ROOT / "export")):
            spec = importlib.util.spec_from_file_location(
                f"hardtack.{name}", folder / "__init__.py", submodule_search_locations=[str(folder)]
            )
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[f"hardtack.{name}"] = module
            setattr(package, name, module)
            spec.loader.exec_module(module)


_make_importable()

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from hardtack.codegen.ir.types import DType  # noqa: E402
from hardtack.codegen.machine.data import gpu_of  # noqa: E402
from hardtack.codegen.tune.choice import tuning_for  # noqa: E402
from hardtack.codegen.tune.table import SHIPPED_ALONE  # noqa: E402
from tests.gpu.template_sizes import BF16, CASES, F16, F32  # noqa: E402
from tests.triton import template_cases as cases  # noqa: E402
from tests.triton.template_runs import Prepared, prepare  # noqa: E402

Run = Callable[[], Any]
COPIES_NBYTES = 192 << 20
"""Bytes of inputs over all copies of a case: more than a second-level cache holds."""


def graph_time(runs: list[Run], repeats: int = 20) -> float:
    """Seconds of one run: a CUDA graph of all `runs` in turn, replayed."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for one in runs:
            one()
    torch.cuda.synchronize()
    rounds = max(1, 20 // len(runs))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            for one in runs:
                one()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3 / rounds / len(runs))
    return sorted(times)[len(times) // 2]


def arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def check(name: str, make: Callable[[], cases.Case]) -> bool:
    torch.manual_seed(0)
    case = make()
    try:
        prepared = prepare(case.graph, case.tensors, case.sizes, arch(), device="cuda")
        prepared()
        torch.cuda.synchronize()
        cases.close(case, prepared.outputs, case.want({k: v.cuda() for k, v in case.tensors.items()}))
    except Exception as error:
        print(f"WRONG {name}: {case.name}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        if not isinstance(error, AssertionError):
            traceback.print_exc(limit=3)
        return False
    print(f"right {name}: {case.name}", flush=True)
    return True


def gemm_pair(
    m: int, n: int, k: int, dtype: Any, transposed: bool = False
) -> tuple[cases.Case, Callable[..., Run], float]:
    """Ours with B as the export stores a linear layer's weight; theirs as torch does, [N, K] (not for `transposed`)."""
    case = cases.gemm(m, n, k, dtype, transposed=transposed)

    def theirs(t: dict[str, torch.Tensor]) -> Run:
        b = t["b"].mT if transposed else t["b"].mT.contiguous().mT
        out = torch.empty(m, n, dtype=t["a"].dtype, device="cuda")
        return lambda: torch.mm(t["a"], b, out=out)

    return case, theirs, 2.0 * m * n * k


def codes_pair(m: int, n: int, k: int, kind: str) -> tuple[cases.Case, Callable[..., Run], float]:
    """Ours with weights of few bits and a bias, int4 in groups of 128; theirs with the same in bf16."""
    bits, group = (4, 128) if kind == "int4" else (8, k)
    case = cases.codes(m, n, k, BF16, bits, group, DType.F8E4M3 if kind == "fp8" else DType.I8)

    def theirs(t: dict[str, torch.Tensor]) -> Run:
        return lambda: F.linear(t["a"], t["b"], t["bias"])

    return case, theirs, 2.0 * m * n * k


def bytes_pair(m: int, n: int, k: int, kind: str) -> tuple[cases.Case, Callable[..., Run], float]:
    """Ours with scales of rows and columns and a bias; theirs the same for floats of 8 bits, and for int8 the product
    alone: torch has no other."""
    dtype, fast = (DType.I8, False) if kind == "int8" else (DType.F8E4M3, kind == "fp8 fast")
    case = cases.scaled_bytes(m, n, k, dtype, fast=fast)

    def theirs(t: dict[str, torch.Tensor]) -> Run:
        b = t["b"].mT
        if dtype is DType.I8:
            return lambda: torch._int_mm(t["a"], b)
        columns, bias = t["columns"].reshape(1, n), t["bias"].bfloat16()
        how = {"bias": bias, "out_dtype": torch.bfloat16, "use_fast_accum": fast}
        return lambda: torch._scaled_mm(t["a"], b, t["rows"], columns, **how)

    return case, theirs, 2.0 * m * n * k


def gelu_pair(m: int, n: int, k: int, dtype: Any) -> tuple[cases.Case, Callable[..., Run], float]:
    """With a bias and GELU; theirs under torch.compile."""
    case = cases.gemm(m, n, k, dtype, transposed=False, gelu=True)

    def theirs(t: dict[str, torch.Tensor]) -> Run:
        weight = t["b"].mT.contiguous()
        compiled = torch.compile(lambda: F.gelu(F.linear(t["a"], weight, t["bias"])), dynamic=False)
        with torch.no_grad():
            compiled()
        return compiled

    return case, theirs, 2.0 * m * n * k


def attention_pair(shape: tuple[int, ...], dtype: Any, causal: bool) -> tuple[cases.Case, Callable[..., Run], float]:
    case = cases.attention(shape, dtype, causal)  # type: ignore[arg-type]
    b, h, kv, t, s, d, e = shape

    def theirs(x: dict[str, torch.Tensor]) -> Run:
        return lambda: F.scaled_dot_product_attention(x["q"], x["k"], x["v"], is_causal=causal, enable_gqa=h != kv)

    return case, theirs, 2.0 * b * h * t * s * (d + e) / (2 if causal else 1)


def conv_pair(
    x: list[int], out: int, kernel: list[int], dtype: Any, **kw: int
) -> tuple[cases.Case, Callable[..., Run], float]:
    """Ours with a bias and a ReLU and the output in the contract's order; theirs channels-last, the same steps, of f32
    without TF32.
    """
    torch.backends.cudnn.allow_tf32 = False
    case = cases.convolution(x, out, kernel, dtype, **kw)  # type: ignore[arg-type]
    groups, stride, padding = kw.get("groups", 1), kw.get("stride", 1), kw.get("padding", 0)

    def theirs(t: dict[str, torch.Tensor]) -> Run:
        last = torch.channels_last
        a, w, bias = t["x"].to(memory_format=last), t["w"].to(memory_format=last), t["b"]
        return lambda: F.conv2d(a, w, bias, stride=stride, padding=padding, groups=groups).relu_()

    points = case.want(case.tensors)[0].numel()
    return case, theirs, 2.0 * points * x[1] // groups * kernel[0] * kernel[1]


PAIRS: dict[str, Callable[[], tuple[cases.Case, Callable[..., Run], float]]] = {
    **{
        f"gemm {m}x{n}x{k}": (lambda m=m, n=n, k=k: gemm_pair(m, n, k, BF16))  # type: ignore[misc]
        for m, n, k in (
            (8192, 8192, 8192),
            (4096, 4096, 4096),
            (2048, 2048, 2048),
            (1024, 1024, 1024),
            (512, 12288, 4096),
            (4096, 3072, 768),
            (4096, 768, 3072),
            (128, 3072, 768),
            (128, 768, 3072),
            (128, 768, 768),
            (64, 4096, 4096),
            (16, 4096, 4096),
            (8, 14336, 4096),
        )
    },
    **{
        f"linear gelu {m}x{n}x{k}": (lambda m=m, n=n, k=k: gelu_pair(m, n, k, BF16))  # type: ignore[misc]
        for m, n, k in ((8192, 8192, 8192), (4096, 4096, 4096), (512, 12288, 4096), (4096, 3072, 768))
    },
    **{
        f"vector {n}x{k}": (lambda n=n, k=k: gemm_pair(1, n, k, BF16, transposed=True))  # type: ignore[misc]
        for n, k in ((2048, 2048), (512, 2048), (8192, 2048), (2048, 8192), (4096, 4096), (14336, 4096), (128256, 2048))
    },
    **{
        f"codes {m}x{n}x{k} {kind}": (lambda m=m, n=n, k=k, kind=kind: codes_pair(m, n, k, kind))  # type: ignore[misc]
        for m in (1, 4, 8, 16, 64, 512)
        for n, k in ((3072, 2048), (16384, 2048), (2048, 8192), (28672, 4096))
        for kind in ("int8", "fp8", "int4")
    },
    **{
        f"bytes {m}x{n}x{k} {kind}": (lambda m=m, n=n, k=k, kind=kind: bytes_pair(m, n, k, kind))  # type: ignore[misc]
        for m, n, k in (
            (8192, 8192, 8192),
            (4096, 4096, 4096),
            (512, 12288, 4096),
            (4096, 3072, 768),
            (4096, 768, 3072),
            (4096, 768, 768),
            (6304, 3072, 768),
            (1024, 8192, 2048),
            (64, 4096, 4096),
            (16, 4096, 4096),
        )
        for kind in ("int8", "fp8", "fp8 fast")
    },
    "vector rows of B 4096x4096": lambda: gemm_pair(1, 4096, 4096, BF16),
    **{
        f"gemm f32 {m}x{n}x{k}": (lambda m=m, n=n, k=k: gemm_pair(m, n, k, F32, transposed=True))  # type: ignore[misc]
        for m, n, k in ((4096, 4096, 4096), (2048, 2048, 2048), (4096, 3072, 768), (512, 3072, 768), (128, 768, 3072))
    },
    "attention f32 bert": lambda: attention_pair((32, 12, 12, 128, 128, 64, 64), F32, False),
    "attention f32 causal": lambda: attention_pair((1, 32, 8, 1024, 1024, 64, 64), F32, True),
    "attention bert": lambda: attention_pair((32, 12, 12, 128, 128, 64, 64), BF16, False),
    "attention vit": lambda: attention_pair((32, 12, 12, 197, 197, 64, 64), BF16, False),
    "attention 64 causal": lambda: attention_pair((1, 32, 8, 2048, 2048, 64, 64), BF16, True),
    "attention 128 causal": lambda: attention_pair((2, 16, 16, 4096, 4096, 128, 128), BF16, True),
    "attention 128": lambda: attention_pair((2, 16, 16, 4096, 4096, 128, 128), F16, False),
    "attention decode 64": lambda: attention_pair((1, 32, 8, 1, 1024, 64, 64), BF16, False),
    "attention decode 128": lambda: attention_pair((1, 32, 8, 1, 4096, 128, 128), BF16, False),
    "conv 56": lambda: conv_pair([32, 64, 56, 56], 64, [3, 3], BF16, padding=1),
    "conv 28": lambda: conv_pair([32, 128, 28, 28], 128, [3, 3], BF16, padding=1),
    "conv f32 28": lambda: conv_pair([32, 128, 28, 28], 128, [3, 3], F32, padding=1),
    "conv 14": lambda: conv_pair([32, 256, 14, 14], 256, [3, 3], BF16, padding=1),
    "conv 7": lambda: conv_pair([32, 512, 7, 7], 512, [3, 3], BF16, padding=1),
    "conv 14 one image": lambda: conv_pair([1, 256, 14, 14], 256, [3, 3], BF16, padding=1),
    "conv 1x1": lambda: conv_pair([32, 256, 56, 56], 64, [1, 1], BF16),
    "conv stem": lambda: conv_pair([32, 3, 224, 224], 64, [7, 7], BF16, stride=2, padding=3),
    "depthwise": lambda: conv_pair([32, 96, 56, 56], 96, [7, 7], BF16, groups=96, padding=3),
}
"""Name -> the case, torch's way to compute it, and the floating-point operations in it."""


def _input_nbytes(tensors: dict[str, torch.Tensor]) -> int:
    """Of what ours reads: where there are codes, they and their tables stand for the numbers."""
    read = [t for name, t in tensors.items() if f"{name}.codes" not in tensors]
    return sum(t.numel() * t.element_size() for t in read)


def main_kernels(prepared: Prepared) -> list[Run]:
    """The launches without copies into another layout, which a model's own layout saves."""
    wanted = [
        k for k, kernel in enumerate(prepared.kernels)
        if not _only_moves(kernel.text) or any(".codes." in name for name in kernel.buffers)
    ]  # fmt: skip
    return [prepared.launches[k] for k in wanted] or list(prepared.launches)


def _only_moves(text: str) -> bool:
    return "YBLOCK" in text and "tl.dot" not in text


def time_pair(name: str, make: Callable[[], tuple[cases.Case, Callable[..., Run], float]]) -> dict[str, object]:
    torch.manual_seed(0)
    case, their_run, flops = make()
    nbytes = _input_nbytes(dict(case.tensors))
    count = max(1, min(32, COPIES_NBYTES // max(1, nbytes)))
    ours, theirs = [], []
    decisions: tuple[str, ...] = ()
    for _ in range(count):
        tensors = {k: v.cuda() for k, v in case.tensors.items()}
        prepared = prepare(
            case.graph, tensors, case.sizes, arch(), device="cuda", tuning=tuning_for(gpu_of(arch()), SHIPPED_ALONE)
        )
        decisions = prepared.decisions
        parts = main_kernels(prepared)
        ours.append(lambda parts=parts: [p() for p in parts])  # type: ignore[misc]
        theirs.append(their_run(tensors))
    mine, other = graph_time(ours), graph_time(theirs)
    print(
        f"{name:28} ours {mine * 1e6:9.2f} us  torch {other * 1e6:9.2f} us  ours/torch {mine / other:5.2f}"
        f"  {flops / mine / 1e12:7.1f} TFLOP/s  {nbytes / mine / 1e9:7.0f} GB/s  {'; '.join(decisions)[:150]}",
        flush=True,
    )
    return {"name": name, "ours_s": mine, "torch_s": other, "flops": flops, "input_nbytes": nbytes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="*", help="only cases whose name contains one of these words")
    parser.add_argument("--check", action="store_true", help="no times")
    parser.add_argument("--time", action="store_true", help="no checks")
    parser.add_argument("--json", type=Path, help="write the times there")
    given = parser.parse_args()
    chosen = lambda name: not given.word or any(w in name for w in given.word)  # noqa: E731
    wrong = 0
    if not given.time:
        results = [check(n, c) for n, c in CASES.items() if chosen(n)]
        wrong = results.count(False)
        print(f"{len(results) - wrong} of {len(results)} cases are right", flush=True)
    rows = []
    if not given.check:
        for n, p in PAIRS.items():
            if chosen(n):
                try:
                    rows.append(time_pair(n, p))
                except Exception as error:
                    print(f"FAILED {n}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                    wrong += 1
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
