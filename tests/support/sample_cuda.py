"""A small sound bundle for cuda:sm_90, made by hand: forward(x: f32[n, 4]) -> y = (x * scale) * scale.

The kernel gets y, the constant and n as they are, and x through a tensor map. Its code cannot run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from cubin import I32, I64, MAP, POINTER, cubin
from sample import declared

from hardtack.codegen.ir.constants import ConstantData
from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.graph import Origin
from hardtack.codegen.ir.plan import (
    BufferParam,
    GpuKernel,
    KernelRecord,
    Launch,
    MapSource,
    Plan,
    PlanSym,
    TensorMap,
    Value,
)
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.content import BundleContent, EntryContent, TargetContent, TensorContent, kernel_member

TARGET = "cuda:sm_90"
N = sym("n", 0, 64)
ZERO, ONE, FOUR = const(0), const(1), const(4)
ORIGIN = Origin("model.py", 12, "y = x * self.scale * self.scale", "aten.mul.Tensor", "")
CODE = cubin("scale_kernel", (MAP, I32, I64, POINTER, POINTER, I32, POINTER, I32, POINTER, POINTER))
ARGS = (
    ("map", 0),
    ("map_shape", 0, 0),
    ("map_stride", 0, 0),
    ("buffer", 1),
    ("buffer", 2),
    ("int", 0, "i32"),
    ("status",),
    ("site",),
    ("scratch",),
    ("null",),
)


def forward_plan() -> Plan:
    """The plan of the entry point `forward`."""
    f32, shape, strides = DType.F32, (N, FOUR), (FOUR, ONE)
    values = (
        Value("x", f32, shape, strides, ("input", 0)),
        Value("scale", f32, (FOUR,), (ONE,), ("constant", "layer.scale")),
        Value("t", f32, shape, strides, ("arena", ZERO)),
        Value("y", f32, shape, strides, ("output", 0)),
    )
    read, write = BufferParam(f32, "read"), BufferParam(f32, "write")
    gpu = GpuKernel(
        member=kernel_member(CODE),
        function="scale_kernel",
        threads=128,
        shared_nbytes=65536,
        args=ARGS,
        cluster=2,
        dependent=True,
        scratch_nbytes=128,
        scratch_align=128,
        maps=(TensorMap((8, 4), 0, f32),),
    )
    kernel = KernelRecord("k_scale", (read, read, write), 1, gpu)

    def launch(source: str, target: str) -> Launch:
        maps = (MapSource(0, ZERO, (N, FOUR), (FOUR, ONE)),)
        return Launch("k_scale", (source, "scale", target), (N,), origin=ORIGIN, grid=(N, ONE, ONE), maps=maps)

    body = (launch("x", "t"), launch("t", "y"))
    kernel = declared(kernel, (N * 4, FOUR, N * 4), *body)
    return Plan("forward", TARGET, (PlanSym(N, 0, 0),), (), values, ("x",), ("y",), (kernel,), body, const(64 * 16))


def content() -> BundleContent:
    """The sample bundle."""
    leaf = {"kind": "leaf", "index": 0}
    no_kwargs = {"kind": "dict", "keys": [], "items": []}
    in_tree = {"kind": "tuple", "items": [{"kind": "tuple", "items": [leaf]}, no_kwargs]}
    x, y = (TensorContent(name, DType.F32, (N, FOUR), (FOUR, ONE)) for name in ("x", "y"))
    return BundleContent(
        entries=(EntryContent("forward", (N,), (x,), (y,), in_tree, leaf),),
        targets=(TargetContent(TARGET, "cuda", ("sm_90",), None),),
        plans={("forward", TARGET): forward_plan()},
        constants=(("layer.scale", ConstantData(DType.F32, np.array([1.0, 2.0, 3.0, 0.5], np.float32))),),
        kernels={kernel_member(CODE): CODE},
    )


def with_constants(arrays: Mapping[str, np.ndarray[Any, Any]]) -> BundleContent:
    """forward(x: f32[4]) -> y, by one kernel that reads all of these f32 constants, in this order, and x."""
    base = content()
    code = cubin("read_all", (POINTER,) * (len(arrays) + 4))
    values = [Value(n, DType.F32, tuple(map(const, a.shape)), _strides(a), ("constant", n)) for n, a in arrays.items()]
    values += [Value(n, DType.F32, (FOUR,), (ONE,), (kind, 0)) for n, kind in (("x", "input"), ("y", "output"))]
    names = tuple(v.name for v in values)
    params = tuple(BufferParam(DType.F32, "write" if n == "y" else "read") for n in names)
    args = (*(("buffer", k) for k in range(len(names))), ("scratch",), ("null",))
    gpu = GpuKernel(kernel_member(code), "read_all", 32, 0, args)
    launch = Launch("k_read", names, (), grid=(ONE, ONE, ONE))
    numels = (*(const(a.size) for a in arrays.values()), FOUR, FOUR)
    kernels = (declared(KernelRecord("k_read", params, 0, gpu), numels, launch),)
    plan = Plan("forward", TARGET, (), (), tuple(values), ("x",), ("y",), kernels, (launch,), ZERO)
    x, y = (TensorContent(name, DType.F32, (FOUR,), (ONE,)) for name in ("x", "y"))
    (entry,) = base.entries
    return BundleContent(
        entries=(EntryContent("forward", (), (x,), (y,), entry.in_tree, entry.out_tree),),
        targets=base.targets,
        plans={("forward", TARGET): plan},
        constants=tuple((n, ConstantData(DType.F32, a)) for n, a in arrays.items()),
        kernels={kernel_member(code): code},
    )


def _strides(array: np.ndarray[Any, Any]) -> tuple[Expr, ...]:
    """Row-major, as for sizes of at least 1."""
    return tuple(const(math.prod(max(1, n) for n in array.shape[d + 1 :])) for d in range(array.ndim))
