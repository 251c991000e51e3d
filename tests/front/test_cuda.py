"""hardtack.load(device="cuda") through the null driver: what Python callers give and get. Nothing is computed."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample
import sample_cuda
from null_driver import NullDriver

import hardtack
from hardtack.codegen.ir.expr import const, sym
from hardtack.codegen.ir.plan import BufferParam, GpuKernel, KernelRecord, Launch, Plan, PlanSym, Value
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.bundle import verify_bundle
from hardtack.codegen.package.content import BundleContent, kernel_member
from hardtack.codegen.package.writer import write_bundle

LAUNCH = "launch scale_kernel grid 6x1x1 block 128 shared 65536"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "model.pkg"
    write_bundle(path, sample_cuda.content())
    return path


def load(bundle: Path, driver: NullDriver) -> hardtack.Model:
    return hardtack.load(bundle, device="cuda", cuda_driver=driver.path)


class Foreign:
    """A tensor of another library on the device; notes the stream on which it is asked for."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()  # type: ignore[no-any-return]

    def __dlpack__(self, *, stream: int) -> Any:
        self.streams.append(stream)
        return self.tensor.__dlpack__()


def test_numpy_goes_in_and_comes_out(bundle: Path, driver: NullDriver) -> None:
    model = load(bundle, driver)
    assert (model.device, model.place, model.target) == ("cuda", "cuda:0", "cuda:sm_90")
    driver.log()
    y = model(np.ones((3, 4), np.float32))
    assert isinstance(y, np.ndarray)
    assert (y.shape, y.dtype) == ((3, 4), np.dtype(np.float32))
    log = driver.log()
    assert log.count(LAUNCH) == 2
    assert log.count("copy_in 48") == log.count("copy_out 48") == 1
    assert sum(line.startswith("map rank 2") for line in log) == 2
    model(np.ones((3, 4), np.float32))
    assert not [line for line in driver.log() if line.startswith("map")]  # made once for a pointer


def test_torch_tensors_of_the_cpu_are_copied(bundle: Path, driver: NullDriver) -> None:
    torch = pytest.importorskip("torch")
    y = load(bundle, driver)(torch.ones(3, 4))
    assert (y.device.type, tuple(y.shape), y.dtype) == ("cpu", (3, 4), torch.float32)


def test_device_tensors_pass_between_calls_without_copies(bundle: Path, driver: NullDriver) -> None:
    session = load(bundle, driver).session(outputs="device")
    first = session(np.ones((3, 4), np.float32))
    assert (first.shape, first.dtype, first.__dlpack_device__()) == ((3, 4), "f32", (2, 0))
    driver.log()
    foreign = Foreign(first)
    second = session(foreign)
    log = driver.log()
    assert not [line for line in log if line in ("copy_in 48", "copy 48", "copy_out 48")]
    assert log.count(LAUNCH) == 2
    assert len(foreign.streams) == 1
    assert foreign.streams[0] > 2
    assert second.shape == (3, 4)


def test_a_session_on_a_stream_asks_for_tensors_there(bundle: Path, driver: NullDriver) -> None:
    model = load(bundle, driver)
    foreign = Foreign(model.session(outputs="device")(np.ones((3, 4), np.float32)))
    model.session(stream=2, asynchronous=True)(foreign)
    assert foreign.streams == [2]


def test_repeated_calls_become_graphs(bundle: Path, driver: NullDriver) -> None:
    model = load(bundle, driver)
    assert model.entries["forward"].no_graph == ""
    for graphs in (True, False):
        session = model.session(graphs=graphs)
        for _ in range(3):  # host arrays go through the session's memory, whose places stay
            session(np.ones((3, 4), np.float32))
        assert session.memory["num_graphs"] == int(graphs)


def test_what_a_kernel_reports_is_raised(bundle: Path, driver: NullDriver) -> None:
    model = load(bundle, driver)
    driver.set("REPORT", "scale_kernel:6:7:1")
    with pytest.raises(hardtack.RunError) as caught:
        model(np.ones((3, 4), np.float32))
    place = 'entry "forward", instruction 0 (model.py:12, aten.mul.Tensor)'
    assert str(caught.value) == f"{place}: an index is out of range [kernel k_scale]"


def test_an_asynchronous_session_raises_later(bundle: Path, driver: NullDriver) -> None:
    session = load(bundle, driver).session(asynchronous=True, outputs="device")
    driver.set("REPORT", "scale_kernel:6:7:2")
    session(np.ones((3, 4), np.float32))
    with pytest.raises(hardtack.RunError, match="an assertion of the model failed"):
        session.synchronize()


