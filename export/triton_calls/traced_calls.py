"""What stands for a call of a Triton kernel while torch traces; capture/torch_patches/triton_calls.py puts it there. It
stands here since a frame of capture/ ends the stack that an op is noted with.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._higher_order_ops.triton_kernel_wrap import TraceableTritonKernelWrapper

from hardtack.exporter.triton_calls.launch_ops import call_kernel


def wrapped_call(self: Any, variable: Any, grids: Sequence[Any], combined_args: Mapping[str, Any], tx: None) -> None:
    """A call of what torch.library.wrap_triton gave."""
    call_kernel(variable.kernel, combined_args, grids)


def kept_symbolic(self: Any, arg: Any) -> Any:
    """What is passed for a constexpr; torch would take the example's value, and bind the program to it."""
    known = arg.node.maybe_as_int() if isinstance(arg, torch.SymInt) else None
    return arg if known is None else known


def plain_calls(original: Any) -> Callable[..., Any]:
    """Calls without wrap_triton, too, and of kernels with triton.heuristics alone, which that does not take. What is
    not traced is called as it is. original: kernel, grid -> a function of the kernel's arguments.
    """

    def launch(self: Any, grid: Any) -> Callable[..., Any]:
        plain = original(self, grid)

        def run(*args: Any, **kwargs: Any) -> Any:
            traced = detect_fake_mode((args, kwargs)) is not None
            return _wrapped(self)[grid](*args, **kwargs) if traced else plain(*args, **kwargs)

        return run

    return launch


def _wrapped(kernel: Any) -> Any:
    """A kernel as torch traces it."""
    triton = sys.modules["triton"]
    if type(kernel).__name__ == "Heuristics":
        kernel = triton.autotune(configs=[triton.Config({})], key=[])(kernel)
    return TraceableTritonKernelWrapper(kernel, None, None)
