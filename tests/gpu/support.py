"""Bundles for the GPU of this machine, run and compared with eager torch on the same GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

import hardtack

TOLERANCE: Mapping[torch.dtype, float] = {
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}
"""||out - eager|| / ||eager|| of a model; eager float32 runs with exact products."""


def leaves(tree: Any) -> list[torch.Tensor]:
    """The tensors of a nested result, in order."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def eager(module: Any, args: Sequence[Any]) -> list[torch.Tensor]:
    """What the module gives on the GPU, without tf32."""
    with torch.no_grad():
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        return leaves(module(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args)))


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """||got - want|| / ||want||, 0 for equal empty ones; infinite where the shapes or dtypes differ or one has NaN."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    a, b = got.double().cpu(), want.double().cpu()
    if not torch.equal(a.isnan(), b.isnan()) or not torch.equal(a.isinf(), b.isinf()):
        return float("inf")
    a, b = a.nan_to_num(), b.nan_to_num()
    norm = b.norm().item()
    return (a - b).norm().item() / norm if norm > 0 else (a - b).norm().item()


def assert_close(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor], scale: float = 1.0) -> None:
    """Floats within TOLERANCE times `scale`, everything else exactly."""
    assert len(got) == len(want)
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        assert g.device == w.device, k
        allowed = TOLERANCE.get(w.dtype, 0.0) * scale
        assert error(g, w) <= allowed, f"output {k}, {w.dtype}{list(w.shape)}: {error(g, w):.2e}, allowed {allowed:.2e}"


def exported(module: Any, args: Sequence[Any], folder: Path, target: str, dynamic: Any = None) -> hardtack.Model:
    """The module as a bundle for the GPU, loaded."""
    path = folder / "m.pkg"
    hardtack.export(module, tuple(args), path=path, dynamic_shapes=dynamic, targets=(target,))
    return hardtack.load(path, device="cuda:0")


def check(
    module: Any,
    inputs: Sequence[Sequence[Any]],
    folder: Path,
    target: str,
    dynamic: Any = None,
    scale: float = 1.0,
) -> None:
    """Export on the first set of inputs; every set, three times in one session, equals eager."""
    model = exported(module, inputs[0], folder, target, dynamic)
    session = model.session()
    for args in inputs:
        want = eager(module, args)
        for _ in range(3):  # plain, captured, replayed
            assert_close(leaves(session(*args)), want, scale)
