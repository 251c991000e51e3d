"""Triton's interpreter on this machine's numpy.

Import this before triton: the interpreter is chosen when triton is first imported.
"""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar

import numpy as np

assert "triton" not in sys.modules or os.environ.get("TRITON_INTERPRET") == "1", "triton was imported first"
os.environ["TRITON_INTERPRET"] = "1"

import triton.language as tl  # noqa: E402
from triton.runtime import interpreter  # noqa: E402


def repair() -> None:
    """Gaps of the interpreter of Triton 3.6.

    numpy from 2.4 on does not turn an array of one element into an int any more, which loops over tensors need; and
    products of bf16, which the interpreter holds as bit patterns, are computed on the patterns; and conversions to
    bf16 do not round; and the result of a comparison counts as a number of its operands' type, so that a scalar one is
    spread out as floats, which are not combined by & and |.
    """
    original = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched
    builder = interpreter.InterpreterBuilder
    create_dot = builder.create_dot

    def widened(self: Any, x: Any) -> Any:
        return self.create_fp_ext(x, tl.block_type(tl.float32, list(x.data.shape))) if x.dtype == tl.bfloat16 else x

    def dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        return create_dot(self, widened(self, a), widened(self, b), d, *rest)

    builder.create_dot = dot
    cast_impl = builder.cast_impl

    def cast(self: Any, src: Any, kind: Any) -> Any:
        source, target = src.dtype.scalar, kind.scalar
        if source == tl.bfloat16 and target != tl.bfloat16:
            src = interpreter.TensorHandle((src.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
        if target == tl.bfloat16 and source != tl.bfloat16:
            return interpreter.TensorHandle(round_to_bf16(src.data.astype(np.float32)), tl.bfloat16)
        return cast_impl(self, src, kind)

    builder.cast_impl = cast

    def splat(self: Any, kind: Any, x: Any) -> Any:
        return interpreter.TensorHandle(np.full(kind.shape, x.data.reshape(-1)[0], x.data.dtype), x.dtype.scalar)

    builder.create_splat = splat


def round_to_bf16(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The bits of x as bf16, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(x).view(np.uint32).reshape(x.shape)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


class _Patches(interpreter._LangPatchScope):
    """What a launch changes in triton.language; `langs` are the modules that are changed until it ends."""

    langs: ClassVar[set[int]] = set()

    def restore(self) -> None:
        super().restore()
        self.langs.clear()


def patch_once() -> None:
    """A launch changes triton.language once: the interpreter does it again in each call of a function by a kernel,
    which took most of the time."""
    original = interpreter._patch_lang
    modules: dict[Any, set[int]] = {}

    def patched(function: Any) -> Any:
        if function not in modules:
            modules[function] = {id(x) for x in function.__globals__.values() if x is tl or x is tl.core}
        if modules[function] <= _Patches.langs:
            return _Patches()
        _Patches.langs |= modules[function]
        return original(function)

    interpreter._LangPatchScope = _Patches
    interpreter._patch_lang = patched


def remember_types() -> None:
    """numpy's type of a scalar type is looked up once: the interpreter makes a table of all for each value."""
    original = interpreter._get_np_dtype
    known: dict[str, Any] = {}

    def looked_up(kind: Any) -> Any:
        scalar = kind.element_ty if isinstance(kind, tl.block_type) else kind
        if type(scalar) is not tl.dtype:
            return original(kind)
        if scalar.name not in known:
            known[scalar.name] = original(scalar)
        return known[scalar.name]

    interpreter._get_np_dtype = looked_up


def share_shapes() -> None:
    """A shape is made once: the interpreter makes several tuples, each with a type, a name and a check of its own, for
    every value, which took more time than what is computed. No shape is changed once it is there."""
    core = tl.core
    blocks: dict[tuple[int, ...], tuple[Any, int, str]] = {}
    tensors: dict[tuple[int, ...], tuple[Any, Any]] = {}
    make_block, make_tensor = core.block_type.__init__, core.tensor.__init__

    def block(self: Any, element: Any, shape: Any) -> None:
        key = tuple(n.value if isinstance(n, core.constexpr) else n for n in shape)
        if key not in blocks:
            make_block(self, element, shape)  # which refuses what is no shape
            blocks[key] = self.shape, self.numel, str(self.shape)
            return
        self.element_ty = element
        self.shape, self.numel, text = blocks[key]
        self.name = f"<{text}, {element}>"

    def tensor(self: Any, handle: Any, kind: Any) -> None:
        key = tuple(kind.shape) if kind.is_block() else ()
        if key not in tensors:
            make_tensor(self, handle, kind)
            tensors[key] = self.shape, self.numel
            return
        self.handle, self.type, self.dtype = handle, kind, kind.scalar
        self.shape, self.numel = tensors[key]

    core.block_type.__init__, core.tensor.__init__ = block, tensor


repair()
patch_once()
remember_types()
share_shapes()
