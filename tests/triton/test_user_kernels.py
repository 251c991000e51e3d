"""Users' Triton kernels in bundles for sm_90 on the real runtime: exported by a process where Triton compiles, launched
by Triton's interpreter, with each access checked (driven.py), and held against torch's own ops.
"""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from null_driver import NullDriver

import hardtack
from hardtack.codegen.package.bundle import verify_bundle
from tests.codegen.compare import leaves
from tests.triton.driven import Driven
from tests.triton.user_models import CASES, wanted

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of the bundles, and their kernels by the case."""
    folder = tmp_path_factory.mktemp("users")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.triton.user_exports", str(folder)]
    subprocess.run(command, check=True, cwd=ROOT, env=environment)
    return folder, pickle.loads((folder / "kernels.pickle").read_bytes())


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_computes_what_torch_does(name: str, exports: tuple[Path, dict[str, Any]], driver: NullDriver) -> None:
    folder, kernels = exports
    case = CASES[name]
    Driven(driver, dict(kernels[name]))
    model = hardtack.load(folder / f"{name}.pkg", device="cuda", cuda_driver=driver.path)
    session, oracle = model.session(), case.module().eval()
    for args in (*case.inputs, *case.inputs):
        want = leaves(wanted(oracle, copy.deepcopy(args)))
        got = leaves(session(*(a.clone() for a in args)))
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(torch.as_tensor(g), w.detach(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", CASES)
def test_bundles_are_sound(name: str, exports: tuple[Path, dict[str, Any]]) -> None:
    verify_bundle(exports[0] / f"{name}.pkg")
