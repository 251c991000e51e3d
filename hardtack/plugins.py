"""What an export can be given by others than Hardtack: `Plugin` and `GraphPass` (docs/extending.md)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hardtack.kernels import Kernel

API = 1
"""The version of what a plug-in is called with. A plug-in of a later one is refused; older ones that still work are
listed in docs/extending.md."""
_VERSION = re.compile(r"[!-~]{1,64}")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True)
class GraphPass:
    """A pass over the Graph, run behind Hardtack's own simplifications, for all targets.

    name: of a dump's file, in small letters. version: stands in the bundle's manifest.
    apply(graph, store) -> graph: a hardtack.codegen.ir.graph.Graph with the same inputs, outputs, states and guards;
    what it needs of constants' contents is in the store, a hardtack.codegen.ir.constants.ConstantStore. Its result is
    verified; that it computes the same is not, which `hardtack compare` can tell.
    """

    name: str
    version: str
    apply: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        _check("GraphPass", self.name, self.version)
        if not callable(self.apply):
            raise ValueError(f"GraphPass.apply of {self.name} is a {type(self.apply).__name__}; it must be a function")


@dataclass(frozen=True)
class Plugin:
    """Functions and kernels for ops, and passes, under one name.

    decompositions: op -> a function of the op's arguments, in torch's ops. lowerings: op -> a function of a
    hardtack.exporter.convert.builder.Builder and the op's arguments, tensors as Values, that gives a Value, or a tuple
    of them. An op is torch.ops.mylib.op, one of its overloads, what torch.library.custom_op gave, or "mylib::op".
    passes: in their order. kernels: op -> a CppKernel, a HostKernel or a CudaKernel, or a tuple of one for CPUs and one
    for GPUs. api: the API that it was written for.
    """

    name: str
    version: str
    decompositions: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    lowerings: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    passes: tuple[GraphPass, ...] = ()
    api: int = API
    kernels: Mapping[Any, Kernel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check("Plugin", self.name, self.version)
        for what in ("decompositions", "lowerings", "kernels"):
            given = getattr(self, what)
            if not isinstance(given, Mapping):
                raise ValueError(f"Plugin.{what} of {self.name} is a {type(given).__name__}; it must be a dict by op")
        if not isinstance(self.passes, (tuple, list)):
            raise ValueError(f"Plugin.passes of {self.name} is a {type(self.passes).__name__}; it must be a tuple")
        object.__setattr__(self, "passes", tuple(self.passes))
        for p in self.passes:
            if not isinstance(p, GraphPass):
                raise ValueError(f"Plugin.passes of {self.name} has a {type(p).__name__}; it must have GraphPasses")
        if not isinstance(self.api, int) or not 1 <= self.api <= API:
            raise ValueError(
                f"the plug-in {self.name} {self.version} is written for API {self.api} of plug-ins, and this Hardtack "
                f"has {API}: use a version of the plug-in for it, or a newer Hardtack"
            )


def _check(what: str, name: str, version: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"{what}.name is {name!r}; it must be small letters, digits, - and _, and begin with a letter")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise ValueError(f'{what}.version of {name} is {version!r}; it must be a short text without spaces, as "1.0"')
