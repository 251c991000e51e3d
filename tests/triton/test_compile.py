"""Kernels compiled without a GPU: for every architecture, the same bytes anywhere, with records that fit them."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import hardtack
from hardtack.codegen.backends.triton.compile import TritonError, compile_kernels, toolchain
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.backends.triton.ptx import AbiError, Param, check, params
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.cache import KernelCache
from hardtack.codegen.ir.graph import Op
from hardtack.codegen.lower.builder import Lowering, UnsupportedOp
from hardtack.codegen.machine.data import H200, MI300X, gpu_of
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.targets import GPU_TARGETS, TargetError, parse_targets
from hardtack.exporter import to_graphs


class Small(nn.Module):
    """Pointwise, rows, columns, an index that is checked, dynamic sizes and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 16)

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.gelu(self.linear(F.layer_norm(x, (24,)))).softmax(-1)
        return y, x[i].sum(0), x.t().contiguous() + 1


ARGS = (torch.ones(5, 24), torch.tensor([0, 3]))
ROWS = ({0: Dim("rows", min=1, max=4096)}, None)


def kernels(arch: str = "sm_90") -> list[TritonKernel]:
    torch.manual_seed(0)
    graph = to_graphs(Small().eval(), ARGS, {}, ROWS, False).entries["forward"].graph
    found = compile_entry(graph, {}, TritonBackend(gpu_of(arch))).kernels
    return [k.detail for _, k in sorted(found.items()) if isinstance(k.detail, TritonKernel)]


def test_a_bundle_for_every_architecture_and_a_cpu(tmp_path: Path) -> None:
    torch.manual_seed(0)
    targets = [*GPU_TARGETS, "cpu:x86-64-v3"]
    info = hardtack.export(Small().eval(), ARGS, path=tmp_path / "m.pkg", dynamic_shapes=ROWS, targets=targets)
    report = verify_bundle(tmp_path / "m.pkg")
    assert report.num_plans == len(targets)
    assert info.targets == ("cpu:x86-64-v3", *GPU_TARGETS)
    with open_bundle(tmp_path / "m.pkg") as bundle:
        assert set(bundle.manifest.producer) == {"hardtack", "torch", "compiler", "triton", "ptxas", "tuning"}
        assert bundle.manifest.producer["triton"] == importlib.metadata.version("triton")
        for target in GPU_TARGETS:
            plan = bundle.plan("forward", target)
            assert plan.kernels
            assert all(k.gpu is not None and k.gpu.function == k.name for k in plan.kernels)
            checked = [k.gpu for k in plan.kernels if k.gpu is not None and ("status", 0, 0) in k.gpu.args]
            assert len(checked) == 1, "the kernel that indexes, and no other, can fail"


ARCHITECTURES = ("sm_90", "gfx942")


def members(folder: Path) -> list[tuple[str, str]]:
    """(kernel, the name of its code in a bundle, which is a hash of the code), compiled with a cache in the folder."""
    found = {a: compile_kernels(kernels(a), gpu_of(a), cache=KernelCache(folder)) for a in ARCHITECTURES}
    return [(name, code.record.member) for a in ARCHITECTURES for name, code in sorted(found[a].items())]


_CHILD = """
import sys
from pathlib import Path
from tests.triton.test_compile import members
print(members(Path(sys.argv[1])))
"""


def test_the_same_bytes_in_two_folders_under_any_environment(tmp_path: Path) -> None:
    """Here, and in a process with other folders, another seed of hashes and variables of Triton's and ptxas's."""
    here, folder = members(tmp_path / "a" / "cache"), tmp_path / "a_longer_one"
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "TMPDIR": str(folder)}
    env |= {"PYTHONHASHSEED": "12", "TRITON_DEFAULT_FP_FUSION": "1", "PTXAS_OPTIONS": "-O0"}
    env.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-c", _CHILD, str(folder / "cache")]
    said = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert said == f"{here}\n"
    assert len(here) == sum(len(kernels(a)) for a in ARCHITECTURES)


def test_a_second_compilation_comes_from_the_cache(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path)
    first = compile_kernels(kernels()[:2], H200, cache=cache)
    seen: list[tuple[int, int]] = []
    again = compile_kernels(kernels()[:2], H200, cache=cache, progress=lambda *at: seen.append(at))
    assert again == first
    assert seen == [(2, 2)], "both were there at once"


