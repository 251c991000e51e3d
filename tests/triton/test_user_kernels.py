"""Users' Triton kernels in bundles for sm_90 on the real runtime: exported by a process where Triton compiles, launched
by Triton's interpreter, with each access checked (driven.py), and held against torch's own ops.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from null_driver import NullDriver

import hardtack
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
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


def holds(name: str, session: Any) -> None:
    """A session gives what torch's ops give, twice over all inputs."""
    case = CASES[name]
    oracle = case.module().eval()
    for args in (*case.inputs, *case.inputs):
        want = leaves(wanted(oracle, copy.deepcopy(args)))
        got = leaves(session(*(a.clone() for a in args)))
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(torch.as_tensor(g), w.detach(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if "cuda:sm_90" in case.targets])
def test_a_kernel_computes_what_torch_does(name: str, exports: tuple[Path, dict[str, Any]], driver: NullDriver) -> None:
    folder, kernels = exports
    Driven(driver, dict(kernels[name]))
    holds(name, hardtack.load(folder / f"{name}.pkg", device="cuda", cuda_driver=driver.path).session())


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if "cpu:native" in case.targets])
def test_cpus_take_what_else_an_op_has(name: str, exports: tuple[Path, dict[str, Any]]) -> None:
    holds(name, hardtack.load(exports[0] / f"{name}.pkg", device="cpu").session())


@pytest.mark.parametrize("name", CASES)
def test_bundles_are_sound(name: str, exports: tuple[Path, dict[str, Any]]) -> None:
    verify_bundle(exports[0] / f"{name}.pkg")


def test_a_stage_of_a_gpu_target_has_the_kernel(exports: tuple[Path, dict[str, Any]]) -> None:
    assert "code=add_kernel of" in (exports[0] / "lower.txt").read_text()


