"""Hand-made bundles for the tests of servers; no torch.

spin(x: f32[n, 4]) -> y = x * factor, n from 0 to 64 but not 13. Without states. Each row takes about x[row, 3]
milliseconds, and a row that starts with -1 is refused by the kernel (an assertion of the model).
loop(turns: i64[]) -> i: counts from 0 to `turns` in a loop of the plan.
total(x: f32[n, m]) -> y[m]: the sums of the columns; any n and m.
types(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, bool: all [2, 3]; s: f32[]) -> the same, copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import sample

from hardtack.codegen.backends.cpp.compiler import zig_compiler
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.constants import ConstantData
from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.graph import Guard
from hardtack.codegen.ir.plan import BufferParam, Copy, Fill, KernelRecord, Launch, Plan, PlanSym, Value, While
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.data import CPUS
from hardtack.codegen.package.content import BundleContent, EntryContent, TargetContent, TensorContent
from hardtack.codegen.package.writer import write_bundle

TARGET = "x86-64-v3"
SPIN = """
#include <hardtack/kernel_abi.h>
extern "C" int32_t k_spin(const HtKernelArgs* args) {
  const float* x = static_cast<const float*>(args->buffers[0]);
  const float* factor = static_cast<const float*>(args->buffers[1]);
  float* y = static_cast<float*>(args->buffers[2]);
  volatile int64_t turns = 0;
  for (int64_t i = 0; i < args->ints[0]; ++i) {
    if (x[4 * i] == -1.0f) return HT_KERNEL_ASSERT;
    for (int64_t left = static_cast<int64_t>(x[4 * i + 3] * 2000000); left > 0; --left) turns = turns + 1;
    for (int64_t j = 4 * i; j < 4 * i + 4; ++j) y[j] = x[j] * *factor;
  }
  return HT_KERNEL_OK;
}
"""
LESS = """
#include <hardtack/kernel_abi.h>
extern "C" int32_t k_less(const HtKernelArgs* args) {
  *static_cast<bool*>(args->buffers[2]) =
      *static_cast<const int64_t*>(args->buffers[0]) < *static_cast<const int64_t*>(args->buffers[1]);
  return HT_KERNEL_OK;
}
"""
NEXT = """
#include <hardtack/kernel_abi.h>
extern "C" int32_t k_next(const HtKernelArgs* args) {
  *static_cast<int64_t*>(args->buffers[0]) += 1;
  return HT_KERNEL_OK;
}
"""
SUM = """
#include <hardtack/kernel_abi.h>
extern "C" int32_t k_sum(const HtKernelArgs* args) {
  const float* x = static_cast<const float*>(args->buffers[0]);
  float* y = static_cast<float*>(args->buffers[1]);
  const int64_t n = args->ints[0], m = args->ints[1];
  for (int64_t j = 0; j < m; ++j) y[j] = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) y[j] += x[i * m + j];
  return HT_KERNEL_OK;
}
"""
SOURCES = {"k_sum": SUM, "k_spin": SPIN, "k_scale": sample.SCALE, "k_less": LESS, "k_next": NEXT}
TYPES = tuple(t for t in DType if not t.is_float8)
NO_KWARGS = {"kind": "dict", "keys": [], "items": []}


@cache
def _library(*units: str) -> bytes:
    sources = [Unit(unit, SOURCES[unit]) for unit in units]
    return compile_library(sources, CPUS[TARGET], zig_compiler(), cache=KernelCache())


def _content(
    plan: Plan, entry: EntryContent, units: tuple[str, ...], constants: tuple[tuple[str, ConstantData], ...]
) -> BundleContent:
    name = f"cpu:{TARGET}"
    return BundleContent(
        entries=(entry,),
        targets=(TargetContent(name, "cpu", CPUS[TARGET].features, _library(*units)),),
        plans={(entry.name, name): plan},
        constants=constants,
        states=(),
        producer={"hardtack": "0.1.0", "compiler": "none"},
        numerics={"fp_contract": "off"},
        debug={},
        parameters={},
        recipes={},
    )


def spin(factor: float = 2.0) -> BundleContent:
    """The bundle `spin`; another factor makes another bundle of the same contract."""
    n, one, four, zero = sym("n", 0, 64), const(1), const(4), const(0)
    f32 = DType.F32
    values = (
        Value("x", f32, (n, four), (four, one), ("input", 0)),
        Value("factor", f32, (), (), ("constant", "factor")),
        Value("y", f32, (n, four), (four, one), ("output", 0)),
    )
    kernel = KernelRecord("k_spin", (BufferParam(f32, "read"), BufferParam(f32, "read"), BufferParam(f32, "write")), 1)
    body = (Launch("k_spin", ("x", "factor", "y"), (n,), zero, zero, sample.ORIGIN),)
    kernels = (sample.declared(kernel, (n * 4, one, n * 4), *body),)
    guard = Guard("ne", n, const(13), "n must not be 13")
    plan = Plan("forward", f"cpu:{TARGET}", (PlanSym(n, 0, 0),), (guard,), values, ("x",), ("y",), kernels, body, zero)
    matrix = {"dtype": f32, "shape": (n, four), "strides": (four, one)}
    entry = EntryContent(
        name="forward",
        syms=(n,),
        inputs=(TensorContent("x", **matrix),),  # type: ignore[arg-type]
        outputs=(TensorContent("y", **matrix),),  # type: ignore[arg-type]
        in_tree={"kind": "tuple", "items": [{"kind": "tuple", "items": [sample.LEAF]}, NO_KWARGS]},
        out_tree=sample.LEAF,
    )
    return _content(plan, entry, ("k_spin",), (("factor", ConstantData(f32, np.array(factor, np.float32))),))


def loop() -> BundleContent:
    """The bundle `loop`."""
    i64, flag, zero = DType.I64, DType.BOOL, const(0)
    values = (
        Value("turns", i64, (), (), ("input", 0)),
        Value("i", i64, (), (), ("output", 0)),
        Value("go", flag, (), (), ("arena", zero)),
    )
    less = KernelRecord("k_less", (BufferParam(i64, "read"), BufferParam(i64, "read"), BufferParam(flag, "write")), 0)
    following = KernelRecord("k_next", (BufferParam(i64, "readwrite"),), 0)
    test = (Launch("k_less", ("i", "turns", "go"), (), zero, zero),)
    turn = (Launch("k_next", ("i",), (), zero, zero),)
    body = (Fill("i", 0), While(test, "go", turn))
    one = const(1)
    kernels = (sample.declared(less, (one, one, one), *test), sample.declared(following, (one,), *turn))
    plan = Plan("forward", f"cpu:{TARGET}", (), (), values, ("turns",), ("i",), kernels, body, const(64))
    entry = EntryContent(
        name="forward",
        syms=(),
        inputs=(TensorContent("turns", i64, (), ()),),
        outputs=(TensorContent("i", i64, (), ()),),
        in_tree={"kind": "tuple", "items": [{"kind": "tuple", "items": [sample.LEAF]}, NO_KWARGS]},
        out_tree=sample.LEAF,
    )
    return _content(plan, entry, ("k_less", "k_next"), ())


def total() -> BundleContent:
    """The bundle `total`."""
    n, m, one, zero, f32 = sym("n", 0), sym("m", 1), const(1), const(0), DType.F32
    values = (
        Value("x", f32, (n, m), (m, one), ("input", 0)),
        Value("y", f32, (m,), (one,), ("output", 0)),
    )
    kernel = KernelRecord("k_sum", (BufferParam(f32, "read"), BufferParam(f32, "write")), 2)
    body = (Launch("k_sum", ("x", "y"), (n, m), zero, zero),)
    kernels = (sample.declared(kernel, (n * m, m), *body),)
    syms = (PlanSym(n, 0, 0), PlanSym(m, 0, 1))
    plan = Plan("forward", f"cpu:{TARGET}", syms, (), values, ("x",), ("y",), kernels, body, zero)
    entry = EntryContent(
        name="forward",
        syms=(n, m),
        inputs=(TensorContent("x", f32, (n, m), (m, one)),),
        outputs=(TensorContent("y", f32, (m,), (one,)),),
        in_tree={"kind": "tuple", "items": [{"kind": "tuple", "items": [sample.LEAF]}, NO_KWARGS]},
        out_tree=sample.LEAF,
    )
    return _content(plan, entry, ("k_sum",), ())


def types(dtypes: Sequence[DType] = TYPES) -> BundleContent:
    """The bundle `types`: one input and output of each element type, and a tensor of rank 0."""
    two, three, one, zero = const(2), const(3), const(1), const(0)
    shapes = {**{t.value: (t, (two, three), (three, one)) for t in dtypes}, "s": (DType.F32, (), ())}
    values = [
        Value(f"x_{n}", t, shape, strides, ("input", i)) for i, (n, (t, shape, strides)) in enumerate(shapes.items())
    ]
    values += [
        Value(f"y_{n}", t, shape, strides, ("output", i)) for i, (n, (t, shape, strides)) in enumerate(shapes.items())
    ]
    ins, outs = tuple(f"x_{n}" for n in shapes), tuple(f"y_{n}" for n in shapes)
    body = tuple(Copy(x, y) for x, y in zip(ins, outs, strict=True))
    plan = Plan("forward", f"cpu:{TARGET}", (), (), tuple(values), ins, outs, (), body, zero)
    leaves = [{"kind": "leaf", "index": i} for i in range(len(ins))]
    entry = EntryContent(
        name="forward",
        syms=(),
        inputs=tuple(TensorContent(f"x_{n}", *v) for n, v in shapes.items()),
        outputs=tuple(TensorContent(f"y_{n}", *v) for n, v in shapes.items()),
        in_tree={"kind": "tuple", "items": [{"kind": "tuple", "items": leaves}, NO_KWARGS]},
        out_tree={"kind": "tuple", "items": leaves},
    )
    return _content(plan, entry, ("k_scale",), ())


def put(content: BundleContent, path: Path) -> Path:
    """Writes the bundle as a replacement does: beside its place first, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    write_bundle(fresh, content)
    fresh.rename(path)
    return path
