"""Which programs can show a fault: those whose graph, plan or kernels come out different with it.

A program is captured, once and again with each fault in capture itself, and taken through the compiler with each fault
put in, without a compiler of C++ or Triton.
What comes out the same runs the same, so a hunt runs only the others: most faults touch few programs.
"""

from __future__ import annotations

import gc
import importlib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch

from hardtack.api import size_hints
from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.backends.triton.triton_backend import TritonBackend
from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph_text import to_text_graph
from hardtack.codegen.machine.data import H200
from hardtack.codegen.pipeline import compile_entry
from hardtack.exporter import Exported
from hardtack.exporter.capture.capture import Captured, capture
from hardtack.exporter.extensions import Extensions
from hardtack.exporter.program import EntryGraph, changed_buffers, to_entry
from hardtack.exporter.rewrite.rules import RULES
from hardtack.exporter.tensors import state_names
from tests.fuzz.capture import as_asked
from tests.fuzz.children import Ended, Pool, Send
from tests.fuzz.draw import draw
from tests.fuzz.mutant import Mutant, changed, module_of, text_of
from tests.fuzz.outcome import is_refusal
from tests.fuzz.program import Program, build
from tests.fuzz.sweeps import SWEEPS

TOGETHER = 10
BACKENDS: Mapping[str, Backend | None] = {"cpu": CppBackend(), "interpreter": TritonBackend(H200), "graph": None}
"""What compiles a program for each way; None: its graph is all that there is."""


DIFFERENT = ""
"""Of a program that comes out different: whether it is wrong only a run says. Otherwise there is an internal error."""


@dataclass(frozen=True)
class Sifted:
    """touched: the name of each mutant with which a program comes out different; DIFFERENT, or the error it ends in."""

    seed: int
    touched: tuple[tuple[str, str], ...]


def sieve(
    mutants: Sequence[Mutant], seeds: Sequence[int], *, sweep: str, jobs: int, seconds: float
) -> dict[str, dict[int, str]]:
    """Mutant -> each seed that may show it, in order, with DIFFERENT or the internal error that does. sweep: whose
    programs the seeds are; random ones for "".

    A program with which a child dies or hangs may show each.
    """
    found: dict[int, dict[str, str]] = {}
    swaps = [swap(m) for m in mutants]
    program = SWEEPS[sweep].program if sweep else draw

    def work(task: Any, send: Send) -> None:
        warnings.filterwarnings("ignore")
        for seed in task:
            send(Sifted(seed, touched_by(program(seed), swaps)))

    def on_end(ended: Ended) -> None:
        found.update((s.seed, dict(s.touched)) for s in ended.sent)

    pool = Pool(work, jobs, seconds)
    pool.add(seeds[k : k + TOGETHER] for k in range(0, len(seeds), TOGETHER))
    pool.run(on_end)
    names = tuple(m.name for m in mutants)
    every = dict.fromkeys(names, DIFFERENT)
    return {name: {s: found.get(s, every)[name] for s in seeds if name in found.get(s, every)} for name in names}


def touched_by(program: Program, swaps: Sequence[Swap]) -> tuple[tuple[str, str], ...]:
    """Takes a program through the compiler, as it is and with each mutant: what changes something, as in Sifted.

    A program that is refused while it is captured can show only what changes capture: a refusal that is lost.
    """
    arguments = program.arguments()
    captured: Captured | None = None
    try:
        captured = _captured(program)
        graph = _converted(program, captured)
    except Exception as error:
        graph = _failed(error)
    before = {way: _made(graph, arguments, BACKENDS[way]) for way in sorted({s.mutant.way for s in swaps})}
    found: list[tuple[str, str]] = []
    for each in swaps:
        mutant, plain = each.mutant, before[each.mutant.way]
        if captured is None and not mutant.captures:
            continue
        with each.put_in():
            own = graph
            if mutant.file.startswith("export/"):
                own = (
                    _captured_and_converted(program)
                    if mutant.captures or not captured
                    else _converted(program, captured)
                )
            after = _made(own, arguments, BACKENDS[mutant.way])
        if after.text != plain.text or (mutant.calls and mutant.calls in plain.kernels):
            found.append((mutant.name, after.internal if captured is not None else DIFFERENT))
    return tuple(found)