@pytest.fixture(scope="module")
def problems() -> dict[str, list[str]]:
    """What the exports of user_problems.py say: the error's class, and its words."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.triton.user_problems"]
    said = subprocess.run(command, check=True, cwd=ROOT, env=environment, capture_output=True, text=True).stdout
    found: dict[str, list[str]] = json.loads(said)
    return found


LAUNCHED = "  To fix: pass tensors, sizes and numbers; what the values of tensors decide is no argument and no grid"
FOR_GPUS = (
    "head_kernel at tests/triton/user_problems.py:LINE: its kernel, head_kernel, is Triton's, for GPUs; call it in an "
    'op of torch.library.triton_op and give CPUs a function of it, as export(decompositions={"mylib::op": function}) '
    'or kernels={"mylib::op": CppKernel(...)}, or leave these targets out: there is no kernel of it on '
)
OP_FOR_GPUS = """\
1 op of this model cannot be exported:
  hardtack_triton_tests.add.default at tests/triton/user_models.py:LINE
      return add(x * 2, y) + 1
      its Triton kernels are for GPUs: give CPUs a function of it in torch's ops, as export(decompositions=\
{'hardtack_triton_tests::add': function}), or in C++, as kernels={'hardtack_triton_tests::add': CppKernel(...)}, or \
export for GPUs alone
  To fix: replace them by supported ops, or move them out of the exported module"""
CLASH = "the Triton kernel head_kernel cannot be launched: "
HEAD = "  at tests/triton/user_problems.py:LINE\n    wrap_triton(head_kernel)"
SAID = {
    "misspelt": (
        "CaptureError",
        "Triton cannot compile the kernel misspelt_kernel: AttributeError(\"module 'triton.language' has no attribute "
        "'no_such_function'\")\n  at tests/triton/user_problems.py:LINE\n"
        "    tl.store(out_ptr + at, tl.no_such_function(x))",
    ),
    "called": (
        "CaptureError",
        "Triton cannot compile the kernel calling_kernel: arange's range must be a power of 2\n"
        "  at tests/triton/user_problems.py:LINE\n    return x + tl.arange(0, 3)",
    ),
    "foreign": (
        "CaptureError",
        "the Triton kernel foreign_kernel names the module np\n  at tests/triton/user_problems.py:LINE\n"
        "    def foreign_kernel(...)\n  To fix: a kernel may name modules and functions of triton, math, other "
        "functions of triton.jit, and constants, as SIZE = tl.constexpr(4)",
    ),
    "strided": (
        "CaptureError",
        "the Triton kernel add_kernel cannot be launched: its argument x_ptr has the strides (10, 1) of a part of a "
        "tensor, or of a broadcast one\n  at tests/triton/user_problems.py:LINE\n"
        "    wrap_triton(add_kernel)[(1,)](x[:, 1:], x, out, 30, BLOCK=64)\n"
        "  To fix: pass x.contiguous(), with that one's strides",
    ),
    "shared": (
        "CaptureError",
        "the Triton kernel accumulate_kernel cannot be launched: it writes to a tensor that shares memory with another "
        "argument\n  at tests/triton/user_problems.py:LINE\n"
        "    wrap_triton(accumulate_kernel)[(1,)](y, y[1:], 20, BLOCK=64)\n  To fix: pass a clone of one of them",
    ),
    "short": (
        "CaptureError",
        f"the Triton kernel head_kernel is called without its argument n\n{HEAD}[(1,)](x, out, BLOCK=64)",
    ),
    "extra": (
        "CaptureError",
        f"the Triton kernel head_kernel is called with SIZE, which it does not have\n"
        f"{HEAD}[(1,)](x, out, 5, BLOCK=64, SIZE=2)",
    ),
    "gridded": (
        "CaptureError",
        f"{CLASH}its grid has a FakeTensor, which is no size\n{HEAD}[(x.sum(),)](x, out, 5, BLOCK=64)\n{LAUNCHED}",
    ),
    "counted": (
        "CaptureError",
        f"{CLASH}its argument n is a SymFloat, which is no size\n{HEAD}[(1,)](x, out, x.shape[0] / 2, BLOCK=64)\n"
        f"{LAUNCHED}",
    ),
    "listed": (
        "CaptureError",
        f"{CLASH}its constexpr BLOCK is a tuple\n{HEAD}[(1,)](x, out, 5, BLOCK=(64, 1))\n"
        "  To fix: pass a number, a text or a type of Triton",
    ),
    "constant": (
        "CaptureError",
        f"{CLASH}its constexpr BLOCK depends on a dynamic size, and there is one kernel for all sizes\n"
        f"{HEAD}[(1,)](x, out, 5, BLOCK=triton.next_power_of_2(x.shape[0]))\n"
        "  To fix: pass a number that holds for all of them, or leave the dimension static",
    ),
    "lying": (
        "PluginError",
        "the function of hardtack_triton_problems.lies.default of torch.library.triton_op gives float32[4, 10], and "
        "the op's fake kernel float32[4]\n  at tests/triton/user_problems.py:LINE\n    return lies(x) + 1",
    ),
    "written": (
        "MutationError",
        "the module writes to its input x\n  at tests/triton/user_problems.py:LINE\n"
        "    wrap_triton(accumulate_kernel)[(1,)](x, x, 5, BLOCK=64)\n"
        "  To fix: declare it, with Options(written_inputs=('x',)) or --written-input x, and runs write to the "
        "caller's memory; or work on a clone of the input and return it, or make it a registered buffer",
    ),
    "large": (
        "TritonError",
        "kernel KERNEL of large_kernel at tests/triton/user_problems.py:LINE takes 262144 bytes of shared memory; "
        "sm_90 has 232448: give it smaller blocks, fewer stages, or another config first",
    ),
    "complex": (
        "UnsupportedOpError",
        "1 op of this model cannot be exported:\n  head_kernel at tests/triton/user_problems.py:LINE\n"
        "      wrap_triton(head_kernel)[(1,)](x * 1j, out, 5, BLOCK=64)\n"
        "      a Triton kernel is passed complex numbers: pass torch.view_as_real(x)\n"
        "  To fix: replace them by supported ops, or move them out of the exported module",
    ),
    "measured": (
        "InputSpecError",
        "what compute costs is measured by running the model on a CPU, where its kernels for GPUs do not run: "
        "hardtack_triton_tests.add.default\n  To fix: leave the option out",
    ),
    "on CPUs": ("UnsupportedOp", f"{FOR_GPUS}cpu:x86-64-v4, cpu:x86-64-v3"),
    "on both": ("UnsupportedOp", f"{FOR_GPUS}cpu:native"),
    "op on CPUs": ("UnsupportedOpError", OP_FOR_GPUS),
    "op on both": ("UnsupportedOpError", OP_FOR_GPUS),
}


@pytest.mark.parametrize("name", SAID)
def test_what_cannot_be_launched_is_told(name: str, problems: dict[str, list[str]]) -> None:
    kind, words = problems[name]
    words = re.sub(r"large_kernel\w+_[0-9a-f]{12}", "KERNEL", words.replace(f"{ROOT}/", ""))
    assert (kind, re.sub(r"(\.py):\d+", r"\1:LINE", words)) == SAID[name]


def test_every_problem_is_told(problems: dict[str, list[str]]) -> None:
    assert problems.keys() == SAID.keys()


def test_the_manifest_says_what_is_trusted(exports: tuple[Path, dict[str, Any]]) -> None:
    with open_bundle(exports[0] / "mixed.pkg") as opened:
        kernels = opened.manifest.user_kernels
    found = [(re.sub(r"hardtack_triton\.(\w+)_[0-9a-f]{12}\.default", r"\1", k.op), k.function) for k in kernels]
    assert found == [
        ("accumulate_kernel", "accumulate_kernel"),
        ("add_kernel", "add_kernel"),
        ("hardtack_triton_tests.add.default", "clipped_sum"),
    ]
