"""Scans in Triton's kernels against eager."""

from __future__ import annotations

import tests.triton.interpreter  # noqa: F401  # isort: skip  # first: it chooses the interpreter
import pytest
import torch

from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.machine.data import H200
from tests.codegen.compare import compile_module, eager
from tests.triton.simulate import Simulator


class Running(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.logcumsumexp(1)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_a_small_exponential_beside_one_keeps_its_digits(dtype: torch.dtype, rtol: float) -> None:
    """log(e^0 + e^-17) is 4.1e-8, of which log(1 + e^-17) has eight digits in float64 and none in float32."""
    low = torch.tensor([-1.0, -5.0, -17.0, -40.0, -700.0], dtype=dtype)
    x = torch.stack([torch.zeros(5, dtype=dtype), low], 1)
    compiled = compile_module(Running().eval(), (x,), None, {}, TritonBackend(H200), Simulator)
    (found,), (want,) = compiled(x), eager(Running(), (x,))
    torch.testing.assert_close(found, want, rtol=rtol, atol=torch.finfo(dtype).tiny)
