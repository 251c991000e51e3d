"""Every variant of every template compiles, to the instructions that it is there for; in a sweep for every GPU."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from hardtack.codegen.backends.triton.compile import GpuCode, compile_kernels
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.data import CUDA_ARCHITECTURES, gpu_of
from tests.triton import template_cases as cases
from tests.triton.template_runs import kernels, lowered

F32, F64, F16, BF16 = DType.F32, DType.F64, DType.F16, DType.BF16

TENSOR_CORES: dict[str, Callable[[], cases.Case]] = {
    "gemm": lambda: cases.gemm(1024, 1024, 1024, BF16, epilogue=True),
    "gemm streamed": lambda: cases.gemm(4096, 4096, 4096, BF16, epilogue=True),
    "gemm streamed rows": lambda: cases.gemm(4096, 4096, 2048, F16, transposed=False, dynamic=True, epilogue=True),
    "gemm masked": lambda: cases.gemm(700, 1003, 515, F16, transposed=False),
    "gemm dynamic": lambda: cases.gemm(512, 1024, 768, BF16, dynamic=True),
    "gemm batched": lambda: cases.gemm(256, 256, 64, F16, batch=(96,), constant=False),
    "grouped": lambda: cases.grouped([500, 900, 2000, 4096], 4096, 1024, 1024, BF16),
    "grouped dynamic": lambda: cases.grouped([500, 900, 2000, 4096], 4096, 1024, 1024, F16, False, dynamic=True),
    "attention": lambda: cases.attention((2, 12, 12, 512, 512, 64, 64), F16),
    "attention causal": lambda: cases.attention((1, 32, 8, 1024, 1024, 128, 128), BF16, causal=True, heads_inside=True),
    "attention mask": lambda: cases.attention((2, 16, 16, 257, 257, 80, 80), BF16, mask="add", dynamic=True),
    "conv": lambda: cases.convolution([8, 64, 56, 56], 64, [3, 3], BF16, padding=1),
    "conv transposed": lambda: cases.convolution(
        [8, 64, 28, 28], 64, [4, 4], F16, stride=2, padding=1, transposed=True
    ),
}
"""Products that are large enough for an architecture's widest instruction."""
WIDEST = {"sm_80": "HMMA", "sm_90": "HGMMA", "sm_100": "UTCHMMA"}
TF32 = {"sm_80": r"HMMA\S*TF32", "sm_90": r"HG?MMA\S*TF32", "sm_100": r"HMMA\S*TF32|UTC\w*MMA"}

PLAIN: dict[str, Callable[[], cases.Case]] = {
    "gemm few rows": lambda: cases.gemm(8, 4096, 4096, BF16),
    "gemm f32": lambda: cases.gemm(300, 500, 700, F32, epilogue=True),
    "gemm f64": lambda: cases.gemm(100, 130, 170, F64),
    "grouped few rows": lambda: cases.grouped([1, 2, 2, 3, 5, 6, 8, 8], 8, 1024, 1024, BF16),
    "grouped f32": lambda: cases.grouped([50, 70], 80, 100, 200, F32),
    "vector": lambda: cases.gemm(1, 4096, 4096, BF16, epilogue=True),
    "vector rows of B": lambda: cases.gemm(1, 4096, 4096, F16, transposed=False),
    "attention f32": lambda: cases.attention((2, 8, 8, 200, 200, 64, 64), F32, causal=True),
    "attention 256": lambda: cases.attention((1, 8, 8, 300, 300, 256, 256), BF16),
    "attention decode": lambda: cases.attention((1, 32, 8, 1, 2048, 64, 64), BF16, mask="keep"),
    "conv stem": lambda: cases.convolution([4, 3, 64, 64], 64, [7, 7], BF16, stride=2, padding=3),
    "conv f32": lambda: cases.convolution([2, 48, 20, 20], 72, [3, 3], F32, padding=1, groups=2),
    "conv deep": lambda: cases.convolution([1, 512, 7, 7], 512, [3, 3], BF16, padding=1),
    "depthwise": lambda: cases.convolution([4, 96, 56, 56], 96, [3, 3], BF16, groups=96, padding=1, dynamic=True),
    "sort": lambda: cases.sort([64, 100], 1, BF16),
    "sort merged": lambda: cases.sort([3, 5000], 1, DType.U8, k=7),
    "sort counted": lambda: cases.sort([3, 300], 1, F64, longest=None),
    "scan": lambda: cases.scan([64, 4096], 1, BF16, "sum"),
    "scan max": lambda: cases.scan([8, 500, 3], 1, DType.I8, "max"),
    "scan f64": lambda: cases.scan([8, 500, 3], 1, F64, "prod"),
    "lstm": lambda: cases.recurrent("lstm", 5, 33, 128, 256, BF16),
    "gru": lambda: cases.recurrent("gru", 5, 33, 128, 256, F32, dynamic=True),
    "rnn_tanh": lambda: cases.recurrent("rnn_tanh", 5, 33, 128, 256, F32),
    "rnn_relu": lambda: cases.recurrent("rnn_relu", 5, 33, 128, 256, BF16, reverse=True),
    "gru f64": lambda: cases.recurrent("gru", 5, 5, 20, 30, F64),
    "attention decode of int8": lambda: cases.attention((1, 32, 8, 1, 2048, 64, 64), BF16, mask="keep", codes=DType.I8),
    "attention decode of fp8": lambda: cases.attention(
        (1, 32, 8, 1, 2048, 128, 128), F16, mask="keep", codes=DType.F8E4M3
    ),
    "codes few rows": lambda: cases.codes(7, 64, 512, BF16, 4, 128),
    "codes few rows f16": lambda: cases.codes(8, 64, 512, F16, 8, 512),
    "attention of int8": lambda: cases.attention((1, 8, 8, 300, 300, 64, 64), BF16, causal=True, codes=DType.I8),
}


