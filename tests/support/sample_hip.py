"""A small sound bundle for hip:gfx942, made by hand: forward(x: f32[n, 4]) -> y = x * scale. Its code cannot run."""

from __future__ import annotations

from dataclasses import replace

import sample_cuda
from hsaco import hsaco
from sample import declared
from sample_cuda import FOUR, ONE, ORIGIN, N

from hardtack.codegen.ir.plan import BufferParam, GpuKernel, KernelRecord, Launch, Plan, PlanSym, Value
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.content import BundleContent, TargetContent, kernel_member

TARGET = "hip:gfx942"
CODE = hsaco("scale_kernel")


def forward_plan() -> Plan:
    """The plan of the entry point `forward`."""
    f32, shape, strides = DType.F32, (N, FOUR), (FOUR, ONE)
    values = (
        Value("x", f32, shape, strides, ("input", 0)),
        Value("scale", f32, (FOUR,), (ONE,), ("constant", "layer.scale")),
        Value("y", f32, shape, strides, ("output", 0)),
    )
    read, write = BufferParam(f32, "read"), BufferParam(f32, "write")
    gpu = GpuKernel(
        member=kernel_member(CODE, "hip"),
        function="scale_kernel",
        threads=256,
        shared_nbytes=65536,
        args=(("buffer", 0), ("buffer", 1), ("buffer", 2), ("int", 0, "i32"), ("scratch",), ("null",)),
    )
    kernel = KernelRecord("k_scale", (read, read, write), 1, gpu)
    launch = Launch("k_scale", ("x", "scale", "y"), (N,), origin=ORIGIN, grid=(N, ONE, ONE))
    kernel = declared(kernel, (N * 4, FOUR, N * 4), launch)
    return Plan("forward", TARGET, (PlanSym(N, 0, 0),), (), values, ("x",), ("y",), (kernel,), (launch,), ONE * 0)


def content() -> BundleContent:
    """The sample bundle."""
    return replace(
        sample_cuda.content(),
        targets=(TargetContent(TARGET, "hip", ("gfx942",), None),),
        plans={("forward", TARGET): forward_plan()},
        kernels={kernel_member(CODE, "hip"): CODE},
    )
