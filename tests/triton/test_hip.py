"""Kernels for AMD GPUs, compiled without one: every kind of kernel, whole models, records that fit, refusal to run."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from torch import nn

import hardtack
from hardtack.cli import main
from hardtack.codegen.backends.triton.amdgcn import params
from hardtack.codegen.backends.triton.compile import TritonError, code_of
from hardtack.codegen.backends.triton.helpers import HELPERS, module_head
from hardtack.codegen.backends.triton.helpers_codes import CODE_HELPERS
from hardtack.codegen.backends.triton.ptx import AbiError, Param
from hardtack.codegen.machine.data import MI300X
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from hardtack.codegen.package.plan_read import RawGpu
from tests.models.test_bundles import load
from tests.triton.test_compile import kernels

TARGET = "hip:gfx942"
HALF = torch.bfloat16


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., object], *weights: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterList(nn.Parameter(w) for w in weights)

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(*args, *self.weights)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(16, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.lstm(x)[0]
        return found


def ones(*shape: int, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype)


def scattered(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x).scatter_add(0, i, x)


CASES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "pointwise": (Function(lambda x: F.gelu(x) + F.silu(x) + torch.erfinv(x)), (ones(64, 100),)),
    "f64": (Function(lambda x: torch.lgamma(x) + torch.fmod(x, 3) + x.tanh()), (ones(64, dtype=torch.float64),)),
    "reduction": (Function(lambda x: x.sum()), (ones(1 << 20, dtype=torch.float32),)),
    "norm": (Function(lambda x: F.layer_norm(x, (300,))), (ones(50, 300),)),
    "long rows": (Function(lambda x: x.softmax(-1)), (ones(4, 30000),)),
    "gemm": (Function(lambda x, w: F.gelu(F.linear(x, w)), ones(200, 136)), (ones(100, 136),)),
    "one row": (Function(lambda x, w: F.linear(x, w), ones(1024, 1024)), (ones(1, 1024),)),
    "conv": (Function(lambda x, w: F.relu(F.conv2d(x, w, padding=1)), ones(64, 64, 3, 3)), (ones(2, 64, 14, 14),)),
    "attention": (
        Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
        (ones(1, 8, 256, 128), ones(1, 8, 256, 128), ones(1, 8, 256, 128)),
    ),
    "attention decode": (
        Function(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m, enable_gqa=True)),
        (ones(1, 8, 1, 64), ones(1, 2, 512, 64), ones(1, 2, 512, 64), ones(1, 1, 1, 512, dtype=torch.bool)),
    ),
    "sort": (Function(lambda x: x.sort(-1)), (ones(8, 100),)),
    "scan": (Function(lambda x: x.cumsum(-1)), (ones(8, 4096),)),
    "lstm": (Recurrent(), (ones(5, 3, 16, dtype=torch.float32),)),
    "argmax": (Function(lambda x: x.argmax(-1)), (ones(50, 300),)),
    "scatter": (Function(scattered), (ones(8, 4, dtype=torch.float32), torch.zeros(8, 4, dtype=torch.int64))),
    "gather": (Function(lambda x, i: x[i] * 2), (ones(10, 16), torch.tensor([0, 3]))),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cases as the entry points of one bundle."""
    path = tmp_path_factory.mktemp("hip") / "m.pkg"
    modules = {name.replace(" ", "_"): module.eval() for name, (module, _) in CASES.items()}
    inputs = {name.replace(" ", "_"): args for name, (_, args) in CASES.items()}
    hardtack.export(modules, inputs, path=path, targets=(TARGET,))
    return path


def records(path: Path, entry: str = "forward") -> list[RawGpu]:
    with open_bundle(path) as opened:
        return [k.gpu for k in opened.plan(entry, TARGET).kernels if k.gpu is not None]


