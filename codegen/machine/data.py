"""Every machine that kernels are built for. A number of a chip stands here; what kernels were written for, and from
what size on another one is taken, stands with them.
"""

from __future__ import annotations

from dataclasses import replace

from hardtack.codegen.machine.machine import Cpu, Gpu, TensorRates, Waits, WarpgroupRates

# The x86-64 psABI micro-architecture levels, less what every 64-bit CPU of the level below has. The names are those of
# gcc's and clang's -m flags, which are also the names that the runtime checks.
_FEATURES_V3 = (
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe",
)  # fmt: skip
_FEATURES_V4 = (*_FEATURES_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
# Compilers prefer 256-bit vectors on most 512-bit CPUs, and clang then splits every 64-byte operation in two.
_WIDE = "-mprefer-vector-width=512"
_FLAGS_V4 = ("-march=x86-64-v4", _WIDE)
_FLAGS_V3 = ("-march=x86-64-v3",)
_FEATURES_V4_BF16 = (*_FEATURES_V4, "avx512bf16", "avx512vnni")  # those that have the first have the second
_FLAGS_V4_BF16 = (*_FLAGS_V4, "-mavx512bf16", "-mavx512vnni")
_FLAGS_AMX = (*_FLAGS_V4_BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8")
_FLAGS_AARCH64 = ("-march=armv8-a", "-mno-outline-atomics")
_FLAGS_AARCH64_BF16 = ("-march=armv8.2-a+bf16+dotprod", "-mno-outline-atomics")

X86_64_V4 = Cpu(
    name="x86-64-v4",
    triple="x86_64-linux-gnu",
    vector_nbytes=64,
    features=_FEATURES_V4,
    flags_clang=_FLAGS_V4,
    flags_gcc=_FLAGS_V4,
    micro_rows=12,
    cores=16,
    first_level_nbytes=48 << 10,  # Zen 5, Intel since Ice Lake; Zen 4 has 32
    second_level_nbytes=1 << 20,  # Zen 4 and 5; Intel's servers have two
    wake_points=1 << 16,
    wake_products=200_000,
    int8_rate=1.6,  # VPMADDWD, as measured on Zen 3; those of other instructions are counted from it
    seven_bit_rate=2.1,  # VPMADDUBSW, as measured there
)
X86_64_V4_BF16 = replace(
    X86_64_V4,
    name="x86-64-v4-bf16",  # Zen 4 and later; Intel's multiply with AMX, and slower than FMA without
    features=_FEATURES_V4_BF16,
    flags_clang=_FLAGS_V4_BF16,
    flags_gcc=_FLAGS_V4_BF16,
    int8_rate=3.2,
    seven_bit_rate=3.2,
)
AMX = replace(
    X86_64_V4,
    name="amx",
    features=(*_FEATURES_V4_BF16, "amx-tile", "amx-bf16", "amx-int8"),
    flags_clang=_FLAGS_AMX,
    flags_gcc=_FLAGS_AMX,
    int8_rate=8,
    seven_bit_rate=8,
)
X86_64_V3 = replace(
    X86_64_V4,
    name="x86-64-v3",
    vector_nbytes=32,
    features=_FEATURES_V3,
    flags_clang=_FLAGS_V3,
    flags_gcc=_FLAGS_V3,
    micro_rows=6,
    first_level_nbytes=32 << 10,
    second_level_nbytes=1 << 19,  # Zen 2 and 3
)
AARCH64 = replace(
    X86_64_V4,
    name="aarch64",
    triple="aarch64-linux-gnu",
    vector_nbytes=16,
    features=("neon",),
    flags_clang=_FLAGS_AARCH64,
    flags_gcc=_FLAGS_AARCH64,
    micro_rows=6,
    first_level_nbytes=64 << 10,  # Neoverse
    int8_rate=0.5,
    seven_bit_rate=0.5,
)
AARCH64_BF16 = replace(
    AARCH64,
    name="aarch64-bf16",
    features=("neon", "bf16", "dotprod"),
    flags_clang=_FLAGS_AARCH64_BF16,
    flags_gcc=_FLAGS_AARCH64_BF16,
    int8_rate=3.2,
    seven_bit_rate=3.2,
)

CPUS = {cpu.name: cpu for cpu in (AMX, X86_64_V4_BF16, X86_64_V4, X86_64_V3, AARCH64_BF16, AARCH64)}
"""Name -> Cpu, of those that are the same wherever a bundle is built; of one architecture best first."""
DEFAULT_CPUS = (X86_64_V4, X86_64_V3)
"""What the target "cpu" stands for, widest first."""

H200 = Gpu(
    name="sm_90",
    multiprocessors=132,
    shared_nbytes=227 << 10,
    tensor_flops=TensorRates(half=6.1e12, tf32=3.05e12, float8=True),
    f32_flops=3.9e11,
    bandwidth=2.8e12,
    transfer=1.4e11,
    clock_hz=1.7e9,
    warpgroup=WarpgroupRates(columns=2, read_cycles=16, read_cycles_a_column=0.25),
    dependent_launch=True,
    registers=65536,
    program_nbytes=1024,
    most_programs=8,  # more than that are never what a multiprocessor waits for
    store_rate=6e10,
    waits=Waits(
        product_floor_s=3e-6,
        nest_floor_s=1.9e-6,
        launch_s=1.2e-6,
        fill_s=2.4e-6,
        stream_fill_s=6e-7,
        step_latency_s=2.8e-7,
    ),
)
# What is not said of the others is taken from the H200, on which it was measured.
A100 = replace(
    H200,
    name="sm_80",
    multiprocessors=108,
    shared_nbytes=163 << 10,
    tensor_flops=TensorRates(half=2.9e12, tf32=1.45e12, float8=False),
    f32_flops=1.8e11,
    bandwidth=1.9e12,
    transfer=9e10,
    clock_hz=1.41e9,
    warpgroup=None,
    dependent_launch=False,
)
B200 = replace(
    H200,
    # twice the products in a cycle, of 128 rows at a time, so that what they read of B counts half: its data sheet
    name="sm_100",
    multiprocessors=148,
    tensor_flops=TensorRates(half=1.4e13, tf32=7e12, float8=True),
    f32_flops=5.0e11,
    bandwidth=7.5e12,
    transfer=1.2e11,
    clock_hz=1.85e9,
    warpgroup=WarpgroupRates(columns=4, read_cycles=16, read_cycles_a_column=0.125),
    assembler="ptxas-blackwell",
)
MI300X = replace(
    H200,
    name="gfx942",  # its data sheet: nothing was measured there
    multiprocessors=304,
    shared_nbytes=64 << 10,
    tensor_flops=TensorRates(half=4.3e12, tf32=2.15e12, float8=False),  # its own have other codes
    f32_flops=5.4e11,
    bandwidth=5.3e12,
    transfer=9e10,
    clock_hz=2.1e9,
    warpgroup=None,
    dependent_launch=False,
    device="hip",
    warp_size=64,
    registers=131072,
    splits_f32=False,
    pipelines_attention=False,  # tiles do not fit in its shared memory twice, and Triton 3.6 cannot compile some
)

GPUS = {gpu.name: gpu for gpu in (A100, H200, B200, MI300X)}
"""Architecture -> Gpu. H200 stands for the H100, too."""
CUDA_ARCHITECTURES = tuple(gpu.name for gpu in GPUS.values() if gpu.device == "cuda")
"""Those that kernels can be timed on."""


def gpu_of(arch: str) -> Gpu:
    """The machine of a GPU architecture; KeyError with the known names for another one."""
    if arch not in GPUS:
        raise KeyError(f"no GPU architecture {arch!r}; known are {', '.join(GPUS)}")
    return GPUS[arch]