def test_integers_take_32_bits_where_their_bounds_allow() -> None:
    sizes = {a.type for k in kernels() for a in k.arguments if a.role[0] == "int"}
    assert sizes == {"i32"}
    graph = to_graphs(nn.ReLU().eval(), (torch.ones(5, 24),), {}, ({0: Dim.AUTO},), False).entries["forward"].graph
    (rendered,) = compile_entry(graph, {}, TritonBackend(H200)).kernels.values()
    unbounded = rendered.detail
    assert isinstance(unbounded, TritonKernel)
    assert [a.type for a in unbounded.arguments if a.role[0] == "int"] == ["i64"]


class Nearest(nn.Module):
    """One program computes 20,736 places in 64 bits, and reads them again in another order."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = F.interpolate(x, scale_factor=2.3, mode="nearest")
        return torch.view_as_real(torch.fft.rfft(y.nan_to_num(0, 9, -9))), torch.isclose(y, y + 1e-6)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx942"])
def test_long_rows_of_wide_values_fit_shared_memory(arch: str, tmp_path: Path) -> None:
    x = torch.ones(1, 4, 8, 7, 8).to(memory_format=torch.channels_last_3d)
    graph = to_graphs(Nearest().eval(), (x,), {}, None, False).entries["forward"].graph
    backend = TritonBackend(gpu_of(arch))
    kernels = compile_entry(graph, {}, backend).kernels
    assert backend.compile(kernels, backend.machine, cache=KernelCache(tmp_path)).records is not None


def test_a_kernel_that_does_not_compile_is_kept_and_named(tmp_path: Path) -> None:
    (first, *_) = kernels()
    broken = dataclasses.replace(first, text=first.text.replace("tl.store(", "tl.no_such_function("))
    with pytest.raises(TritonError) as caught:
        compile_kernels([broken], H200, cache=KernelCache(tmp_path))
    path = tmp_path / "failed" / f"{first.name}.py"
    assert str(caught.value).startswith(f"Triton cannot compile kernel {first.name} for sm_90 ({path}):\n")
    assert "no_such_function" in str(caught.value)
    assert path.read_text() == broken.text


HEAD = """.visible .entry add_1f(
	.param .u64 .ptr .global .align 1 add_1f_param_0,
	.param .u32 add_1f_param_1,
	.param .align 64 .b8 add_1f_param_2[128],
	.param .u64 add_1f_param_3
)
.reqntid 128
"""


def test_parameters_are_read_from_ptx() -> None:
    found = params(HEAD)
    assert found == (Param(8), Param(4), Param(128, 64), Param(8))
    check("add_1f", found, found)
    with pytest.raises(AbiError) as caught:
        check("add_1f", found, (Param(8), Param(8)))
    assert str(caught.value) == (
        "kernel add_1f: Triton compiled it to parameters of (8, 4, 128 aligned 64, 8) bytes, expected (8, 8); "
        "this version of Triton has another calling convention"
    )


def test_parameters_that_cannot_be_read() -> None:
    with pytest.raises(AbiError, match="cannot be read from its PTX"):
        params(".visible .entry f(\n\t.param .texref f_param_0\n)\n")


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TritonError) as caught:
        TritonBackend(H200).tools()
    assert str(caught.value) == ("target cuda:sm_90 needs Triton to compile kernels: pip install triton==3.6.0")
    with pytest.raises(TritonError, match=r"^target hip:gfx942 needs Triton to compile kernels: "):
        TritonBackend(MI300X).tools()


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "4.0.0"])
def test_versions_of_triton_outside_the_list(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: version)
    with pytest.raises(TritonError) as caught:
        toolchain(H200)
    assert str(caught.value) == (
        f"Triton {version} is installed; Hardtack knows the calling conventions of 3.6 to 3.9: "
        "pip install triton==3.6.0"
    )


def test_unknown_architectures() -> None:
    with pytest.raises(TargetError) as caught:
        parse_targets(["cuda:sm_70"])
    assert str(caught.value) == (
        "unknown target 'cuda:sm_70'; known targets: cpu, cpu:amx, cpu:x86-64-v4-bf16, cpu:x86-64-v4, cpu:x86-64-v3, "
        "cpu:aarch64-bf16, cpu:aarch64, cpu:native, cuda:sm_80, cuda:sm_90, cuda:sm_100, hip:gfx942"
    )


class Rectified(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class WithoutRules(TritonBackend):
    """A backend that can't lower anything."""

    @property
    def rules(self) -> Mapping[str, Callable[[Lowering, Op], None]]:
        return {}


def test_an_op_without_a_kernel_names_the_line() -> None:
    graph = to_graphs(Rectified().eval(), (torch.ones(3),), {}, None, False).entries["forward"].graph
    with pytest.raises(UnsupportedOp) as caught:
        compile_entry(graph, {}, WithoutRules(H200))
    assert re.fullmatch(r"aten\.relu at \S*test_compile\.py:\d+: max has no kernel on sm_90", str(caught.value))
