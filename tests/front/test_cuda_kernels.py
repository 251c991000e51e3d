"""CUDA kernels of users without a GPU: compiled by NVRTC, launched on the null driver, refused in words."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from null_driver import NullDriver
from torch import Tensor

import hardtack
from hardtack import CudaKernel, Plugin
from hardtack.cli import main
from hardtack.codegen.backends.triton import nvrtc
from hardtack.codegen.backends.triton.nvrtc import NvrtcError
from hardtack.codegen.lower.builder import UnsupportedOp
from hardtack.codegen.package.bundle import open_bundle, verify_bundle
from hardtack.exporter import InputSpecError, PluginError, UnsupportedOpError
from tests.front import cuda_ops
from tests.front.cuda_ops import CASES, COUNT, HEAD, ON_CPUS, SCALE, count, scale, scaling


def installed() -> bool:
    try:
        nvrtc.nvrtc()
    except NvrtcError:
        return False
    return True


pytestmark = pytest.mark.skipif(not installed(), reason="needs NVRTC: pip install nvidia-cuda-nvrtc")


def export(folder: Path, name: str, targets: Any = ("cuda:sm_90",), **given: Any) -> Path:
    case, path = CASES[name], folder / f"{name}.pkg"
    given = {"kernels": case.kernels, "dynamic_shapes": case.dynamic, **given}
    hardtack.export(case.module().eval(), case.inputs[0], path=path, targets=targets, **given)
    return path


@pytest.mark.parametrize("name", CASES)
def test_bundles_are_sound_for_every_target(name: str, tmp_path: Path) -> None:
    path = export(tmp_path, name, ("cuda:sm_80", "cuda:sm_90", "cuda:sm_100"))
    verify_bundle(path)
    with open_bundle(path) as bundle:
        function = next(iter(CASES[name].kernels.values())).function
        assert [(k.function, k.host) for k in bundle.manifest.user_kernels] == [(function, False)]
        assert bundle.manifest.producer["nvrtc"] == nvrtc.nvrtc().version


def test_inspect_lists_the_kernel(tmp_path: Path) -> None:
    path = export(tmp_path, "sums", ("cuda:sm_80", "cuda:sm_90"))
    result = CliRunner().invoke(main, ["inspect", str(path), "--kernels"], prog_name="hardtack")
    text = result.stdout
    assert "hardtack_cuda.sum_rows.default is computed by a user's kernel: sum_rows, in the bundle" in text
    assert f"nvrtc {nvrtc.nvrtc().version}" in text
    for target in ("cuda:sm_80", "cuda:sm_90"):
        table = text.partition(f"kernels for {target}")[2]
        assert re.search(r"sum_rows_\w+_[0-9a-f]{12}\s+[\d,]+\s+64\s+512\s+0\s+5", table), text


def test_the_same_bytes_in_another_folder_and_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export(tmp_path, "sums")
    there = tmp_path / "elsewhere"
    there.mkdir()
    (there / "sum_rows.cu").write_text(cuda_ops.SUMS)
    with_file = "dataclasses.replace(cuda_ops.SUM_ROWS, source=None, path=sys.argv[1] + '/sum_rows.cu')"
    script = (
        "import dataclasses, sys; from pathlib import Path; from tests.front import cuda_ops, test_cuda_kernels as t\n"
        f"k = {{cuda_ops.sum_rows: {with_file}}}\n"
        "t.export(Path(sys.argv[1]), 'sums', kernels=k)\n"
    )
    environment = {**os.environ, "HARDTACK_CACHE": str(there / "cache"), "PYTHONPATH": "tests/support"}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script, str(there)], check=True, cwd=root, env=environment)
    assert (there / "sums.pkg").read_bytes() == path.read_bytes()


def at(kind: Any, address: int) -> Any:
    return kind.from_address(address).value


def write_all(driver: NullDriver, params: list[int]) -> None:
    """All that a launch may write to counts as written."""
    for p in params:
        with contextlib.suppress(AssertionError):  # a number
            start, nbytes = driver.allocation(at(ctypes.c_uint64, p))
            driver.written(start, nbytes)[:] = 1


def test_a_launch_passes_what_was_stated(tmp_path: Path, driver: NullDriver) -> None:
    """The launch's parameters are used as the kernel would: what comes out is the op's."""
    grids: list[tuple[int, ...]] = []

    def launch(function: str, params: list[int], grid: tuple[int, ...]) -> None:
        assert function == "scale"
        x, y, n, by = (
            at(k, p)
            for k, p in zip((ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64, ctypes.c_float), params, strict=False)
        )
        grids.append(grid)
        given, made = ((ctypes.c_float * n).from_address(p) for p in (x, y))
        made[:] = [v * by for v in given]
        start, _ = driver.allocation(y)
        driver.written(start, y - start + 4 * n)[y - start :] = 1

    driver.compute(launch)
    session = hardtack.load(export(tmp_path, "scales"), device="cuda", cuda_driver=driver.path).session()
    for (x,) in CASES["scales"].inputs:
        assert torch.equal(torch.as_tensor(session(x)), x * 1.5)
    assert grids == [(1, 1, 1), (2, 1, 1), (16, 1, 1), (1, 1, 1)]


def test_strides_and_a_workspace_are_passed(tmp_path: Path, driver: NullDriver) -> None:
    seen: list[Any] = []

    def launch(function: str, params: list[int], grid: tuple[int, ...]) -> None:
        if function == "sum_rows":
            x, columns, step, kept, sums = (at(ctypes.c_int64, p) for p in params)
            _, nbytes = driver.allocation(kept)
            inside = kept - driver.allocation(kept)[0]
            seen.append((columns, step, grid, inside + grid[0] * 512 <= nbytes, len({x, kept, sums})))
        write_all(driver, params)

    driver.compute(launch)
    session = hardtack.load(export(tmp_path, "sums"), device="cuda", cuda_driver=driver.path).session()
    for (x,) in CASES["sums"].inputs:
        session(x)
    assert seen == [(40, 40, (n, 1, 1), True, 3) for n in (4, 7, 100)]


def test_a_written_state_is_changed_where_it_lies(tmp_path: Path, driver: NullDriver) -> None:
    places: list[tuple[int, int]] = []

    def launch(function: str, params: list[int], grid: tuple[int, ...]) -> None:
        if function == "count":
            places.append((at(ctypes.c_uint64, params[0]), at(ctypes.c_uint64, params[1])))
        write_all(driver, params)

    driver.compute(launch)
    session = hardtack.load(export(tmp_path, "counts"), device="cuda", cuda_driver=driver.path).session()
    for _ in range(2):
        session(torch.ones(3, 40))
    assert len(places) == 4
    assert all(a != b for a, b in places)
    states = {places[0][0], places[1][0]} & {places[2][0], places[3][0]}
    assert states, places


def test_a_grid_of_no_blocks_is_refused_by_the_session(tmp_path: Path, driver: NullDriver) -> None:
    session = hardtack.load(export(tmp_path, "scales"), device="cuda", cuda_driver=driver.path).session()
    with pytest.raises(hardtack.InputError) as caught:
        session(torch.ones(0, 40))
    assert "the grid of the CUDA kernel scale" in str(caught.value)


def test_cpus_take_what_else_the_op_has(tmp_path: Path) -> None:
    x = torch.randn(7, 40)
    targets = ("cpu:native", "cuda:sm_90")
    ways: tuple[dict[str, Any], ...] = (
        {"kernels": {scale: (ON_CPUS, scaling())}},
        {"kernels": {scale: scaling()}, "decompositions": {scale: lambda x, by: x * by}},
    )
    for given in ways:
        path = export(tmp_path, "scales", targets, **given)
        assert torch.equal(torch.as_tensor(hardtack.load(path, device="cpu")(x)), x * 1.5)
        with open_bundle(path) as bundle:
            assert [t.name for t in bundle.manifest.targets] == [*targets]


def test_a_plugin_brings_kernels(tmp_path: Path) -> None:
    options = hardtack.Options(plugins=(Plugin("scales", "1.0", kernels={scale: scaling()}),))
    path = export(tmp_path, "scales", kernels=None, options=options)
    with open_bundle(path) as bundle:
        assert bundle.manifest.producer["plugin scales"] == "1.0"


CALL = "the kernel of hardtack_cuda.scale.default of the argument kernels"
LINE = "\n  at tests/front/cuda_ops.py:LINE\n    return scale(x, 1.5)"
TAKES = ("const float* x", "float* result", "int64_t x.numel", "float by")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"grid": 0}, f"the grid of {CALL} gives 0 blocks in dimension 0; it must be 1 to 2147483647"),
        ({"grid": (1, 65536)}, f"the grid of {CALL} gives 65536 blocks in dimension 1; it must be 1 to 65535"),
        ({"grid": (1, 1, 1, 1)}, f"the grid of {CALL} gives 4 sizes; it must be 1 to 3"),
        ({"grid": lambda x, by: by}, f"the grid of {CALL} gives a float, which is no size"),
        ({"block": 100}, f"the block of {CALL} gives 100 threads; it must be a multiple of 32, up to 1024"),
        ({"block": 2048}, f"the block of {CALL} gives 2048; it must be 32 to 1024"),
        (
            {"block": lambda x, by: x.shape[0]},
            f"the block of {CALL} depends on a dynamic size; it must be one number for all sizes",
        ),
        (
            {"arguments": ("const int32_t* x", *TAKES[1:])},
            f"{CALL} is passed x, a tensor of f32, as const int32_t*; it must be const float*",
        ),
        (
            {"arguments": ("float* x", *TAKES[1:])},
            f"{CALL} is passed x, a tensor of f32, as float*; it must be const float*",
        ),
        (
            {"arguments": (*TAKES[:3], "int32_t by")},
            f"{CALL} is passed by, a float, as int32_t; it must be float or double",
        ),
        (
            {"arguments": (*TAKES[:2], "float x.numel", "float by")},
            f"{CALL} is passed x.numel, a whole number, as float; it must be int32_t or int64_t",
        ),
        ({"arguments": (*TAKES[:3], "float scale")}, f"{CALL} is passed scale, and the op has the arguments x, by"),
        ({"arguments": (*TAKES[:2], "int64_t x.shape[2]")}, f"{CALL} is passed x.shape[2], and it has 2 dimensions"),
        (
            {"arguments": (*TAKES[:2], "int64_t x.size[0]")},
            f"{CALL} is passed x.size[0], which is none of "
            "x, x.numel, x.shape[0], x.stride[0], result[0] and workspace",
        ),
        ({"arguments": (*TAKES[:1], "float* result[1]")}, f"{CALL} is passed result[1], and the op has 1 results"),
        ({"arguments": TAKES[:1]}, f"{CALL} is not passed result[0], which it must write"),
        (
            {"arguments": (*TAKES, "uint8_t* workspace")},
            f"the workspace of {CALL} gives 0 bytes, and the kernel takes one",
        ),
        ({"workspace": 8}, f"{CALL} asks for a workspace, and takes none"),
    ],
)
def test_what_does_not_fit_is_told(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(PluginError) as caught:
        export(tmp_path, "scales", kernels={scale: scaling(**given)})
    said = re.sub(r"(\.py):\d+", r"\1:LINE", str(caught.value).replace(f"{Path(__file__).parents[2]}/", ""))
    assert said == words + LINE
    assert not (tmp_path / "scales.pkg").exists()


VERSION = nvrtc.nvrtc().version if installed() else ""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (
            SCALE.replace("x[i] * by", "z[i] * by"),
            f"the CUDA kernel scale of scale.cu does not compile for sm_90 with NVRTC {VERSION}:\n"
            'scale.cu(5): error: identifier "z" is undefined\n'
            "    if (i < n) y[i] = z[i] * by;\n                      ^\n\n"
            '1 error detected in the compilation of "scale.cu".',
        ),
        (
            SCALE.replace("void scale", "void scales"),
            'scale.cu has no kernel scale: it must be extern "C" __global__ void scale(const float*, float*, int64_t, '
            "float), in no namespace",
        ),
        (
            SCALE.replace('extern "C" ', ""),
            'scale.cu has no kernel scale: it must be extern "C" __global__ void scale(const float*, float*, int64_t, '
            "float), in no namespace",
        ),
        (
            SCALE.replace("int64_t n, float by", "int32_t n, float by"),
            "scale of scale.cu, the kernel of hardtack_cuda.scale at tests/front/cuda_ops.py:LINE, does not take the "
            "arguments that are stated: they are (const float*, float*, int64_t, float), of void scale",
        ),
        (
            SCALE.replace("  const", "  __shared__ volatile float much[20000];\n  much[n] = 1;\n  const"),
            f"the CUDA kernel scale of scale.cu does not compile for sm_90 with NVRTC {VERSION}:\n"
            "ptxas error   : Entry function 'scale' uses too much shared data (0x13880 bytes, 0xc000 max)",
        ),
        (
            "#include <cuda_fp16.h>\n" + SCALE,
            f"the CUDA kernel scale of scale.cu does not compile for sm_90 with NVRTC {VERSION}:\n"
            'scale.cu(1): catastrophic error: could not open source file "cuda_fp16.h" '
            "(no directories in search list)\n"
            "  #include <cuda_fp16.h>\n                        ^\n\n"
            '1 catastrophic error detected in the compilation of "scale.cu".\nCompilation terminated.',
        ),
    ],
)
def test_a_text_that_is_no_such_kernel_is_told(source: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(NvrtcError) as caught:
        export(tmp_path, "scales", kernels={scale: scaling(source)})
    assert re.sub(r"(\.py):\d+", r"\1:LINE", str(caught.value)) == words
    assert not (tmp_path / "scales.pkg").exists()


def test_more_shared_memory_than_the_target_has_is_told(tmp_path: Path) -> None:
    kernel = scaling(SCALE.replace("  const", "  __shared__ volatile float some[100];\n  some[n] = 1;\n  const"))
    with pytest.raises(NvrtcError) as caught:
        export(tmp_path, "scales", ("cuda:sm_80",), kernels={scale: cuda_ops.replaced(kernel, shared=166_900)})
    assert re.sub(r"(\.py):\d+", r"\1:LINE", str(caught.value)) == (
        "the CUDA kernel scale of hardtack_cuda.scale at tests/front/cuda_ops.py:LINE takes 167300 bytes of shared "
        "memory; sm_80 has 166912: give it smaller blocks, or less of it"
    )


def test_an_nvrtc_that_is_missing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_packaged", lambda: None)
    monkeypatch.setattr(nvrtc, "_loose", lambda: None)
    nvrtc.nvrtc.cache_clear()
    try:
        with pytest.raises(NvrtcError) as caught:
            export(tmp_path, "scales")
    finally:
        nvrtc.nvrtc.cache_clear()
    assert str(caught.value) == (
        "users' CUDA kernels are compiled by NVRTC, which is not installed: pip install 'hardtack[cuda]', or pip "
        "install nvidia-cuda-nvrtc"
    )
    assert not (tmp_path / "scales.pkg").exists()


def test_a_library_without_its_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnvrtc.so.13").write_bytes(b"abc")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert nvrtc._loose() == (folder / "libnvrtc.so.13", "13+ba7816bf8f01")


def said_of(given: dict[str, Any]) -> str:
    with pytest.raises(ValueError, match="scale") as caught:
        scaling(**given)
    return str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"abi": 2},
            "the kernel scale is written for version 2 of hardtack/cuda_kernel.h, and this Hardtack has 1: use a "
            "kernel for it, or a newer Hardtack",
        ),
        ({"path": "x.cu"}, "CudaKernel of scale has both source and path; give one of source and path"),
        (
            {"arguments": ("const float*",)},
            "CudaKernel.arguments of scale has 'const float*'; each must be a type and what is passed, as "
            '"const float* x" or "int64_t x.shape[0]"',
        ),
        ({"shared": -1}, "CudaKernel.shared of scale is -1; it must be a number or a function"),
        (
            {"source": SCALE + "// __TIME__"},
            "scale.cu names __TIME__: a kernel of one text is one kernel, whenever it is compiled",
        ),
    ],
)
def test_a_kernel_that_is_none_is_told(given: dict[str, Any], words: str) -> None:
    assert said_of(given) == words


def test_a_name_that_is_no_functions_is_told() -> None:
    with pytest.raises(ValueError, match="a::b") as caught:
        CudaKernel("a::b", SCALE, arguments=(), grid=1, block=32)
    assert str(caught.value) == "CudaKernel.function is 'a::b'; it must be the name of a function"


def test_two_kernels_for_gpus_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputSpecError) as caught:
        export(tmp_path, "scales", kernels={"hardtack_cuda::scale": (scaling(), scaling())})
    assert caught.value.what == ("hardtack_cuda::scale has two kernels of the argument kernels for one kind of device")


def test_amd_gpus_are_told_that_they_have_no_kernel(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOp) as caught:
        export(tmp_path, "scales", ("hip:gfx942",))
    assert re.sub(r"(\.py):\d+", r"\1:LINE", str(caught.value)) == (
        "hardtack_cuda.scale at tests/front/cuda_ops.py:LINE: its kernel, scale, is CUDA C++, for NVIDIA's GPUs; give "
        "the op a decomposition or a lowering, which all targets take, or leave these targets out: there is no kernel "
        "of it on hip:gfx942"
    )


@pytest.mark.parametrize("targets", [("cpu:native",), ("cpu:native", "cuda:sm_90")])
def test_cpus_are_told_that_they_have_no_kernel(targets: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        export(tmp_path, "scales", targets)
    assert caught.value.ops[0].reason == (
        "its kernel, scale, is CUDA C++, for NVIDIA's GPUs: give CPUs a function of it in torch's ops, as export("
        "decompositions={'hardtack_cuda::scale': function}), or in C++, as kernels={'hardtack_cuda::scale': "
        "(CppKernel(...), CudaKernel(...))}, or export for these GPUs alone"
    )


def test_options_that_are_measured_on_cpus_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputSpecError) as caught:
        export(tmp_path, "scales", options=hardtack.Options(compute="bf16"))
    assert caught.value.what == (
        "what compute costs is measured by running the model on a CPU, where its kernels for GPUs do not run: "
        "hardtack_cuda.scale.default"
    )


def test_one_value_that_is_read_and_written_is_two(tmp_path: Path, driver: NullDriver) -> None:
    """What is written has memory of its own, also where it begins as what is read."""

    def both(x: Tensor) -> Tensor:
        y = x * 2
        total = y.clone()
        count(total, y)
        return total

    path = tmp_path / "m.pkg"
    hardtack.export(both, (torch.ones(3, 40),), path=path, targets=("cuda:sm_90",), kernels={count: COUNT})
    verify_bundle(path)
    read: list[tuple[int, int]] = []

    def launch(function: str, params: list[int], grid: tuple[int, ...]) -> None:
        if function == "count":
            read.append((at(ctypes.c_uint64, params[0]), at(ctypes.c_uint64, params[1])))
        write_all(driver, params)

    driver.compute(launch)
    hardtack.load(path, device="cuda", cuda_driver=driver.path)(torch.ones(3, 40))
    assert len(read) == 1
    assert read[0][0] != read[0][1]


def test_a_header_has_what_texts_need(tmp_path: Path) -> None:
    source = HEAD + "static_assert(sizeof(int64_t) == 8 && sizeof(ht_half) == 2 && HT_CUDA_ABI_VERSION == 1);\n" + SCALE
    export(tmp_path, "scales", kernels={scale: scaling(source)})
