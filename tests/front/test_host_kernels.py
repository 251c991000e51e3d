"""Ops that the program which loads a bundle computes: HostKernel and register_op."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import hardtack
from hardtack import HostKernel, LoadError, register_op
from hardtack.cli import main
from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from tests.front.kernel_ops import KERNEL, clip, exported

INCLUDE = Path(__file__).resolve().parents[2] / "runtime_cpp" / "include"
SOURCE = r"""
#include <hardtack/kernel.h>
#include <math.h>
static void row(void* closure, int64_t i, int32_t worker) {
  const ht_kernel_call* call = closure;
  const ht_tensor* x = call->arguments[0].value.tensor;
  const int64_t n = x->shape[1];
  float* memory = (float*)((char*)call->worker_workspace + worker * call->worker_nbytes);
  for (int64_t j = 0; j < n; ++j) memory[j] = sinf(((const float*)x->data)[i * n + j]);
  for (int64_t j = 0; j < n; ++j) ((float*)call->results[0].data)[i * n + j] = memory[j];
}
int32_t sines(const ht_kernel_call* call) {
  if (call->abi_version != HT_CALL_ABI_VERSION || call->num_arguments != 2) return 9;
  if (call->arguments[1].value.integer < 0) return ht_fail(call, "no negative number of times");
  if (call->user_data != 0) ++*(int64_t*)call->user_data;
  call->parallel->run(call->parallel->pool, call->arguments[0].value.tensor->shape[0], row, (void*)call);
  return 0;
}
"""


@torch.library.custom_op("hardtack_hosts::sines", mutates_args=())
def sines(x: Tensor, times: int = 1) -> Tensor:
    return x.sin()


sines.register_fake(lambda x, times=1: torch.empty(x.shape))


class Sines(nn.Module):
    def __init__(self, times: int = 1) -> None:
        super().__init__()
        self.times = times
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return sines(x + 1, self.times) * 2


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The functions of a program, which may use all that a program has."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "sines.c").write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", "-std=c99", "-Wall", "-Wextra", "-Werror", "-I", str(INCLUDE), "sines.c"]
    subprocess.run([*command, "-o", "sines.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "sines.so"))


def kernel(name: str) -> HostKernel:
    return HostKernel(name, worker_workspace=lambda x, times: x.shape[1] * 4)


def bundle(tmp_path: Path, name: str, times: int = 1) -> Path:
    rows = {0: torch.export.Dim.DYNAMIC}
    path = tmp_path / "m.pkg"
    hardtack.export(
        Sines(times),
        (torch.ones(3, 5),),
        path=path,
        dynamic_shapes=(rows,),
        targets=("cpu:native",),
        kernels={sines: kernel(name)},
    )
    return path


def test_the_program_computes_the_op(tmp_path: Path, library: ctypes.CDLL) -> None:
    path, calls = bundle(tmp_path, "mine::sines"), ctypes.c_int64()
    register_op("mine::sines", library.sines, user_data=ctypes.addressof(calls))
    register_op("mine::sines", library.sines, user_data=ctypes.addressof(calls))
    model = hardtack.load(path)
    for rows in (3, 0, 40):
        x = torch.randn(rows, 5)
        torch.testing.assert_close(torch.as_tensor(model(x)), Sines()(x))
    assert calls.value == 3


@torch.library.custom_op("hardtack_hosts::sines.twice", mutates_args=())
def twice(x: Tensor, times: int = 1) -> Tensor:
    return x.sin() * 2


twice.register_fake(lambda x, times=1: torch.empty(x.shape))
DOUBLED = SOURCE.replace("sines(", "doubled(").replace("= memory[j]", "= 2 * memory[j]")


def test_overloads_of_one_form_call_their_own_functions(tmp_path: Path, library: ctypes.CDLL) -> None:
    """Their wrappers differ in nothing but what they call."""
    (tmp_path / "doubled.c").write_text(DOUBLED)
    command = ["cc", "-shared", "-fPIC", "-std=c99", "-I", str(INCLUDE), "doubled.c", "-o", "doubled.so", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    register_op("overload/one", library.sines)
    register_op("overload/two", ctypes.CDLL(str(tmp_path / "doubled.so")).doubled)

    def function(x: Tensor) -> Tensor:
        return sines(x) + twice(x)

    x = torch.randn(3, 5)
    model = exported(tmp_path, function, (x,), kernels={sines: kernel("overload/one"), twice: kernel("overload/two")})
    torch.testing.assert_close(torch.as_tensor(model(x)), function(x))


def test_what_is_not_registered_is_told_all_at_once(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return sines(clip(x), 2)

    path = tmp_path / "m.pkg"
    kernels = {sines: kernel("nobody/sines"), clip: HostKernel("nobody/clip")}
    hardtack.export(function, (torch.ones(3, 5),), path=path, targets=("cpu:native",), kernels=kernels)
    with pytest.raises(LoadError) as caught:
        hardtack.load(path)
    assert str(caught.value) == (
        f"{path}: ops of the bundle are computed by functions of the program, and these are not registered: "
        '"nobody/sines" for hardtack_hosts.sines.default, "nobody/clip" for hardtack_kernels.clip.default; call '
        "ht_register_op before the bundle is loaded"
    )


def test_a_failure_is_told_in_the_functions_words(tmp_path: Path, library: ctypes.CDLL) -> None:
    register_op("failing", library.sines)
    with pytest.raises(hardtack.RunError) as caught:
        hardtack.load(bundle(tmp_path, "failing", times=-1))(torch.ones(3, 5))
    assert str(caught.value).endswith("]: no negative number of times")


def test_a_function_of_python(tmp_path: Path) -> None:
    made = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(lambda call: 5)
    register_op("of.python", made)
    with pytest.raises(hardtack.RunError) as caught:
        hardtack.load(bundle(tmp_path, "of.python"))(torch.ones(3, 5))
    assert str(caught.value).endswith("]: it returned 5")


def test_the_manifest_and_inspect_say_what_is_trusted(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return sines(clip(x), 2)

    path = tmp_path / "m.pkg"
    kernels = {sines: kernel("required"), clip: KERNEL}
    hardtack.export(function, (torch.ones(3, 5),), path=path, targets=("cpu:native",), kernels=kernels)
    verify_bundle(path)
    with open_bundle(path) as opened:
        assert opened.manifest.format == 3
        assert [(k.op, k.function, k.host) for k in opened.manifest.user_kernels] == [
            ("hardtack_hosts.sines.default", "required", True),
            ("hardtack_kernels.clip.default", "clip", False),
        ]
    shown = CliRunner().invoke(main, ["inspect", str(path)])
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert (
        "hardtack_hosts.sines.default is computed by a user's kernel: required, the program that loads it registers "
        "hardtack_kernels.clip.default is computed by a user's kernel: clip, in the bundle"
    ) in words


def test_bundles_without_users_kernels_are_as_they_were(tmp_path: Path) -> None:
    exported(tmp_path, lambda x: x + 1, (torch.ones(2),))
    with open_bundle(tmp_path / "m.pkg") as opened:
        assert opened.manifest.format == 1
        assert opened.manifest.user_kernels == ()


def test_gpu_targets_are_told_that_they_have_no_function(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOp) as caught:
        hardtack.export(
            Sines(), (torch.ones(3, 5),), path=tmp_path / "m.pkg", targets="cuda:sm_90", kernels={sines: kernel("f")}
        )
    assert str(caught.value).endswith(
        ": its kernel, f, is a function of the program, for CPUs; give the op a decomposition or a lowering, which all "
        "targets take, or leave these targets out: there is no kernel of it on cuda:sm_90"
    )


@pytest.mark.parametrize(
    ("register", "error", "words"),
    [
        (
            lambda f: register_op("taken", 8),
            ValueError,
            'ht_register_op: another function is registered as "taken"',
        ),
        (
            lambda f: register_op("later", f, abi=2),
            ValueError,
            'ht_register_op: "later" is written for version 2 of hardtack/kernel.h, this version of Hardtack '
            f"({hardtack.__version__}) calls version 1",
        ),
        (
            lambda f: register_op("nothing", "sines"),
            TypeError,
            "the function for nothing is 'sines'; it must be one of ctypes, or an address",
        ),
        (
            lambda f: HostKernel("a name"),
            ValueError,
            "HostKernel.name is 'a name'; it must be 1 to 255 of A-Z a-z 0-9 . _ : / -",
        ),
        (
            lambda f: HostKernel("a", workspace="4"),  # type: ignore[arg-type]
            ValueError,
            "HostKernel.workspace of a is '4'; it must be bytes, or a function",
        ),
    ],
)
def test_what_cannot_be_registered_is_told(
    register: Callable[[Any], None], error: type[Exception], words: str, library: ctypes.CDLL
) -> None:
    register_op("taken", library.sines)
    with pytest.raises(error) as caught:
        register(library.sines)
    assert str(caught.value) == words
