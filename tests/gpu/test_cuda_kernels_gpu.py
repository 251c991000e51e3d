"""Users' CUDA kernels in bundles, on the GPU: beside the ops' own functions in eager mode."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import hardtack
from tests.front.cuda_ops import CASES
from tests.gpu.support import assert_close, leaves


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_what_its_op_does(name: str, tmp_path: Path, target: str) -> None:
    case = CASES[name]
    module = case.module().eval().cuda()
    inputs = [tuple(x.cuda() for x in args) for args in case.inputs]
    path = tmp_path / "m.pkg"
    targets = (target, "cuda:sm_80" if target != "cuda:sm_80" else "cuda:sm_90")
    hardtack.export(module, inputs[0], path=path, dynamic_shapes=case.dynamic, targets=targets, kernels=case.kernels)
    session = hardtack.load(path, device="cuda:0").session()
    oracle = copy.deepcopy(module)
    for args in (*inputs, *inputs, *inputs):  # plain, captured, replayed
        with torch.no_grad():
            want = leaves(oracle(*(a.clone() for a in args)))
        assert_close(leaves(session(*args)), want, 4)


@pytest.mark.gpu
def test_large_sums_have_every_element(tmp_path: Path, target: str) -> None:
    case = CASES["sums"]
    module = case.module().eval().cuda()
    path = tmp_path / "m.pkg"
    x = torch.randn(4, 40, device="cuda")
    hardtack.export(module, (x,), path=path, dynamic_shapes=case.dynamic, targets=(target,), kernels=case.kernels)
    session = hardtack.load(path, device="cuda:0").session()
    for rows in (1, 33, 4096):
        x = torch.arange(rows * 40, device="cuda").reshape(rows, 40).float()
        assert_close(leaves(session(x)), [module(x)])
