"""The systems that are compared: each turns a module and its inputs into a call without arguments."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from bench import quantisers
from bench.machine import multiplies_bytes
from bench.models import Case
from bench.work import Work, work_of

Run = Callable[[], Any]
"""Runs the model once on its inputs and gives its outputs, a tree of tensors or arrays."""


_ONNX_NBYTES = 1 << 30
"""Of weights in a file of ONNX, which may have 2 GiB in all."""


class System(ABC):
    """One way to run a model.

    folder: where its files go; one that is there already serves again. export_seconds: how long the last `prepare` took
    to make the model ready ahead of its first run; None: not made. shapes: of what Hardtack then made for a GPU, those
    that a tuning table has, and all. work: of one run, where it was counted.
    """

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.export_seconds: float | None = None
        self.shapes: tuple[int, int] | None = None
        self.work: Work | None = None

    @abstractmethod
    def prepare(self, case: Case, threads: int) -> Run:
        """Makes `case` ready to run with `threads` threads. May be called again with other threads."""

    def made(self, path: Path, make: Callable[[], object]) -> Path:
        """`path`, after making it and taking the time of it, unless it is there."""
        if path.exists():
            return path
        begin = time.perf_counter()
        make()
        self.export_seconds = time.perf_counter() - begin
        return path


class Eager(System):
    """torch as it is, in float32 whatever the dtype of the others: its outputs are what theirs are compared with."""

    name = "eager"

    def prepare(self, case: Case, threads: int) -> Run:
        torch.set_num_threads(threads)
        self.work = self.work or work_of(case.module, case.args)
        return lambda: case.module(*case.args)


class Compile(System):
    """torch.compile with its defaults."""

    name = "compile"

    def prepare(self, case: Case, threads: int) -> Run:
        torch.set_num_threads(threads)
        torch.compiler.reset()
        case = case.cast()
        compiled = torch.compile(case.module, dynamic=False)
        begin = time.perf_counter()
        compiled(*case.args)
        self.export_seconds = time.perf_counter() - begin
        return lambda: compiled(*case.args)


class AOTInductor(System):
    """torch.export and AOTInductor with frozen weights, its package loaded into this process."""

    name = "aoti"

    def prepare(self, case: Case, threads: int) -> Run:
        from torch._inductor import aoti_compile_and_package, aoti_load_package

        if threads:  # none on a GPU
            torch.set_num_threads(threads)  # the package is compiled for this number
        case = case.cast()
        path = self.folder / f"{case.name}.{threads}.pt2"

        def make() -> None:
            program = torch.export.export(case.module, case.args, strict=False)
            aoti_compile_and_package(program, package_path=str(path), inductor_configs={"freezing": True})

        self.made(path, make)
        loaded = aoti_load_package(str(path))
        return lambda: loaded(*case.args)


class Onnx(System):
    """A system that reads what torch.onnx writes."""

    def written(self, case: Case) -> Path:
        """The file of `case` as its module is, which the first system to need it writes for all."""
        path = self.folder / f"{case.name}.{case.module_dtype}.onnx"
        return self.made(path, lambda: self._write(case, path))

    def _write(self, case: Case, path: Path) -> None:
        """Writes the file, with its weights, which ONNX Runtime's quantiser finds nowhere else, if it has room."""
        apart = sum(p.nbytes for p in case.module.parameters()) > _ONNX_NBYTES
        torch.onnx.export(case.module, case.args, str(path), dynamo=True, verbose=False, external_data=apart)


class OnnxRuntime(Onnx):
    """ONNX Runtime's CPU provider with all its optimisations."""

    name = "ort"

    def written(self, case: Case) -> Path:
        source = super().written(case)
        if not case.int8:
            return source
        path = self.folder / f"{case.name}.{self.name}.onnx"
        reduce_range = not multiplies_bytes()
        return self.made(path, lambda: quantisers.by_onnxruntime(source, case.args, path, reduce_range))

    def prepare(self, case: Case, threads: int) -> Run:
        import onnxruntime

        case = self.taken(case)
        path = self.written(case)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = session.get_inputs()
        feed = {i.name: a.numpy() for i, a in zip(inputs, case.args, strict=True)}
        return lambda: session.run(None, feed)

    def taken(self, case: Case) -> Case:
        """What is written of `case`."""
        return case.cast()


class OnnxRuntimeFloat32(OnnxRuntime):
    """The same in float32, beside int8."""

    name = "ort-f32"

    def taken(self, case: Case) -> Case:
        return replace(case, dtype=torch.float32)


