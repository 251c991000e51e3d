"""workspace.h is what cpu_workspace.py writes; and the numbers that a compiled template sees are those of plans."""

from __future__ import annotations

import itertools

import pytest
import torch

from hardtack.codegen.backends.cpp import workspace_header
from hardtack.codegen.lower import cpu_workspace
from hardtack.codegen.machine.machine import Cpu
from tests.templates.conftest import all_targets
from tests.templates.cpu_kernels import load_library, runnable_targets
from tests.templates.layouts import nbytes

_SIZES = (0, 1, 31, 32, 33, 191, 193, 768, 769, 5000)


def test_the_header_is_current() -> None:
    assert workspace_header.path().read_text(encoding="utf-8") == workspace_header.header(), (
        "write it again: python -m hardtack.codegen.backends.cpp.workspace_header"
    )


def test_templates_and_plans_have_the_same_numbers() -> None:
    calls = [
        f"out[{k}] = ht::{f.name}({', '.join(f'i[{j}]' for j in range(len(f.sizes)))});"
        for k, f in enumerate(cpu_workspace.FORMULAS)
    ]
    source = f"""
#include "workspace.h"
extern "C" int32_t numbers(const HtKernelArgs* args) {{
  const int64_t* const i = args->ints;
  int64_t* const out = static_cast<int64_t*>(args->buffers[0]);
  {" ".join(calls)}
  return HT_KERNEL_OK;
}}
"""
    library = load_library({"numbers": source}, runnable_targets()[0])
    for ints in itertools.product(_SIZES, _SIZES, (1, 3), (1, 2)):
        out = torch.zeros(len(calls), dtype=torch.int64)
        assert library.call("numbers", [out], list(ints)) == 0
        want = [nbytes(f(*ints[: len(f.sizes)])) for f in cpu_workspace.FORMULAS]
        assert out.tolist() == want, ints


@pytest.mark.parametrize("target", all_targets())
def test_microkernels_are_as_tall_as_the_machine_says(target: Cpu) -> None:
    source = """
#include "micro.h"
extern "C" int32_t rows(const HtKernelArgs* args) {
  *static_cast<int64_t*>(args->buffers[0]) = ht::kMaxRows;
  return HT_KERNEL_OK;
}
"""
    out = torch.zeros(1, dtype=torch.int64)
    assert load_library({"rows": source}, target).call("rows", [out], []) == 0
    assert out.item() == target.micro_rows
