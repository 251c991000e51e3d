"""The systems that are compared: each turns a module and its inputs into a call without arguments."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from bench.models import Case

Run = Callable[[], Any]
"""Runs the model once on its inputs and gives its outputs, a tree of tensors or arrays."""


class System(ABC):
    """One way to run a model.

    folder: where its files go. keep: use a file that is already there instead of making it again.
    export_seconds: how long the last `prepare` took to make the model ready ahead of its first run; None: not made.
    shapes: of what Hardtack then made for a GPU, those that a tuning table has, and all.
    """

    name: str

    def __init__(self, folder: Path, keep: bool = False) -> None:
        self.folder = folder
        self.keep = keep
        self.export_seconds: float | None = None
        self.shapes: tuple[int, int] | None = None

    @abstractmethod
    def prepare(self, case: Case, threads: int) -> Run:
        """Makes `case` ready to run with `threads` threads. May be called again with other threads."""

    def made(self, path: Path, make: Callable[[], object]) -> Path:
        """`path`, after making it and taking the time of it, unless it is there and may be kept."""
        if self.keep and path.exists():
            self.export_seconds = None
            return path
        begin = time.perf_counter()
        make()
        self.export_seconds = time.perf_counter() - begin
        return path


class Eager(System):
    """torch as it is."""

    name = "eager"

    def prepare(self, case: Case, threads: int) -> Run:
        torch.set_num_threads(threads)
        return lambda: case.module(*case.args)


class Compile(System):
    """torch.compile with its defaults."""

    name = "compile"

    def prepare(self, case: Case, threads: int) -> Run:
        torch.set_num_threads(threads)
        torch.compiler.reset()
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
        path = self.folder / f"{case.name}.{threads}.pt2"

        def make() -> None:
            program = torch.export.export(case.module, case.args, strict=False)
            aoti_compile_and_package(program, package_path=str(path), inductor_configs={"freezing": True})

        self.made(path, make)
        loaded = aoti_load_package(str(path))
        return lambda: loaded(*case.args)


class OnnxRuntime(System):
    """torch.onnx and ONNX Runtime's CPU provider with all its optimisations."""

    name = "ort"

    def prepare(self, case: Case, threads: int) -> Run:
        import onnxruntime

        path = self.folder / f"{case.name}.onnx"
        if not path.exists() or (not self.keep and self.export_seconds is None):
            self.made(path, lambda: torch.onnx.export(case.module, case.args, str(path), dynamo=True, verbose=False))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = session.get_inputs()
        feed = {i.name: a.numpy() for i, a in zip(inputs, case.args, strict=True)}
        return lambda: session.run(None, feed)


class Hardtack(System):
    """A bundle for this machine's CPU, loaded into this process; inputs and outputs are numpy arrays."""

    name = "hardtack"

    def prepare(self, case: Case, threads: int) -> Run:
        import hardtack

        path = self.folder / f"{case.name}.pkg"
        if self.export_seconds is None:
            self.made(path, lambda: hardtack.export(case.module, case.args, path=path, targets=("cpu:native",)))
        session = hardtack.load(path, threads=threads).session()
        arrays = [a.numpy() for a in case.args]
        return lambda: session(*arrays)


SYSTEMS: Mapping[str, type[System]] = {s.name: s for s in (Eager, Compile, AOTInductor, OnnxRuntime, Hardtack)}
PEERS = ("compile", "aoti", "ort")
