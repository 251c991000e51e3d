"""Compiled entries against eager torch: many ops in one module, so that one compiler call serves them all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.utils._pytree as pytree

from hardtack.codegen.backend import Backend
from hardtack.codegen.backends.cpp.cpp_backend import CppBackend
from hardtack.codegen.ir.graph import Graph
from hardtack.codegen.pipeline import CompiledEntry, compile_entry
from hardtack.exporter import Exported, to_graphs
from tests.codegen.runner import Runner

Tensors = Sequence[torch.Tensor]

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
UNSIGNED = (torch.uint16, torch.uint32)
"""What eager computes little with."""
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
"""What eager moves and converts."""
E8M0 = torch.float8_e8m0fnu
"""Powers of 2, of which eager converts, moves and compares fewer."""

TOLERANCE: dict[torch.dtype, tuple[float, float]] = {
    torch.float32: (2e-5, 2e-6),
    torch.float64: (1e-11, 1e-12),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
}
"""(rtol, atol) of a single op against eager."""


def to_numpy(t: torch.Tensor) -> npt.NDArray[np.generic]:
    """The tensor's elements; bfloat16 and float8 as their bits, as the stages keep it."""
    t = t.detach()
    if t.dtype in (*FLOAT8, E8M0):
        return t.contiguous().view(torch.uint8).numpy()
    if t.dtype is torch.bfloat16:
        return t.contiguous().view(torch.int16).numpy().view(np.uint16)
    return t.numpy()


def to_torch(a: npt.NDArray[np.generic], dtype: torch.dtype) -> torch.Tensor:
    """The inverse of `to_numpy`."""
    a = np.ascontiguousarray(a).reshape(a.shape)
    if dtype in (*FLOAT8, E8M0):
        return torch.from_numpy(a).view(dtype)
    return torch.from_numpy(a.view(np.int16)).view(dtype) if dtype is torch.bfloat16 else torch.from_numpy(a)


def normal(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal random numbers, the same ones each time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def leaves(tree: Any) -> list[torch.Tensor]:
    """The tensors of a nested result, in order."""
    return [x for x in pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


@dataclass
class Compiled:
    """A module's entry point `forward`, ready to run."""

    exported: Exported
    graph: Graph
    entry: CompiledEntry
    runner: Runner

    def __call__(self, *args: torch.Tensor) -> list[torch.Tensor]:
        """The outputs for these inputs; states keep their content."""
        from hardtack.exporter.dtypes import TORCH_DTYPE

        found = self.runner(*(to_numpy(a) for a in args))
        dtypes = [TORCH_DTYPE[self.graph.types[o].dtype] for o in self.graph.outputs]
        return [to_torch(a, d) for a, d in zip(found, dtypes, strict=True)]


def compile_module(
    module: Any,
    args: Tensors,
    dynamic: Any = None,
    hints: Mapping[str, int] | None = None,
    backend: Backend | None = None,
    runner: type[Runner] = Runner,
) -> Compiled:
    """Export, compile and load; for the CPU if nothing else is said."""
    exported = to_graphs(module, tuple(args), {}, dynamic, False)
    (found,) = exported.entries.values()
    entry = compile_entry(found.graph, hints or {}, backend or CppBackend())
    return Compiled(exported, found.graph, entry, runner(found.graph, entry, exported.store))


def eager(module: Any, args: Tensors) -> list[torch.Tensor]:
    """What the module gives, flattened, on copies of its inputs."""
    with torch.no_grad():
        return leaves(module(*(a.clone() for a in args)))


def differences(
    got: Tensors, want: Tensors, scale: float = 1.0, signs: bool = False, nan_signs: bool = True
) -> list[str]:
    """What is not equal: dtypes, shapes, values; floats within TOLERANCE times `scale`, everything else exactly.
    signs: the zeros' are looked at, too. nan_signs: those of float8's NaNs, which a GPU's arithmetic does not keep.
    """
    if len(got) != len(want):
        return [f"{len(got)} outputs, eager gives {len(want)}"]
    found: list[str] = []
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        rtol, atol = TOLERANCE.get(w.dtype, (0.0, 0.0))
        if w.dtype in (*FLOAT8, E8M0) and g.dtype is w.dtype:  # by codes, so that NaNs and zeros have eager's signs
            g, w = (_codes(t, nan_signs) for t in (g, w))
        try:
            torch.testing.assert_close(g, w, rtol=rtol * scale, atol=atol * scale, equal_nan=True)
        except AssertionError as error:
            found.append(f"output {k} {w.dtype} {list(w.shape)}: {error}")
            continue
        turned = (g == 0) & (w == 0) & (g.signbit() != w.signbit()) if signs and w.is_floating_point() else None
        if turned is not None and turned.any():
            found.append(
                f"output {k} {w.dtype} {list(w.shape)}: zeros of the other sign at {turned.nonzero().tolist()}"
            )
    return found


def _codes(t: torch.Tensor, nan_signs: bool) -> torch.Tensor:
    """float8 as its codes; nan_signs: else all NaNs have one."""
    codes = t.view(torch.uint8)
    return codes if nan_signs else torch.where(t.float().isnan(), 0x7F, codes)


def assert_same(got: Tensors, want: Tensors, scale: float = 1.0) -> None:
    """Fails with every difference."""
    found = differences(got, want, scale)
    assert not found, "\n".join(found)


Function = Callable[..., Any]


class Table(torch.nn.Module):
    """Many functions of the same inputs as one module: a dict of their results by name."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        super().__init__()
        self.functions = dict(functions)
        self.parts = torch.nn.ModuleList(f for f in functions.values() if isinstance(f, torch.nn.Module))
        self.eval()

    def forward(self, *args: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        return {name: leaves(f(*args)) for name, f in self.functions.items()}


@dataclass
class Suite:
    """A table of functions over common inputs, compiled once and run on every set of inputs.

    inputs: the sets, the first of which is the example; dynamic: as for export; scale: of the tolerances; signs: zeros
    have eager's.
    """

    name: str
    functions: Mapping[str, Function]
    inputs: Sequence[Tensors]
    dynamic: Any = None
    scale: float = 1.0
    signs: bool = False
    backend: Backend | None = None
    runner: type[Runner] = Runner
    _compiled: Compiled | None = field(default=None, repr=False)
    _found: list[tuple[dict[str, Any], dict[str, Any]]] | None = field(default=None, repr=False)

    def of(self, rows: Collection[str]) -> Suite:
        """Of some of its rows, compiled by themselves."""
        return replace(
            self, functions={k: f for k, f in self.functions.items() if k in rows}, _compiled=None, _found=None
        )

    def compiled(self) -> Compiled:
        if self._compiled is None:
            table, example = Table(self.functions), self.inputs[0]
            self._compiled = compile_module(table, example, self.dynamic, None, self.backend, self.runner)
        return self._compiled

    def results(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """(ours, eager's) by function name, for each set of inputs."""
        if self._found is None:
            found: list[tuple[dict[str, Any], dict[str, Any]]] = []
            for args in self.inputs:
                with torch.no_grad():
                    want = Table(self.functions)(*(a.clone() for a in args))
                flat = self.compiled()(*args)
                spec = pytree.tree_structure(want)
                found.append((pytree.tree_unflatten(flat, spec), want))
            self._found = found
        return self._found

    def check(self, name: str) -> None:
        """One row of the table on every set of inputs."""
        found: list[str] = []
        for k, (got, want) in enumerate(self.results()):
            found += [f"{name}, inputs {k}: {d}" for d in differences(got[name], want[name], self.scale, self.signs)]
        assert not found, "\n".join(found)