class OpenVino(Onnx):
    """OpenVINO's CPU plugin in its latency mode: one request that serves all runs, on inputs and outputs it shares.

    The model, its inputs and its outputs are float32, and it is told to compute in the dtype, all that is not int8 in
    float32. Raises RuntimeError on a CPU where it would compute in another.
    """

    name = "openvino"

    def prepare(self, case: Case, threads: int) -> Run:
        import openvino

        case = self.taken(case)
        precision = {torch.bfloat16: "bf16", torch.float16: "f16"}.get(case.dtype, "f32")
        if case.int8:
            model = openvino.Core().read_model(self.quantised(case))
        else:
            model = openvino.convert_model(self.written(case))
        config = {
            "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1, "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": precision,
        }  # fmt: skip
        compiled = openvino.Core().compile_model(model, "CPU", config)
        check_precision(precision, compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        request = compiled.create_infer_request()
        feed = [a.numpy() for a in case.args]
        return lambda: list(request.infer(feed, share_inputs=True, share_outputs=True).values())

    def quantised(self, case: Case) -> Path:
        """The file of what NNCF makes."""
        import openvino

        source, path = self.written(case), self.folder / f"{case.name}.{self.name}.xml"

        def make() -> None:
            model = quantisers.by_nncf(openvino.convert_model(source), case.args, case.has_attention)
            openvino.save_model(model, str(path), compress_to_fp16=False)

        return self.made(path, make)

    def taken(self, case: Case) -> Case:
        """What is computed of `case`."""
        return case


class OpenVinoFloat32(OpenVino):
    """The same in float32, beside int8."""

    name = "openvino-f32"

    def taken(self, case: Case) -> Case:
        return replace(case, dtype=torch.float32)


def check_precision(asked: str, taken: str) -> None:
    """Raises RuntimeError where OpenVINO has `taken` another type than it was asked for, as it does without a word."""
    if taken != asked:
        raise RuntimeError(f"OpenVINO computes in {taken} on this CPU, not in {asked}")


class Hardtack(System):
    """A bundle for this machine's CPU, loaded into this process; inputs and outputs are numpy arrays, or tensors in
    bfloat16, which numpy lacks."""

    name = "hardtack"

    def prepare(self, case: Case, threads: int) -> Run:
        import hardtack

        options = hardtack.Options(compute=self.compute(case.dtype))
        case = self.taken(case)
        path = self.folder / f"{case.name}.{self.name}.pkg"

        def make() -> None:
            module = quantisers.read_pt2e(self._quantised(case)) if case.int8 else case.module
            hardtack.export(module, case.args, path=path, targets=("cpu:native",), options=options)

        if self.export_seconds is None:
            path.unlink(missing_ok=True)  # of another state of Hardtack, it may be
            self.made(path, make)
        session = hardtack.load(path, threads=threads).session()
        inputs = case.args if case.dtype is torch.bfloat16 else tuple(a.numpy() for a in case.args)
        return lambda: session(*inputs)

    def _quantised(self, case: Case) -> Path:
        """The file of what PT2E makes."""
        path, reduce_range = self.folder / f"{case.name}.{self.name}.pt2", not multiplies_bytes()
        return self.made(path, lambda: quantisers.by_pt2e(case.module, case.args, path, reduce_range))

    def taken(self, case: Case) -> Case:
        """What is exported of `case`."""
        return case.cast()

    def compute(self, dtype: torch.dtype) -> str:
        """Options.compute."""
        return "f32"


class HardtackFloat32(Hardtack):
    """The same in float32, beside 16-bit types and int8."""

    name = "hardtack-f32"

    def taken(self, case: Case) -> Case:
        return replace(case, dtype=torch.float32)


class HardtackProducts(HardtackFloat32):
    """The float32 model with its products in 16 bits, as OpenVINO takes it."""

    name = "hardtack-compute"

    def compute(self, dtype: torch.dtype) -> str:
        return {torch.bfloat16: "bf16", torch.float16: "f16"}.get(dtype, "f32")


SYSTEMS: Mapping[str, type[System]] = {
    s.name: s
    for s in (
        Eager, Compile, AOTInductor, OnnxRuntimeFloat32, OnnxRuntime, OpenVinoFloat32, OpenVino, HardtackFloat32,
        HardtackProducts, Hardtack,
    )
}  # fmt: skip
PEERS = ("compile", "aoti", "ort", "openvino")
BY_DTYPE = {
    "float32": ("eager", "compile", "aoti", "ort", "openvino", "hardtack"),
    "bfloat16": ("eager", "aoti", "openvino", "hardtack-f32", "hardtack-compute", "hardtack"),
    "float16": ("eager", "aoti", "ort", "openvino", "hardtack-f32", "hardtack-compute", "hardtack"),
    "int8": ("eager", "ort-f32", "openvino-f32", "hardtack-f32", "ort", "openvino", "hardtack"),
}
"""The systems that take part. ONNX Runtime has no products of bfloat16 for CPUs."""
