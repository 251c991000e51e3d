"""Complex numbers as inputs, outputs and states of a bundle for a GPU."""

from __future__ import annotations

from pathlib import Path

import torch
from null_driver import NullDriver

from tests.triton.driven import Driven


class Mixer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(6, dtype=torch.complex64))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.total.add_(x.sum(0))
        return x * y.conj(), self.total.clone(), x.abs(), x.clone(), torch.fft.fft(x)


def test_runs_are_eagers(driver: NullDriver, tmp_path: Path) -> None:
    noise = torch.Generator().manual_seed(0)
    x, y = (torch.randn(5, 6, dtype=torch.complex64, generator=noise) for _ in range(2))
    session = Driven(driver).export(Mixer().eval(), (x, y), tmp_path / "m.pkg").session()
    eager = Mixer().eval()
    for args in ((x, y), (x, y), (x, y), (x.conj(), y), (y.conj(), x.conj())):
        for found, want in zip(session(*args), eager(*args), strict=True):
            torch.testing.assert_close(found, want.resolve_conj(), rtol=1e-4, atol=1e-4)
