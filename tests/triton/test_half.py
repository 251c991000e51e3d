"""f16 and bf16 in Triton's kernels: every value of theirs is rounded, wherever it is kept."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
import pytest
import torch

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from tests.codegen.compare import compile_module
from tests.codegen.half_programs import HALVES, Programs, exactly, same_bits, whole
from tests.triton.simulate import Simulator


@pytest.mark.parametrize("dtype", HALVES)
def test_values_inside_a_kernel_are_rounded(dtype: torch.dtype) -> None:
    module, args = Programs().eval(), whole(dtype)
    compiled = compile_module(module, args, None, None, TritonBackend(H200), Simulator)
    same_bits(compiled(*args), exactly(module, args))
