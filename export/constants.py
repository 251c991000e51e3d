"""Parameters, buffers and lifted tensors: their bytes in the ConstantStore."""

from __future__ import annotations

import numpy as np
import torch

from hardtack.codegen.ir import expr as ex
from hardtack.codegen.ir.constants import NUMPY_DTYPE, ConstantStore
from hardtack.codegen.ir.graph import TensorType
from hardtack.codegen.ir.types import DType
from hardtack.exporter.dtypes import TORCH_DTYPE, from_torch, part_dtype
from hardtack.exporter.errors import InputSpecError


def tensor_type(t: torch.Tensor) -> TensorType:
    """The TensorType of a real tensor."""
    return TensorType(from_torch(t.dtype), tuple(ex.const(int(s)) for s in t.shape))


def parts_of(t: torch.Tensor) -> torch.Tensor:
    """The real and imaginary parts of complex numbers as a last dimension of 2. Refusal for complex32."""
    part_dtype(t.dtype)
    return torch.view_as_real(t.detach().resolve_conj().resolve_neg())


def store_tensor(store: ConstantStore, t: torch.Tensor) -> str:
    """Keep the content of `t` and return its key. InputSpecError for tensors without plain contiguous content."""
    if t.is_meta or isinstance(t, torch._subclasses.FakeTensor):
        raise InputSpecError(
            "a parameter has no data (it lives on the meta device)", fix="load the weights before exporting"
        )
    if t.layout is not torch.strided:
        raise InputSpecError(f"a parameter has the layout {t.layout}", fix="convert it with .to_dense()")
    plain = t.detach().cpu().contiguous()
    dtype = from_torch(plain.dtype)
    if dtype.is_float8:
        return store.add(dtype, plain.view(torch.uint8).numpy())
    if dtype is DType.BF16:
        return store.add(dtype, plain.view(torch.int16).numpy().view(np.uint16))
    return store.add(dtype, plain.numpy().astype(NUMPY_DTYPE[dtype], copy=False))


def load_tensor(store: ConstantStore, key: str) -> torch.Tensor:
    """The content of `key` as a torch tensor that shares the store's memory; never write to it."""
    entry = store[key]
    array = entry.array if entry.array.flags.writeable else entry.array.copy()
    if entry.dtype is DType.BF16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if entry.dtype.is_float8:
        return torch.from_numpy(array).view(TORCH_DTYPE[entry.dtype])
    return torch.from_numpy(array).to(TORCH_DTYPE[entry.dtype])
