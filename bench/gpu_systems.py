"""The systems that are compared on a GPU: each turns a module and its inputs into a call that enqueues one run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import torch

from bench.models import Case
from bench.systems import AOTInductor, Run, System

_WARM_UP = 3


class Eager(System):
    """torch as it is."""

    name = "eager"

    def prepare(self, case: Case, threads: int) -> Run:
        return lambda: case.module(*case.args)


class EagerGraph(System):
    """torch as it is, its kernels captured in a CUDA graph."""

    name = "graph"

    def prepare(self, case: Case, threads: int) -> Run:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                case.module(*case.args)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = case.module(*case.args)

        def run() -> object:
            graph.replay()
            return outputs

        return run


class Compile(System):
    """torch.compile with its defaults."""

    name = "compile"
    mode: str | None = None

    def prepare(self, case: Case, threads: int) -> Run:
        torch.compiler.reset()
        compiled = torch.compile(case.module, dynamic=False, mode=self.mode)
        begin = time.perf_counter()
        compiled(*case.args)
        torch.cuda.synchronize()
        self.export_seconds = time.perf_counter() - begin
        for _ in range(_WARM_UP):
            compiled(*case.args)
        return lambda: compiled(*case.args)


class ReduceOverhead(Compile):
    """torch.compile with CUDA graphs."""

    name = "reduce"
    mode = "reduce-overhead"


class MaxAutotune(Compile):
    """torch.compile with CUDA graphs and timed templates."""

    name = "max"
    mode = "max-autotune"


class Hardtack(System):
    """A bundle for this GPU, loaded into this process; inputs and outputs are torch tensors on the device."""

    name = "hardtack"
    tuning: str | None = None
    weights: str | None = None
    activations: str | None = None
    """Both as in hardtack.Options."""

    def prepare(self, case: Case, threads: int) -> Run:
        import hardtack

        path = self.folder / f"{case.name}.{self.name}.gpu.pkg"
        major, minor = torch.cuda.get_device_capability()
        jobs = max(1, (os.cpu_count() or 1) // 4)  # others compile at the same time
        options = hardtack.Options(tuning=self.tuning, jobs=jobs, weights=self.weights, activations=self.activations)

        def make() -> None:
            target = f"cuda:sm_{major}{minor}"
            info = hardtack.export(case.module, case.args, path=path, targets=(target,), options=options)
            self.shapes = info.num_tuned, info.num_shapes

        self.made(path, make)
        session = hardtack.load(path, device="cuda:0").session(asynchronous=True)  # as every call of torch is
        for _ in range(_WARM_UP):  # the second run captures the graph
            session(*case.args)
        return lambda: session(*case.args)


class Untuned(Hardtack):
    """The same without a tuning table, the one that comes with Hardtack included: the cost model chooses every plan."""

    name = "untuned"
    tuning = "none"


class Int8(Hardtack):
    """With weights of int8."""

    name = "int8"
    weights = "int8"


class Fp8(Hardtack):
    """With weights of float8."""

    name = "fp8"
    weights = "fp8"


class Int4(Hardtack):
    """With weights of int4, in groups of 128."""

    name = "int4"
    weights = "int4:128"


class Int8Products(Int8):
    """With products of int8, each row of an activation rounded as the model runs."""

    name = "int8_products"
    activations = "int8:dynamic"


class Fp8Products(Fp8):
    """With products of float8, each row of an activation rounded as the model runs."""

    name = "fp8_products"
    activations = "fp8"


_OWN = (Hardtack, Untuned, Int8, Fp8, Int4, Int8Products, Fp8Products)
SYSTEMS: Mapping[str, type[System]] = {
    s.name: s for s in (Eager, EagerGraph, Compile, ReduceOverhead, MaxAutotune, AOTInductor, *_OWN)
}
PEERS = ("eager", "graph", "compile", "reduce", "max", "aoti")
ROUNDING = ("int8", "fp8", "int4", "int8_products", "fp8_products")
"""Those whose weights are rounded, and activations of some."""
