"""A compiled GPU plan executed on the CPU: launches go through Triton's interpreter, each access is checked, memory is
numpy with guards."""

from __future__ import annotations

import importlib.util
import itertools
import re
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hardtack.codegen.backends.triton.helpers_codes import CODE_HELPERS, FLOAT8_HELPERS
from hardtack.codegen.backends.triton.helpers_fragments import FRAGMENT_HELPERS, MMA_HELPERS
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.ir.kernel_code import TritonType
from hardtack.codegen.ir.plan import If, Instr, Launch, While
from tests.codegen.runner import Array, KernelFailed, Runner
from tests.triton.accesses import checked
from tests.triton.interpreter import interpreter, tl

LIBDEVICE = "from triton.language.extra.cuda import libdevice"
_folder = tempfile.TemporaryDirectory(prefix="hardtack_simulate_")
_counter = itertools.count()


def tensor_of(data: Any, scalar: Any) -> Any:
    """Numbers as a tensor of the interpreter."""
    data = np.asarray(data)
    kind = tl.block_type(scalar, list(data.shape)) if data.shape else scalar
    return tl.core.tensor(interpreter.TensorHandle(data if data.shape else data.reshape(1), scalar), kind)


def _elementwise(f: Callable[..., Any]) -> Callable[..., Any]:
    """A libdevice function through torch, in f64."""

    def call(*args: Any) -> Any:
        first = next(a for a in args if isinstance(a, tl.core.tensor))
        arrays = [a.handle.data if isinstance(a, tl.core.tensor) else np.asarray(a) for a in args]
        wide = [torch.from_numpy(np.asarray(a, np.float64).copy()) for a in arrays]
        found = f(*wide).numpy().astype(first.handle.data.dtype)
        out = tensor_of(found, first.dtype.scalar)
        return out if found.size > 1 or first.type.is_block() else tl.core.tensor(out.handle, first.dtype.scalar)

    return call


def _shim() -> types.SimpleNamespace:
    names = "trunc expm1 log10 log1p tan asin acos atan sinh cosh tanh asinh acosh atanh erfc erfinv lgamma atan2"
    functions = {n: _elementwise(getattr(torch, n)) for n in names.split()}
    functions |= {n: _elementwise(getattr(torch, n)) for n in ("copysign", "pow", "fmod")}
    functions["nearbyint"] = _elementwise(torch.round)
    return types.SimpleNamespace(**functions)


def _halving(self: Any, inputs: Any) -> list[Any]:
    """A reduction by a function of our own, halves at a time; the interpreter does one element at a time."""
    axis = 0 if self.axis is None else self.axis
    rank = inputs[0].handle.data.ndim
    parts = [x.handle.data.reshape(-1) if self.axis is None else x.handle.data for x in inputs]
    while parts[0].shape[axis] > 1:
        half = parts[0].shape[axis] // 2
        low = [np.take(p, range(half), axis) for p in parts]
        high = [np.take(p, range(half, 2 * half), axis) for p in parts]
        args = [tensor_of(p, x.dtype.scalar) for p, x in zip(low + high, [*inputs, *inputs], strict=True)]
        found = self.combine_fn.fn(*args)
        parts = [t.handle.data for t in (found if isinstance(found, tuple) else (found,))]
    out = []
    for p, x in zip(parts, inputs, strict=True):
        data = p.reshape((1,) * rank) if self.axis is None and self.keep_dims else p
        data = data.reshape(()).item() if self.axis is None and not self.keep_dims else data
        data = data if self.axis is None or self.keep_dims else np.squeeze(data, axis)
        out.append(self.to_tensor(data, x.dtype))
    return out


def _doubling(self: Any, inputs: Any) -> list[Any]:
    """A scan by a function of our own: over 1, 2, 4, ... elements up to each; the interpreter does one element at a
    time."""
    parts = [x.handle.data for x in inputs]
    length, step = parts[0].shape[self.axis], 1
    while step < length:
        before = [np.roll(p, step, self.axis) for p in parts]
        args = [tensor_of(p, x.dtype.scalar) for p, x in zip(before + parts, [*inputs, *inputs], strict=True)]
        found = self.combine_fn.fn(*args)
        joined = [t.handle.data for t in (found if isinstance(found, tuple) else (found,))]
        first = np.arange(length).reshape([-1 if d == self.axis else 1 for d in range(parts[0].ndim)]) < step
        parts = [np.where(first, p, j) for p, j in zip(parts, joined, strict=True)]
        step *= 2
    return [self.to_tensor(p, x.dtype) for p, x in zip(parts, inputs, strict=True)]


interpreter.ReduceOps.generic_reduce = _halving
interpreter.ScanOps.generic_scan = _doubling


def _portable(name: str) -> str:
    """A helper as all machines have it, with those that it calls."""
    known = CODE_HELPERS | FRAGMENT_HELPERS
    used, todo = [name], known[name]
    while more := [n for n in known if n not in used and re.search(rf"\b{n}\b", todo)]:
        used = [*more, *used]  # what a helper calls comes before it
        todo = "\n".join(known[n] for n in more)
    return "".join(known[n] for n in used)