ALWAYS = ("vector",)
"""What a test asks for on every architecture."""


@cache
def found(arch: str, sweep: bool) -> dict[str, list[TritonKernel]]:
    """The template kernels of the cases, by the case's name: of all in a sweep, else each on one architecture."""
    out = {}
    for place, (name, make) in enumerate({**TENSOR_CORES, **PLAIN}.items()):
        if not (sweep or name in ALWAYS or CUDA_ARCHITECTURES[place % len(CUDA_ARCHITECTURES)] == arch):
            continue
        case = make()
        hints = case.sizes
        out[name] = [k for g, k in kernels(lowered(case.graph, arch, hints), arch, hints) if g.anchor is not None]
        assert out[name], name
    return out


@dataclass(frozen=True)
class Compiled:
    """The kernels of an architecture, by the case's name, and their code, by theirs."""

    arch: str
    kernels: dict[str, list[TritonKernel]]
    codes: dict[str, GpuCode]


@pytest.fixture(scope="module", params=CUDA_ARCHITECTURES)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    arch = str(request.param)
    groups = found(arch, bool(request.config.getoption("--sweep")))
    every = {k.name: k for group in groups.values() for k in group}
    cubins = compile_kernels(
        list(every.values()), gpu_of(arch), cache=KernelCache(tmp_path_factory.mktemp("c")), jobs=2
    )
    assert cubins.keys() == every.keys()
    return Compiled(arch, groups, cubins)


