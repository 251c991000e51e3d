"""A small sound bundle made by hand: two entry points, a symbol, a state, weights and two kernels.

forward(x: f32[n, 4]) -> y = (x * scale) * scale, calls = how many times forward ran before this run
copy(x: f32[3]) -> x
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from hardtack.codegen.backends.cpp.compiler import zig_compiler
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.constants import ConstantData, ModuleTensor, Recipe, View
from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.graph import Guard, Origin
from hardtack.codegen.ir.plan import BufferParam, Call, Copy, KernelRecord, Launch, Plan, PlanSym, Value, span
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.data import CPUS
from hardtack.codegen.package.content import BundleContent, EntryContent, StateContent, TargetContent, TensorContent

SCALE = """
#include <hardtack/kernel_abi.h>
extern "C" int32_t k_scale(const HtKernelArgs* args) {
  const float* x = static_cast<const float*>(args->buffers[0]);
  const float* w = static_cast<const float*>(args->buffers[1]);
  float* y = static_cast<float*>(args->buffers[2]);
  for (int64_t i = 0; i < args->ints[0]; ++i)
    for (int64_t j = 0; j < args->ints[1]; ++j) y[i * args->ints[1] + j] = x[i * args->ints[1] + j] * w[j];
  return HT_KERNEL_OK;
}
"""
COUNT = """
#include <hardtack/kernel_abi.h>
extern "C" int32_t k_count(const HtKernelArgs* args) {
  int64_t* calls = static_cast<int64_t*>(args->buffers[0]);
  *static_cast<int64_t*>(args->buffers[1]) = *calls;
  if (*calls >= 1000000) return HT_KERNEL_ASSERT;
  *calls += 1;
  return HT_KERNEL_OK;
}
"""
TARGETS = ("x86-64-v4", "x86-64-v3", "aarch64")
N = sym("n", 0, 64)
ZERO, ONE, FOUR = const(0), const(1), const(4)
LEAF = {"kind": "leaf", "index": 0}
ORIGIN = Origin("model.py", 12, "y = x * self.scale * self.scale", "aten.mul.Tensor", "")


@cache
def library(target: str) -> bytes:
    """The sample's kernels, compiled for `target`."""
    units = [Unit("k_scale", SCALE), Unit("k_count", COUNT)]
    return compile_library(units, CPUS[target], zig_compiler(), cache=KernelCache())


def declared(kernel: KernelRecord, numels: Sequence[Expr], *launches: Launch) -> KernelRecord:
    """The kernel with a call for each launch: it accesses so many elements of each buffer, and fills what it writes."""
    accesses = tuple((span(n, p.access == "write"),) for n, p in zip(numels, kernel.buffers, strict=True))
    calls = [Call(i.ints, accesses, i.shared, i.per_worker, i.grid) for i in launches]
    return replace(kernel, calls=tuple(dict.fromkeys(calls)))


def forward_plan(target: str) -> Plan:
    """The plan of the entry point `forward`."""
    shape, strides = (N, FOUR), (FOUR, ONE)
    f32, i64 = DType.F32, DType.I64
    values = (
        Value("x", f32, shape, strides, ("input", 0)),
        Value("scale", f32, (FOUR,), (ONE,), ("constant", "layer.scale")),
        Value("calls", i64, (), (), ("state", "calls")),
        Value("t", f32, shape, strides, ("arena", ZERO)),
        Value("y", f32, shape, strides, ("output", 0)),
        Value("before", i64, (), (), ("output", 1)),
    )
    read, write = BufferParam(f32, "read"), BufferParam(f32, "write")
    body = (
        Launch("k_scale", ("x", "scale", "t"), (N, FOUR), ZERO, ZERO, ORIGIN),
        Launch("k_scale", ("t", "scale", "y"), (N, FOUR), ZERO, ZERO, ORIGIN),
        Launch("k_count", ("calls", "before"), (), ZERO, ZERO),
    )
    counts = KernelRecord("k_count", (BufferParam(i64, "readwrite"), BufferParam(i64, "write")), 0)
    kernels = (
        declared(KernelRecord("k_scale", (read, read, write), 2), (N * 4, FOUR, N * 4), *body[:2]),
        declared(counts, (ONE, ONE), body[2]),
    )
    guard = Guard("ne", N, const(13), "n must not be 13")
    syms = (PlanSym(N, 0, 0),)
    return Plan("forward", target, syms, (guard,), values, ("x",), ("y", "before"), kernels, body, const(64 * 16 + 64))


def copy_plan(target: str) -> Plan:
    """The plan of the entry point `copy`."""
    values = tuple(
        Value(name, DType.F32, (const(3),), (ONE,), (kind, 0)) for name, kind in (("x", "input"), ("y", "output"))
    )
    return Plan("copy", target, (), (), values, ("x",), ("y",), (), (Copy("x", "y"),), ZERO)


PLANS = {"forward": forward_plan, "copy": copy_plan}


def content(targets: tuple[str, ...] = TARGETS) -> BundleContent:
    """The sample bundle for some targets, best first."""
    f32, i64 = DType.F32, DType.I64
    matrix = {"dtype": f32, "shape": (N, FOUR), "strides": (FOUR, ONE)}
    no_kwargs = {"kind": "dict", "keys": [], "items": []}
    in_tree = {"kind": "tuple", "items": [{"kind": "tuple", "items": [LEAF]}, no_kwargs]}
    forward_out = {"kind": "dict", "keys": ["y", "calls"], "items": [LEAF, {"kind": "leaf", "index": 1}]}
    vector = TensorContent("x", f32, (const(3),), (ONE,))
    forward = EntryContent(
        name="forward",
        syms=(N,),
        inputs=(TensorContent("x", **matrix),),  # type: ignore[arg-type]
        outputs=(TensorContent("y", **matrix), TensorContent("calls", i64, (), ())),  # type: ignore[arg-type]
        in_tree=in_tree,
        out_tree=forward_out,
    )
    copy = EntryContent("copy", (), (vector,), (TensorContent("y", f32, (const(3),), (ONE,)),), in_tree, LEAF)
    scale = np.array([1.0, 2.0, 3.0, 0.5], np.float32)
    return BundleContent(
        entries=(forward, copy),
        targets=tuple(TargetContent(f"cpu:{t}", "cpu", CPUS[t].features, library(t)) for t in targets),
        plans={(e, f"cpu:{t}"): plan(f"cpu:{t}") for t in targets for e, plan in PLANS.items()},
        constants=(
            ("layer.scale", ConstantData(f32, scale)),
            ("layer.tied", ConstantData(f32, scale.reshape(2, 2).copy())),
            ("start", ConstantData(i64, np.array(5, np.int64))),
            ("tail", ConstantData(f32, np.array([1.0, 2.0, 3.0, 0.5, 7.0, 8.0], np.float32))),
        ),
        states=(StateContent("calls", i64, (), "start"),),
        producer={"hardtack": "0.1.0", "compiler": "none"},
        numerics={"fp_contract": "off"},
        debug={"debug/note.txt": b"made by hand\n"},
        parameters={"layer.scale": ModuleTensor(f32, (4,)), "layer.wide": ModuleTensor(f32, (4, 2), ("layer.other",))},
        recipes={
            "layer.scale": (Recipe("layer.scale"),),
            "layer.tied": (Recipe("layer.wide", (View(0, (2, 4), (1, 2)), View(4, (2, 2), (2, 1)))),),
            "tail": (
                Recipe("layer.scale", into=View(0, (4,), (1,))),
                Recipe("layer.wide", (View(0, (2,), (2,)),), into=View(4, (2,), (1,))),
            ),
        },
    )