def test_a_failing_device_is_told_with_its_place(bundle: Path, driver: NullDriver) -> None:
    model = load(bundle, driver)
    driver.set("FAIL", "cuLaunchKernelEx=701")
    with pytest.raises(hardtack.RunError, match=r"instruction 0 .*k_scale.*CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
        model(np.ones((3, 4), np.float32))


def test_constants_arrive_as_they_are(driver: NullDriver, tmp_path: Path) -> None:
    """Also those next to an empty one, which lies at the address of the one behind it, and those of equal bytes."""
    arrays = {
        "a": np.arange(4, dtype=np.float32),
        "b": np.zeros((0, 16), np.float32),
        "c": np.arange(5, 105, dtype=np.float32),
        "d": np.zeros(0, np.float32),
        "e": np.arange(4, dtype=np.float32),
        "f": np.full(3, 7, np.float32),
    }
    path = tmp_path / "model.pkg"
    write_bundle(path, sample_cuda.with_constants(arrays))
    found: dict[str, np.ndarray[Any, Any]] = {}

    def copy(function: str, params: list[int], grid: tuple[int, ...]) -> None:
        for (name, array), at in zip(arrays.items(), params, strict=False):
            address = ctypes.c_uint64.from_address(at).value
            assert driver.written(address, array.nbytes).all(), name
            found[name] = np.frombuffer(ctypes.string_at(address, array.nbytes), np.float32)
        result = ctypes.c_uint64.from_address(params[len(arrays) + 1]).value
        driver.written(result, 16)[:] = 1

    driver.compute(copy)
    load(path, driver)(np.ones(4, np.float32))
    assert {n: a.tolist() for n, a in found.items()} == {n: a.reshape(-1).tolist() for n, a in arrays.items()}


def test_an_observer_sees_copies(bundle: Path, driver: NullDriver) -> None:
    session = load(bundle, driver).session()
    seen: list[Any] = []
    session.observe(lambda step: seen.append((step["kernel"], step["values"])))
    session(np.ones((3, 4), np.float32))
    assert [kernel for kernel, _ in seen] == ["k_scale", "k_scale"]
    assert seen[1][1]["y"].tobytes() == b"\xcd" * 48


def test_no_driver_and_no_target(bundle: Path, driver: NullDriver, tmp_path: Path) -> None:
    with pytest.raises(hardtack.LoadError, match=r"there is no CUDA driver: .*none\.so: cannot open.*device \"cpu\""):
        hardtack.load(bundle, device="cuda", cuda_driver=str(tmp_path / "none.so"))
    with pytest.raises(hardtack.LoadError, match="cuda:sm_90 is for device cuda"):
        hardtack.load(bundle)
    driver.set("ARCH", "80")
    with pytest.raises(hardtack.LoadError, match=r"cuda:sm_90 needs sm_90; this device \(NVIDIA Null\) is sm_80"):
        load(bundle, driver)


def test_the_command_runs_on_the_device(bundle: Path, null_library: Path, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(null_library)
    np.save(tmp_path / "x.npy", np.ones((3, 4), np.float32))
    command = [str(Path(sys.executable).parent / "hardtack-rt"), "run", str(bundle), "--device", "cuda:0"]
    arguments = ["-i", f"x={tmp_path / 'x.npy'}", "-o", str(tmp_path / "out")]
    environment = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "HARDTACK_NULL_STRICT": "1"}
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "out" / "y.npy").tobytes() == b"\xcd" * 48


TRITON = """
import sys
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1.0, mask=i < n)

signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
attrs = {(i,): [["tt.divisibility", 16]] for i in (0, 1)}
source = ASTSource(add_one, signature=signature, constexprs={"BLOCK": 256}, attrs=attrs)
compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
open(sys.argv[1], "wb").write(compiled.asm["cubin"])
"""


def triton_content(code: bytes) -> BundleContent:
    """sample_cuda with a kernel that Triton compiled: y = x + 1 over 4 * n elements."""
    n, one, four = sym("n", 0, 64), const(1), const(4)
    f32, shape, strides = DType.F32, (n, four), (four, one)
    values = tuple(Value(name, f32, shape, strides, (kind, 0)) for name, kind in (("x", "input"), ("y", "output")))
    args = (("buffer", 0), ("buffer", 1), ("int", 0, "i32"), ("scratch",), ("null",))
    gpu = GpuKernel(kernel_member(code), "add_one", 128, 0, args)
    kernel = KernelRecord("k_add", (BufferParam(f32, "read"), BufferParam(f32, "write")), 1, gpu)
    launch = Launch("k_add", ("x", "y"), (n * 4,), grid=((n * 4 + 255) // 256, one, one))
    kernel = sample.declared(kernel, (n * 4, n * 4), launch)
    plan = Plan(
        "forward", "cuda:sm_90", (PlanSym(n, 0, 0),), (), values, ("x",), ("y",), (kernel,), (launch,), const(0)
    )
    base = sample_cuda.content()
    return BundleContent(
        base.entries, base.targets, {("forward", "cuda:sm_90"): plan}, (), kernels={kernel_member(code): code}
    )


def test_code_of_triton_has_the_parameters_of_its_record(driver: NullDriver, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "kernel.py").write_text(TRITON, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}  # other tests interpret
    environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
    subprocess.run([sys.executable, tmp_path / "kernel.py", tmp_path / "code"], env=environment, check=True)
    path = tmp_path / "model.pkg"
    write_bundle(path, triton_content((tmp_path / "code").read_bytes()))
    assert verify_bundle(path).num_plans == 1
    model = load(path, driver)
    driver.log()
    model(np.ones((64, 4), np.float32))
    assert [line for line in driver.log() if line.startswith("launch")] == [
        "launch add_one grid 1x1x1 block 128 shared 0"
    ]


def test_results_of_an_earlier_run_are_written_again(bundle: Path, driver: NullDriver) -> None:
    """How tuning replays one graph: a call with the same inputs and outputs."""
    session = load(bundle, driver).session(outputs="device", asynchronous=True)
    leaves = [np.ones((3, 4), np.float32)]
    first = session._native.run(0, leaves)
    for _ in range(2):
        assert session._native.run(0, leaves, first)[0] is first[0]
    assert session.memory["num_graphs"] == 1
    with pytest.raises(ValueError, match="output 0 has another form now"):
        session._native.run(0, [np.ones((2, 4), np.float32)], first)