def assembly(cubin: GpuCode, folder: Path) -> str:
    """The machine code as text."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None
    assert spec.origin is not None
    tool = Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    path = folder / "kernel.cubin"
    path.write_bytes(cubin.code)
    return subprocess.run([tool, "-sass", path], check=True, capture_output=True, text=True).stdout


def test_machine_code(compiled: Compiled, tmp_path: Path) -> None:
    arch, names = compiled.arch, [name for name in TENSOR_CORES if name in compiled.kernels]
    assert names
    for name in names:
        (kernel,) = [k for k in compiled.kernels[name] if "tl.dot" in k.text]
        text = assembly(compiled.codes[kernel.name], tmp_path)
        assert WIDEST[arch] in text, f"{name} on {arch} does not use {WIDEST[arch]}"
        # masks and odd sizes may cost registers, the straight cases must not spill
        if name in ("gemm", "conv", "attention"):
            assert "STL" not in text, f"{name} on {arch} spills registers"


@pytest.mark.parametrize(
    ("arch", "dtype", "rows", "instruction"),
    [
        ("sm_80", DType.I8, 4096, "IMMA"),
        ("sm_90", DType.I8, 4096, "IGMMA"),
        ("sm_90", DType.I8, 16, "IMMA"),
        ("sm_90", DType.F8E4M3, 4096, "QGMMA"),
        ("sm_90", DType.F8E5M2, 4096, "QGMMA"),
        ("sm_100", DType.I8, 4096, "IMMA"),
        ("sm_100", DType.F8E4M3, 4096, "UTCQMMA"),
    ],
    ids=str,
)
def test_bytes_are_multiplied_as_bytes(arch: str, dtype: DType, rows: int, instruction: str, tmp_path: Path) -> None:
    case = cases.scaled_bytes(rows, 4096, 1024, dtype)
    every = [k for _, k in kernels(lowered(case.graph, arch, case.sizes), arch, case.sizes)]
    (kernel,) = [k for k in every if "tl.dot" in k.text]
    codes = compile_kernels([kernel], gpu_of(arch), cache=KernelCache(tmp_path / "cache"), jobs=1)
    text = assembly(codes[kernel.name], tmp_path)
    assert re.search(rf"\b{instruction}\b", text), f"{dtype} on {arch} does not use {instruction}"
    if dtype.is_float8 and arch == "sm_90":  # what tensor cores added up goes to f32 every 128 terms
        assert re.search(r"\bFADD\b", text)


@pytest.mark.parametrize("dtype", [DType.F8E4M3, DType.F8E5M2], ids=str)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_one_row_by_float8_is_converted_by_instructions(arch: str, dtype: DType, tmp_path: Path) -> None:
    """Two codes at once, where there are any."""
    case = cases.codes(1, 64, 256, DType.BF16, 8, 256, dtype)
    every = [k for _, k in kernels(lowered(case.graph, arch, case.sizes), arch, case.sizes)]
    (kernel,) = [k for k in every if "codes_next" in k.text]
    codes = compile_kernels([kernel], gpu_of(arch), cache=KernelCache(tmp_path / "cache"), jobs=1)
    found = re.findall(r"\bF2FP\.F16\.E[45]M[32]\.UNPACK_B\b", assembly(codes[kernel.name], tmp_path))
    assert bool(found) == (arch != "sm_80")


FRAGMENTS = [
    pytest.param(lambda: cases.codes(7, 64, 512, BF16, 4, 128), id="int4"),
    pytest.param(lambda: cases.codes(8, 64, 512, F16, 8, 512), id="int8"),
]


@pytest.mark.sweep(over="arch")
@pytest.mark.parametrize("arch", CUDA_ARCHITECTURES)
@pytest.mark.parametrize("make", FRAGMENTS)
def test_fragments_go_to_tensor_cores_from_where_loads_left_them(
    arch: str, make: Callable[[], cases.Case], tmp_path: Path
) -> None:
    """Between lanes only sums pass: of two columns, at the end."""
    case = make()
    every = [k for _, k in kernels(lowered(case.graph, arch, case.sizes), arch, case.sizes)]
    found = [k for k in every if "= add_products(" in k.text]
    codes = compile_kernels(found, gpu_of(arch), cache=KernelCache(tmp_path / "cache"), jobs=1)
    text = assembly(codes[found[0].name], tmp_path)
    first = re.search(r"\bHMMA\.16816\.F32\S*", text)
    assert first
    assert not re.search(r"\b(SHFL|STS|LDS|BAR)\b", text[: first.start()])


@pytest.mark.sweep(over="arch")
@pytest.mark.parametrize("name", ["gemm f32", "attention f32"])
@pytest.mark.parametrize("arch", CUDA_ARCHITECTURES)
def test_f32_is_not_rounded_to_tf32(arch: str, name: str, tmp_path: Path) -> None:
    """Three products of TF32 make one. Asked by an option and not in the text, Triton 3.6 makes a single one."""
    case = PLAIN[name]()
    (kernel,) = [k for _, k in kernels(lowered(case.graph, arch, case.sizes), arch, case.sizes) if "tl.dot" in k.text]
    assert '"tf32x3"' in kernel.text
    text = kernel.text.replace('"tf32x3"', '"tf32"').replace(kernel.name, "rounded")
    found = compile_kernels(
        [kernel, replace(kernel, name="rounded", text=text)],
        gpu_of(arch),
        cache=KernelCache(tmp_path / "cache"),
        jobs=1,
    )
    codes = [assembly(found[name], tmp_path) for name in (kernel.name, "rounded")]
    exact, coarse = (len(re.findall(TF32[arch], code)) for code in codes)
    assert coarse > 0
    # the single product of sm_100 is written a second time in front of its loop
    assert exact > coarse if arch == "sm_100" else exact == 3 * coarse


def test_one_row_products_read_wide_and_start_early(compiled: Compiled, tmp_path: Path) -> None:
    (kernel,) = compiled.kernels["vector"]
    text = assembly(compiled.codes[kernel.name], tmp_path)
    assert "LDG.E.128" in text or "LDG.E.EF.128" in text, "weights are not read 16 bytes at a time"
    assert kernel.dependent == (compiled.arch != "sm_80")
    assert ("ACQBULK" in text) == kernel.dependent, "the wait for the kernel in front is missing"


def test_shared_memory_fits(compiled: Compiled) -> None:
    limit = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}[compiled.arch]
    for name, group in compiled.kernels.items():
        for kernel in group:
            shared = compiled.codes[kernel.name].record.shared_nbytes
            assert shared <= limit, f"{name} on {compiled.arch} wants {shared} bytes of shared memory"