def assert_sound(path: Path) -> None:
    """Both readers find nothing wrong."""
    verify_bundle(path)
    command = [str(Path(sys.executable).parent / "hardtack-rt"), "verify", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def assert_fitting(found: list[RawGpu]) -> None:
    assert found
    for k in found:
        assert k.member.endswith(".hsaco")
        assert k.threads % 64 == 0
        assert k.threads <= 1024
        assert k.shared_nbytes <= 65536
        assert (k.cluster, k.dependent, k.maps) == (1, False, ())
        assert [a[0] for a in k.args[-2:]] == ["scratch", "null"]


def test_both_readers_accept_every_kind_of_kernel(bundle: Path) -> None:
    assert_sound(bundle)
    with open_bundle(bundle) as opened:
        assert set(opened.manifest.producer) == {"hardtack", "torch", "triton"}, "what assembles is a part of Triton"


@pytest.mark.parametrize("name", CASES)
def test_records_are_within_the_limits(name: str, bundle: Path) -> None:
    found = records(bundle, name.replace(" ", "_"))
    assert_fitting(found)
    if name == "long rows":
        assert max(k.threads for k in found) == 1024, "as many warps of 64 threads as a block can have"
    if name == "gather":
        assert any(("status", 0, 0) in k.args for k in found)


@pytest.mark.parametrize("name", ["mtcnn_pnet", "gpt2"])
def test_whole_models(name: str, tmp_path: Path) -> None:
    model = load(name)
    path = tmp_path / "m.pkg"
    options = hardtack.Options(strict=model.strict)
    hardtack.export(copy.deepcopy(model.module), model.args, path=path, targets=(TARGET,), options=options)
    assert_sound(path)
    assert_fitting(records(path))


def test_no_kernel_has_what_only_nvidia_has() -> None:
    for k in kernels("gfx942"):
        assert "inline_asm" not in k.text
        assert "cuda" not in k.text
    assert any("triton.language.extra.cuda" in k.text or "gdc_wait" in k.text for k in kernels("sm_90"))
    assert all("inline_asm" not in module_head(name, MI300X) for name in {**HELPERS, **CODE_HELPERS})


def refused(path: Path, **how: str) -> str:
    with pytest.raises(hardtack.LoadError) as caught:
        hardtack.load(path, **how)
    return str(caught.value).removeprefix(f"{path}: ")


def test_running_is_refused(bundle: Path) -> None:
    assert refused(bundle) == (
        "nothing in the bundle runs on this machine: hip:gfx942 is for device hip, which this Hardtack does not run"
    )
    assert refused(bundle, target=TARGET) == 'target hip:gfx942 is for device "hip"; this Hardtack runs cpu and cuda'
    for device in ("hip", "hip:0"):
        assert refused(bundle, device=device) == (
            f'device "{device}": this Hardtack runs cpu and cuda; it can check targets for AMD GPUs, but not run them'
        )


def test_a_bundle_with_another_target_runs_that(tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    hardtack.export(nn.ReLU().eval(), (torch.ones(4),), path=path, targets=(TARGET, "cpu:native"))
    assert_sound(path)
    model = hardtack.load(path)
    assert model.target.startswith("cpu:")
    assert model(-torch.ones(4)).tolist() == [0.0] * 4


def test_what_the_tools_say(bundle: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["inspect", str(bundle), "--kernels"])
    assert result.exit_code == 0, result.output
    assert re.search(r"hip:gfx942\s+\S+ \w+\s+gfx942", result.stdout)
    assert re.search(r"softmax_[0-9a-f]{12}\s+[\d,]+\s+1,024\s", result.stdout.partition("kernels for hip:gfx942")[2])
    command = [str(Path(sys.executable).parent / "hardtack-rt"), "inspect", str(bundle)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"hip:gfx942\s+no device hip in this Hardtack", said)


METADATA = """.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
      - .address_space:  global
        .offset:         16
        .size:           8
        .value_kind:     global_buffer
      - .offset:         24
        .size:           4
        .value_kind:     hidden_block_count_x
    .group_segment_fixed_size: 0
    .name:           add
    .symbol:         add.kd
    .wavefront_size: 64
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
"""


def test_parameters_are_read_from_the_metadata() -> None:
    assert params(METADATA) == (Param(8), Param(4), Param(8))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "    .args:",
            "    .params:",
            "the parameters of a kernel cannot be read from its metadata:\n.amdgpu_metadata",
        ),
        (".offset:         16", ".offset:         12", "parameter 2 of a kernel is at byte 12, expected 16"),
        ("by_value", "image", "parameter 1 of a kernel is image, which no launch gives"),
        (
            "block_count_x",
            "hostcall_buffer",
            "parameter 3 of a kernel is hidden_hostcall_buffer, which no launch gives",
        ),
        ("by_value", "hidden_grid_dims", "parameter 2 of a kernel is global_buffer, which no launch gives"),
        ("size: 64", "size: 32", "a kernel's metadata says wavefront_size 32, expected 64"),
        ("fixed_size: 0", "fixed_size: 512", "a kernel's metadata says group_segment_fixed_size 512, expected 0"),
    ],
)
def test_metadata_that_is_not_understood(old: str, new: str, said: str) -> None:
    assert old in METADATA
    with pytest.raises(AbiError) as caught:
        params(METADATA.replace(old, new))
    assert str(caught.value).startswith(said)


def test_too_much_shared_memory_is_refused_when_a_bundle_is_made() -> None:
    (first, *_) = kernels("gfx942")
    answer = {"code": "", "parameters": METADATA, "metadata": {"profile_scratch_size": 0, "shared": 65537}}
    with pytest.raises(TritonError) as caught:
        code_of(first, MI300X, answer)
    limit = MI300X.shared_nbytes
    assert str(caught.value) == f"kernel {first.name} takes 65537 bytes of shared memory; gfx942 has {limit}"
