"""Machine: the frozen data of one target. Stages take it as an argument; data.py has those that there are.

A Cpu is an instruction set, which many processors have; a Gpu an architecture, with the figures of the card that it is
mostly found in.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_THREADS = 1024
"""Of one block, on every GPU."""


class TargetError(ValueError):
    """A target that does not exist, or that this machine cannot give."""


@dataclass(frozen=True)
class Cpu:
    """One instruction set to compile for.

    triple: clang's -target; flags_clang, flags_gcc select the instruction set. vector_nbytes: the width of the
    templates' vectors. features: what a CPU must have to run the result, by the names that the runtime checks.
    micro_rows: of the tallest microkernel of a product: its accumulators, two vectors a row, and operands fill the
    vector registers. cores: over which a run is spread with profit. first_level_nbytes, second_level_nbytes: of
    a core's own caches for data.
    wake_points, wake_products: elements of a loop, and multiply-adds from cache, that a core does while another one is
    woken. layout: how kernels find packed weights, and which templates there are. CPUs of one layout are served by one
    plan and one text of each kernel; those of another are compiled apart, and what both pack alike is stored once.
    int8_rate: products of int8 in the time of one of float32, by int8.h; seven_bit_rate: those of codes from 0 to 127,
    which are not staged where they take less than others.
    level: of "native" the CPU whose instructions it has at least; of others empty.
    """

    name: str
    triple: str
    vector_nbytes: int
    features: tuple[str, ...]
    flags_clang: tuple[str, ...]
    flags_gcc: tuple[str, ...]
    micro_rows: int
    cores: int
    first_level_nbytes: int
    second_level_nbytes: int
    wake_points: int
    wake_products: int
    int8_rate: float
    seven_bit_rate: float
    layout: str = "panels"
    level: str = ""

    @property
    def device(self) -> str:
        """The kind of device."""
        return "cpu"

    @property
    def target(self) -> str:
        """The target's name in a bundle, such as "cpu:x86-64-v4"."""
        return f"cpu:{self.name}"

    @property
    def arch(self) -> str:
        """The machine part of the triple: "x86_64" or "aarch64"."""
        return self.triple.split("-", 1)[0]


@dataclass(frozen=True)
class TensorRates:
    """Operations a second of one multiprocessor's tensor cores, by the operands' dtype: half for F16 and BF16, tf32 for
    F32 of which they read 19 bits; of bytes twice as many as of half types. float8: whether they take F8E4M3 and
    F8E5M2.
    """

    half: float
    tf32: float
    float8: bool

    def of_bits(self, bits: int) -> float:
        """The rate of operands of 8 or 16 bits."""
        return self.half * 16 / bits


@dataclass(frozen=True)
class WarpgroupRates:
    """Products of four warps together (wgmma), 64 rows by 32 bytes of K at a time.

    columns: results of a row that a cycle adds to. read_cycles, read_cycles_a_column: what reading the operands from
    shared memory takes, A again for each step.
    """

    columns: float
    read_cycles: float
    read_cycles_a_column: float

    def cycles(self, columns: int) -> float:
        """Of one step for a tile of so many columns: bound by products, or by what they read."""
        return max(columns / self.columns, self.read_cycles + columns * self.read_cycles_a_column)


@dataclass(frozen=True)
class Waits:
    """Seconds in which a GPU does nothing for a kernel.

    product_floor_s, nest_floor_s: of the smallest product and the smallest loop, launch included. launch_s: of a second
    kernel besides what it reads. fill_s: of a program besides its steps: until its first operands are there, and its
    last store; stream_fill_s: what bulk copies add to that. step_latency_s: from the request of a tile's operands to
    their arrival.
    """

    product_floor_s: float
    nest_floor_s: float
    launch_s: float
    fill_s: float
    stream_fill_s: float
    step_latency_s: float


@dataclass(frozen=True)
class Gpu:
    """A GPU architecture, for the device "cuda" or "hip". Rates are rough: they only rank choices.

    multiprocessors: streaming multiprocessors (SMs). shared_nbytes: shared memory of one block. tensor_flops: of
    tensor cores; f32_flops: of ordinary ones, per second and multiprocessor. bandwidth: bytes a second of the
    memory. transfer, store_rate: bytes a second that one multiprocessor gets out of the second-level cache, and
    that it stores while all others do, too. clock_hz: cycles a second. warpgroup: None where products are of single
    warps. dependent_launch: a kernel may begin beside the one in front of it. warp_size: threads of a warp.
    registers, program_nbytes, most_programs: what decides how many programs a multiprocessor holds beside each
    other: its 32-bit registers, shared memory that each program takes for itself, and the most that are worth
    counting. splits_f32: f32 products run on tensor cores, each operand as the sum of two TF32 numbers.
    pipelines_attention: tiles of keys are loaded ahead. assembler: Triton's program that makes machine code of its
    text.
    """

    name: str
    multiprocessors: int
    shared_nbytes: int
    tensor_flops: TensorRates
    f32_flops: float
    bandwidth: float
    transfer: float
    store_rate: float
    clock_hz: float
    warpgroup: WarpgroupRates | None
    dependent_launch: bool
    registers: int
    program_nbytes: int
    most_programs: int
    waits: Waits
    device: str = "cuda"
    warp_size: int = 32
    splits_f32: bool = True
    pipelines_attention: bool = True
    assembler: str = "ptxas"

    @property
    def target(self) -> str:
        """The target's name, such as "cuda:sm_90"."""
        return f"{self.device}:{self.name}"

    @property
    def most_warps(self) -> int:
        """Of one block."""
        return MOST_THREADS // self.warp_size


Machine = Cpu | Gpu
