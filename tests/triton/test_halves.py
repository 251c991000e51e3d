"""Pairs of 16-bit sums: ptxas loses a constant, so it gets none."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hardtack.codegen.backends.triton.compile import compile_kernels
from hardtack.codegen.backends.triton.halves import halves_apart
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import compile_entry
from hardtack.exporter import to_graphs

APART = (
    "\t{ .reg .b16 %half<4>; mov.b32 {%half0, %half1}, %r1; mov.b32 {%half2, %half3}, %r2; "
    "add.s16 %half0, %half0, %half2; add.s16 %half1, %half1, %half3; mov.b32 %r3, {%half0, %half1}; }\n"
)


def test_each_half_has_an_operation_of_its_own() -> None:
    assert halves_apart("\tadd.s16x2 \t%r3, %r1, %r2;\n") == APART
    assert "max.u16 %half1, %half1, %half3;" in halves_apart("\tmax.u16x2 \t%r3, %r1, 65537;\n")


@pytest.mark.parametrize(
    "line", ["\tcvt.rn.f16x2.f32 \t%r2, %r1, %r0;\n", "\tadd.f16x2 \t%r2, %r1, %r0;\n", "\tret;\n"]
)
def test_other_lines_stay(line: str) -> None:
    assert halves_apart(line) == line


@pytest.mark.parametrize(
    "text", ["neg.s16x2 %r1, %r2;", "min.relu.s16x2 %r1, %r2, %r3;", "@%p1 add.s16x2 %r1, %r2, %r3;"]
)
def test_an_unknown_operation_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="on two halves of another kind"):
        halves_apart(f"\t{text}\n")


class Area(nn.Module):
    """LLVM adds 4 to one of two indices in one register: where the first window begins, and the second ends."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_avg_pool3d(x, (11, 18, 16))


def test_machine_code_adds_no_pairs(tmp_path: Path) -> None:
    triton = importlib.util.find_spec("triton")
    assert triton is not None
    assert triton.submodule_search_locations
    x = torch.ones(2, 4, 5, 8, 7, dtype=torch.float16)
    graph = to_graphs(Area().eval(), (x,), {}, None, False).entries["forward"].graph
    found = compile_entry(graph, {}, TritonBackend(H200)).kernels.values()
    kernels = [k.detail for k in found if isinstance(k.detail, TritonKernel)]
    disassembler = Path(triton.submodule_search_locations[0]) / "backends" / "nvidia" / "bin" / "nvdisasm"
    (tmp_path / "code").mkdir()
    for name, code in compile_kernels(kernels, H200, cache=KernelCache(tmp_path / "cache")).items():
        path = tmp_path / "code" / name
        path.write_bytes(code.code)
        said = subprocess.run([disassembler, "-c", path], check=True, capture_output=True, text=True).stdout
        assert "IMAD" in said
        assert "16x2" not in said
