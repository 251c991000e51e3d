"""A stand-in for torch with tensors on the null driver's device, as far as the runtime's Python binding looks at torch.

It offers DLPack's C exchange API, like torch, from ctypes callbacks. `use` makes it the process's torch: for programs
of their own, before anything else imports torch.
"""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

CUDA = 2


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class Tensor:
    """A float32 tensor in memory of the null driver. `done`: what was done to it, in words."""

    driver: Any = None
    stream = 0
    made: list[Tensor] = []  # noqa: RUF012

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        pointer = ctypes.c_uint64()
        assert self.driver.cuMemAlloc_v2(ctypes.byref(pointer), 4096) == 0
        self.pointer = pointer.value
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.strides = (ctypes.c_int64 * len(strides))(*strides)
        self.done: list[str] = []

    def __del__(self) -> None:
        self.driver.cuMemFree_v2(ctypes.c_uint64(self.pointer))

    def detach(self) -> Tensor:
        self.done.append("detach")
        return self

    def resolve_conj(self) -> Tensor:
        return self

    def resolve_neg(self) -> Tensor:
        return self

    def contiguous(self) -> Tensor:
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * size)
        self.done.append("contiguous")
        return Tensor(tuple(self.shape), tuple(strides))


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
def _view(tensor: Any, out: Any) -> int:
    out[0] = DLTensor(
        tensor.pointer, CUDA, 0, len(tensor.shape), 2, 32, 1,
        ctypes.cast(tensor.shape, ctypes.POINTER(ctypes.c_int64)),
        ctypes.cast(tensor.strides, ctypes.POINTER(ctypes.c_int64)), 0,
    )  # fmt: skip
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def _current_stream(device_type: int, device_id: int, out: Any) -> int:
    assert (device_type, device_id) == (CUDA, 0)
    out[0] = Tensor.stream
    return 0


class _Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("own", ctypes.c_void_p), ("give", ctypes.c_void_p), ("view", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )  # fmt: skip


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


_TABLE = _Exchange(1, 3, None, None, None, None, _address(_view), _address(_current_stream))
# What came later than DLPack 1 is found behind it.
_LATER = _Exchange(2, 0, ctypes.addressof(_TABLE), None, None, None, None, None)


def _empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], *, dtype: str, device: str) -> Tensor:
    assert (dtype, device) == ("float32", "cuda:0")
    Tensor.made.append(Tensor(shape, strides))
    return Tensor.made[-1]


def use(driver_path: str, version: str = "2.13.0", exchange: bool = True) -> types.ModuleType:
    """Makes this the process's torch, and the device's context current, as torch does."""
    Tensor.driver = ctypes.CDLL(driver_path)
    context = ctypes.c_void_p()
    for status in (
        Tensor.driver.cuInit(0),
        Tensor.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        Tensor.driver.cuCtxPushCurrent_v2(context),
    ):
        assert status == 0
    if exchange:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        Tensor.__dlpack_c_exchange_api__ = new(ctypes.addressof(_LATER), b"dlpack_exchange_api", None)  # type: ignore[attr-defined]
    module = types.ModuleType("torch")
    members = {
        "Tensor": Tensor, "empty_strided": _empty_strided, "__version__": version, "float32": "float32",
        "device": lambda kind, number: f"{kind}:{number}",
    }  # fmt: skip
    for name, value in members.items():
        setattr(module, name, value)
    sys.modules["torch"] = module
    return module
