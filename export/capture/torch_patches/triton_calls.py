"""Calls of Triton kernels while torch traces: ops of ours (triton_calls/launch_ops.py), in the place of torch's
higher-order op, which has Triton's objects in a table beside the program.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from torch._higher_order_ops.triton_kernel_wrap import TraceableTritonKernelWrapper, TracingTritonHOPifier

from hardtack.exporter.capture.torch_patches.patch import Patch
from hardtack.exporter.triton_calls.traced_calls import kept_symbolic, plain_calls, wrapped_call

PATCHES = (
    Patch(
        name="calls of Triton kernels",
        replaces=(
            "TracingTritonHOPifier.call_HOP",
            "TraceableTritonKernelWrapper.specialize_symbolic",
            "triton's KernelInterface.__getitem__",
        ),
        why="without a GPU torch takes every tensor that a kernel is passed for written, and a kernel that is called "
        "without torch.library.wrap_triton is run on tensors that have no memory",
    ),
)


@contextlib.contextmanager
def triton_calls_as_ops() -> Iterator[None]:
    """Inside, what is traced of a call of a kernel is a call of an op. Not for several threads at once."""
    original, specialised = TracingTritonHOPifier.call_HOP, TraceableTritonKernelWrapper.specialize_symbolic
    jit = sys.modules.get("triton.runtime.jit")  # who has a kernel has imported it
    interface = None if jit is None else jit.KernelInterface
    launch = None if interface is None else interface.__getitem__
    TracingTritonHOPifier.call_HOP = wrapped_call  # type: ignore[method-assign]
    TraceableTritonKernelWrapper.specialize_symbolic = kept_symbolic  # type: ignore[method-assign]
    if interface is not None:
        interface.__getitem__ = plain_calls(launch)
    try:
        yield
    finally:
        TracingTritonHOPifier.call_HOP = original  # type: ignore[method-assign]
        TraceableTritonKernelWrapper.specialize_symbolic = specialised  # type: ignore[method-assign]
        if interface is not None:
            interface.__getitem__ = launch