def load_kernel(kernel: TritonKernel) -> Any:
    """The kernel's function, for the interpreter, with libdevice replaced: the interpreter has none."""
    number = next(_counter)
    text = kernel.text.replace(LIBDEVICE, "libdevice = None")
    text = re.sub(r'tl\.inline_asm_elementwise\("ex2[^)]*\)', "tl.exp2(y)", text)
    text = re.sub(r'tl\.inline_asm_elementwise\("mov[^)]*\)', "x", text)
    text = re.sub(r'tl\.inline_asm_elementwise\("rcp[^)]*\)', "(1.0 / x)", text)
    text = re.sub(r'tl\.inline_asm_elementwise\(\s*"\{ \.reg \.f32 t; neg[^)]*\)', "tl.fma(0.0 - a, b, x)", text)
    for name, instructions in {**FLOAT8_HELPERS, **MMA_HELPERS}.items():
        text = text.replace(instructions, _portable(name))
    for builtin in ("gdc_wait", "gdc_launch_dependents"):
        text = text.replace(f"tl.extra.cuda.{builtin}()", "pass")
    text = re.sub(r"tl\.extra\.cuda\.gdc_\w+\(\)", "pass", text)  # orders kernels, which run one by one here
    path = Path(_folder.name) / f"kernel_{number}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"hardtack_kernel_{number}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if LIBDEVICE in kernel.text:
        module.libdevice = _shim()  # type: ignore[attr-defined]
    return getattr(module, kernel.name)


def launches_of(body: Iterable[Instr]) -> Iterator[Launch]:
    """Every launch in order of the text, those in branches and loops included."""
    for i in body:
        if isinstance(i, Launch):
            yield i
        elif isinstance(i, If):
            yield from launches_of((*i.then, *i.orelse))
        elif isinstance(i, While):
            yield from launches_of((*i.cond_body, *i.body))


class Simulator(Runner):
    """A Runner whose kernels are Triton's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # each in memory of its own, as on a device
        self.constants = {n: a.copy() for n, a in self.constants.items()}

    def load(self) -> dict[str, object]:
        return {name: load_kernel(kernel) for name, kernel in self._details().items()}

    def _details(self) -> Mapping[str, TritonKernel]:
        found = {n: k.detail for n, k in self.compiled.kernels.items() if isinstance(k.detail, TritonKernel)}
        assert found.keys() == self.compiled.kernels.keys()
        return found

    def _launch(self, launch: Launch, arrays: Mapping[str, Array], number: Any) -> None:
        kernel = self._details()[launch.kernel]
        assert launch.grid is not None
        grid = tuple(number(e) for e in launch.grid)
        assert all(n >= 0 for n in grid)
        if 0 in grid:
            return
        status = np.zeros(1, np.int32)
        site = 1 + next(k for k, i in enumerate(launches_of(self.compiled.plan.body)) if i is launch)
        args: dict[str, Any] = {}
        for a in kernel.arguments:
            if a.role[0] == "buffer":
                args[a.name] = self._pointer(arrays[launch.buffers[int(str(a.role[1]))]], a.type)
            elif a.role[0] == "int":
                args[a.name] = number(launch.ints[int(str(a.role[1]))])
            elif a.role[0] == "map":
                args[a.name] = self._descriptor(launch, int(str(a.role[1])), a.type, arrays, number)
            elif a.role[0] == "status":
                args[a.name] = torch.from_numpy(status)
            else:
                assert a.role == ("site",), a.role
                args[a.name] = site
        ranges = [(a.ctypes.data, a.nbytes) for a in (*(arrays[b] for b in launch.buffers), status)]
        with np.errstate(all="ignore"), checked(ranges):
            self.kernels[launch.kernel][grid](**args, **constants(kernel))  # type: ignore[index]
        self.memory.check(launch.kernel)
        if status[0]:
            raise KernelFailed(f"{launch.kernel} returned {status[0] & 255} at launch {status[0] >> 8}")

    def _descriptor(self, launch: Launch, m: int, text: str, arrays: Mapping[str, Array], number: Any) -> Any:
        """A tensor map."""
        source = launch.maps[m]
        array = arrays[launch.buffers[source.buffer]].reshape(-1)[number(source.offset) :]
        shape, strides = ([number(e) for e in es] for es in (source.shape, source.strides))
        return descriptor(array.view(np.uint8), text, shape, strides)

    @staticmethod
    def _pointer(array: Array, text: str) -> torch.Tensor:
        """The memory of an array as the interpreter takes it, aligned as promised to kernels."""
        assert array.ctypes.data % 16 == 0 or array.size == 0
        # the interpreter tells buffers apart by address: one without elements has none that is another's
        flat = array.reshape(-1) if array.size else np.empty(0, array.dtype)
        return pointed(flat.view(np.uint8), text)


POINTED = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u1": torch.bool,
}


def pointed(memory: Array, text: str) -> torch.Tensor:
    """Bytes as the interpreter takes a pointer of this type, "*bf16", to them."""
    dtype = POINTED[text.removeprefix("*")]
    return torch.from_numpy(memory[: len(memory) // dtype.itemsize * dtype.itemsize]).view(dtype)


def constants(kernel: TritonKernel) -> dict[str, Any]:
    """The constexprs of a kernel, types of Triton among them; bools as numbers, which the interpreter can hold."""
    found = {n: tl.dtype(v.name) if isinstance(v, TritonType) else v for n, v in kernel.constexprs.items()}
    return {n: int(v) if isinstance(v, bool) else v for n, v in found.items()}


def descriptor(memory: Array, text: str, shape: list[int], strides: list[int]) -> Any:
    """Bytes as a tensor map of the type "tensordesc<bf16[128, 64]>"."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    element, _, block = text.removeprefix("tensordesc<").removesuffix("]>").partition("[")
    return TensorDescriptor(pointed(memory, f"*{element}"), shape, strides, [int(n) for n in block.split(",")])
