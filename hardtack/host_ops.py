"""Functions of this process for ops of bundles that were exported with hardtack.HostKernel."""

from __future__ import annotations

import ctypes
from typing import Any

from hardtack import _native
from hardtack.kernels import ABI

_FUNCTION = ctypes.CFUNCTYPE(None).__mro__[1]
"""What all functions of ctypes are."""
_KEPT: list[Any] = []
"""What was registered: a function that ctypes made goes with its object, and what is registered stays for good."""


def register_op(name: str, function: Any, *, abi: int = ABI, user_data: int = 0) -> None:
    """Registers the function that computes an op, before a bundle that needs it is loaded.

    function: int32_t (*)(const ht_kernel_call*) of hardtack/kernel.h, from a library that ctypes has loaded, made by
    ctypes.CFUNCTYPE, or its address. It must not raise. abi: HT_CALL_ABI_VERSION of the header that it was compiled
    with. user_data: an address that it is handed in each call.

    Raises TypeError for what is no function, and ValueError for a name that another function has and a version that
    this Hardtack does not call.
    """
    is_function = isinstance(function, _FUNCTION)
    address = ctypes.cast(function, ctypes.c_void_p).value if is_function else function
    if not isinstance(address, int) or not address:
        raise TypeError(f"the function for {name} is {function!r}; it must be one of ctypes, or an address")
    try:
        _native.register_op(name, abi, address, user_data)
    except _native.NativeError as error:
        raise ValueError(error.args[1]) from None
    _KEPT.append(function)
