"""The models of fuzz_http: make_models.py FOLDER writes m.pkg and s.pkg. They copy, and call no kernel.

m: `forward`, x: f32[n, 4] -> y, n up to 64 and not 13, in batches; `types`, a tensor of each element type -> the same.
s: x: f32[4] -> before, which is the state, and the state becomes x.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hardtack.codegen.backends.cpp.compiler import zig_compiler
from hardtack.codegen.backends.cpp.toolchain import Unit, compile_library
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.expr import Expr, const, sym
from hardtack.codegen.ir.graph import Guard
from hardtack.codegen.ir.plan import Copy, Plan, PlanSym, Value
from hardtack.codegen.ir.types import DType
from hardtack.codegen.machine.data import CPUS
from hardtack.codegen.package.content import BundleContent, EntryContent, StateContent, TargetContent, TensorContent
from hardtack.codegen.package.writer import write_bundle

TARGETS = ("x86-64-v3", "aarch64")
KERNEL = """
#include <hardtack/kernel_abi.h>
extern "C" int32_t k_none(const HtKernelArgs*) { return HT_KERNEL_OK; }
"""
TYPES = (DType.F32, DType.F64, DType.F16, DType.BF16, DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.BOOL)
N, ZERO, ONE, TWO, FOUR = sym("n", 0, 64), const(0), const(1), const(2), const(4)
Tensor = tuple[str, DType, tuple[Expr, ...], tuple[Expr, ...]]


def entry(name: str, inputs: list[Tensor], outputs: list[Tensor]) -> EntryContent:
    leaves = [[{"kind": "leaf", "index": i} for i in range(len(tensors))] for tensors in (inputs, outputs)]
    no_kwargs = {"kind": "dict", "keys": [], "items": []}
    return EntryContent(
        name=name,
        syms=(N,) if N in inputs[0][2] else (),
        inputs=tuple(TensorContent(*tensor) for tensor in inputs),
        outputs=tuple(TensorContent(*tensor) for tensor in outputs),
        in_tree={"kind": "tuple", "items": [{"kind": "tuple", "items": leaves[0]}, no_kwargs]},
        out_tree={"kind": "tuple", "items": leaves[1]},
    )


def copies(made: EntryContent, target: str, *more: Value, body: tuple[Copy, ...] = ()) -> Plan:
    """The plan of an entry that copies each input to the output of its place, or does `body`."""
    ins = tuple(tensor.name for tensor in made.inputs)
    outs = tuple(tensor.name for tensor in made.outputs)
    values = [Value(t.name, t.dtype, t.shape, t.strides, ("input", i)) for i, t in enumerate(made.inputs)]
    values += [Value(t.name, t.dtype, t.shape, t.strides, ("output", i)) for i, t in enumerate(made.outputs)]
    syms = tuple(PlanSym(n, 0, 0) for n in made.syms)
    guards = tuple(Guard("ne", n, const(13), "n must not be 13") for n in made.syms)
    steps = body or tuple(Copy(x, y) for x, y in zip(ins, outs, strict=True))
    return Plan(made.name, f"cpu:{target}", syms, guards, (*values, *more), ins, outs, (), steps, ZERO)


def library(target: str) -> bytes:
    """For a CPU there is one, though nothing of it is called."""
    return compile_library([Unit("k_none", KERNEL)], CPUS[target], zig_compiler(), cache=KernelCache())


def content(
    *made: EntryContent,
    states: tuple[StateContent, ...] = (),
    more: tuple[Value, ...] = (),
    body: tuple[Copy, ...] = (),
) -> BundleContent:
    plans = {(one.name, f"cpu:{t}"): copies(one, t, *more, body=body) for one in made for t in TARGETS}
    return BundleContent(
        entries=made,
        targets=tuple(TargetContent(f"cpu:{t}", "cpu", CPUS[t].features, library(t)) for t in TARGETS),
        plans=plans,
        constants=(),
        states=states,
        producer={"hardtack": "0.1.0"},
        numerics={"fp_contract": "off"},
    )


def models() -> dict[str, BundleContent]:
    """By the names that they are served under."""
    rows = entry("forward", [("x", DType.F32, (N, FOUR), (FOUR, ONE))], [("y", DType.F32, (N, FOUR), (FOUR, ONE))])
    kinds = [(t.value, t, (TWO,), (ONE,)) for t in TYPES]
    types = entry("types", [("x_" + n, *v) for n, *v in kinds], [("y_" + n, *v) for n, *v in kinds])  # type: ignore[misc]
    vector = (DType.F32, (FOUR,), (ONE,))
    follow = entry("forward", [("x", *vector)], [("before", *vector)])
    last, steps = Value("last", *vector, ("state", "last")), (Copy("last", "before"), Copy("x", "last"))
    state = StateContent("last", DType.F32, (4,), None)
    return {"m": content(rows, types), "s": content(follow, states=(state,), more=(last,), body=steps)}


def write(folder: Path) -> None:
    """Writes all models, one file each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in models().items():
        write_bundle(folder / f"{name}.pkg", made)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(Path(sys.argv[1]))
