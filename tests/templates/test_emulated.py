"""The emulated process that kernels for aarch64 run in: what a kernel does wrong fails the test that called it."""

from __future__ import annotations

import re

import pytest
import torch

from hardtack.codegen.machine.data import AARCH64, AARCH64_BF16
from hardtack.codegen.machine.machine import Cpu
from tests.support.aarch64 import needs_aarch64
from tests.templates.cpu_kernels import Library, Workspace, load_library

pytestmark = needs_aarch64

_KERNEL = """
#include <hardtack/kernel_abi.h>
extern "C" int32_t {name}(const HtKernelArgs* args) {{
  int32_t* const out = static_cast<int32_t*>(args->buffers[0]);
  {body}
}}
"""
_BODIES = {
    "counts": """
      args->parallel->run(args->parallel->pool, args->ints[0], [](void* to, int64_t i, int32_t worker) {
        static_cast<int32_t*>(to)[i] = worker;
      }, out);
      return 0;""",
    "refuses": "return 2;",
    "leaves_shared": "static_cast<char*>(args->shared_workspace)[args->ints[0]] = 1; return 0;",
    "leaves_private": "static_cast<char*>(args->worker_workspace)[args->worker_stride + args->ints[0]] = 1; return 0;",
    "reads_behind": "return static_cast<volatile int32_t*>(out)[args->ints[0]] == 1 ? 0 : 0;",
    # bfdot v0.4s, v0.8h, v0.8h: of Armv8.6-A
    "multiplies_bf16": 'asm volatile(".inst 0x6e40fc00" ::: "v0"); return 0;',
}


def _load(target: Cpu) -> Library:
    return load_library({n: _KERNEL.format(name=n, body=body) for n, body in _BODIES.items()}, target)


@pytest.fixture(scope="module")
def library() -> Library:
    return _load(AARCH64)


def test_every_task_runs_once_on_the_worker_that_it_is_given(library: Library) -> None:
    out = torch.full((8,), -1, dtype=torch.int32)
    assert library.call("counts", [out], [7], nworkers=3) == 0
    assert out.tolist() == [0, 1, 2, 0, 1, 2, 0, -1]


def test_the_status_of_a_kernel_comes_back(library: Library) -> None:
    assert library.call("refuses", [None], []) == 2


def test_bytes_beyond_a_workspace_are_seen(library: Library) -> None:
    out = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(AssertionError, match=r"^the kernel left its shared workspace"):
        library.call("leaves_shared", [out], [24], Workspace(shared=24))
    with pytest.raises(AssertionError, match=r"^worker 1 left its workspace"):
        library.call("leaves_private", [out], [24], Workspace(per_worker=24), nworkers=2)


def test_a_kernel_that_dies_fails_its_call_and_no_other(library: Library) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    with pytest.raises(
        AssertionError, match=r"^kernel reads_behind ended its process, status -11: qemu: uncaught target"
    ):
        library.call("reads_behind", [out], [64])
    assert library.call("reads_behind", [out], [3]) == 0


def test_an_instruction_that_the_target_lacks_ends_the_process(library: Library) -> None:
    with pytest.raises(AssertionError, match=re.escape("kernel multiplies_bf16 ended its process, status -4: qemu: ")):
        library.call("multiplies_bf16", [None], [])
    assert _load(AARCH64_BF16).call("multiplies_bf16", [None], []) == 0


def test_a_kernel_that_is_not_there_is_named(library: Library) -> None:
    with pytest.raises(AssertionError, match="status 2: kernel_runner: there is no kernel nothing"):
        library.call("nothing", [], [])
