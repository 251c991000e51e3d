"""Users' Triton kernels in bundles, on the GPU: beside the same kernels in eager mode, and beside torch's own ops."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import hardtack
from tests.gpu.support import assert_close, leaves

NAMES = ("adds", "affine", "totals", "plain", "tuned", "products", "picks", "mixed")


def models() -> Any:
    """tests/triton/user_models.py, which imports Triton as it is on this machine: not where tests of Triton's
    interpreter are collected, too."""
    from tests.triton import user_models

    return user_models


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_computes_what_it_does_in_eager_mode(name: str, tmp_path: Path, target: str) -> None:
    case = models().CASES[name]
    module = case.module().eval().cuda()
    inputs = [tuple(x.cuda() for x in args) for args in case.inputs]
    path = tmp_path / "m.pkg"
    hardtack.export(module, inputs[0], path=path, dynamic_shapes=case.dynamic, targets=(target,), **case.given)
    session = hardtack.load(path, device="cuda:0").session()
    ops, kernels = copy.deepcopy(module), copy.deepcopy(module)
    for args in (*inputs, *inputs, *inputs):  # plain, captured, replayed
        with torch.no_grad():
            want = leaves(models().wanted(ops, tuple(a.clone() for a in args)))
            by_kernels = leaves(kernels(*(a.clone() for a in args)))
        got = leaves(session(*args))
        assert_close(got, want, 4)
        if name != "tuned":  # eager mode takes what is faster of two configs, whose results differ
            assert_close(got, by_kernels, 4)


def test_every_model_is_run() -> None:
    assert {*NAMES} == {name for name, case in models().CASES.items() if "cuda:sm_90" in case.targets}