@dataclass(frozen=True)
class _Made:
    """text: stands for all that is made of a program. kernels: its kernels' sources. internal: an error of ours."""

    text: str
    kernels: str = ""
    internal: str = DIFFERENT


def _failed(error: Exception) -> _Made:
    text = f"{type(error).__name__}: {error}"
    return _Made(text, internal=DIFFERENT if is_refusal(error) else text)


def _captured(program: Program) -> Captured:
    return capture(build(program), program.arguments(), None, program.dynamic_shapes(), program.strict)


def _captured_and_converted(program: Program) -> EntryGraph | _Made:
    try:
        captured = _captured(program)
    except Exception as error:
        return _failed(error)
    return _converted(program, captured)


def _converted(program: Program, captured: Captured) -> EntryGraph | _Made:
    """The graph, or the error that says why there is none."""
    try:
        store, states = ConstantStore(), state_names({"forward": captured.ep}, changed_buffers(captured.ep))
        entry = to_entry("forward", captured, store, states, RULES, Extensions())
        return as_asked(program, Exported({"forward": entry}, store, {})).entries["forward"]
    except Exception as error:
        return _failed(error)


def _made(entry: EntryGraph | _Made, arguments: tuple[torch.Tensor, ...], backend: Backend | None) -> _Made:
    """Graph, constants, plan and kernels, or the error that says why there are none."""
    if isinstance(entry, _Made):
        return entry
    keys = [(c.name, c.key) for c in entry.graph.constants]
    text = f"{to_text_graph(entry.graph)}\n{keys}"
    if backend is None:
        return _Made(text)
    try:
        made = compile_entry(entry.graph, size_hints(entry, arguments, {}), backend)
    except Exception as error:
        return _failed(error)
    kernels = "\n".join(made.sources[name] for name in sorted(made.sources))
    return _Made("\n".join((text, made.texts["plan"], kernels, repr(sorted(made.prepacks.items())))), kernels)


@dataclass(frozen=True)
class Swap:
    """A mutant, and the functions of its file that are alive in this process, each with its code and the mutant's."""

    mutant: Mutant
    functions: tuple[tuple[FunctionType, CodeType, CodeType], ...]

    @contextmanager
    def put_in(self) -> Iterator[None]:
        for function, _, code in self.functions:
            function.__code__ = code
        try:
            yield
        finally:
            for function, code, _ in self.functions:
                function.__code__ = code


def swap(mutant: Mutant) -> Swap:
    """Of a kernel template there are no functions."""
    name = module_of(mutant)
    if name is None:
        return Swap(mutant, ())
    path = str(importlib.import_module(name).__file__)
    plain, other = (_codes(compile(t, path, "exec")) for t in (text_of(mutant), changed(mutant)))
    codes = {code: other[key] for key, code in plain.items() if key in other and other[key] != code}
    gc.unfreeze()  # what conftest.py keeps from being collected is not told of either
    alive = [f for f in gc.get_objects() if type(f) is FunctionType and f.__code__.co_filename == path]
    return Swap(mutant, tuple((f, f.__code__, codes[f.__code__]) for f in alive if f.__code__ in codes))


def _codes(module: CodeType) -> dict[tuple[str, int], CodeType]:
    """The functions of a module by their names and their turns among those so called, such as lambdas."""
    found: dict[tuple[str, int], CodeType] = {}
    turns: Counter[str] = Counter()

    def walk(code: CodeType) -> None:
        for inner in code.co_consts:
            if isinstance(inner, CodeType):
                found[inner.co_qualname, turns[inner.co_qualname]] = inner
                turns[inner.co_qualname] += 1
                walk(inner)

    walk(module)
    return found
