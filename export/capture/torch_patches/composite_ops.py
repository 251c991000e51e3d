"""What torch does to no effect each time that a program is decomposed, for composite ops: those that its dispatcher has
as functions of others. It was more than half of a small export.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch.export.exported_program as exported_program
from torch._export import utils

from hardtack.exporter.capture.torch_patches.patch import Patch

PATCHES = (
    Patch(
        name="composite ops of libraries",
        replaces=("torch._export.utils._materialize_cpp_cia_ops",),
        why="all composite ops are asked for once for each library that there is, three times a program",
    ),
    Patch(
        name="composite ops as they are",
        replaces=("torch.export.exported_program._override_composite_implicit_decomp",),
        why="hundreds of ops get kernels in twenty dispatch keys that do what the ops do without",
    ),
)

Table = dict[Any, Callable[..., Any]]


def is_its_own(op: Any, decomposition: Callable[..., Any]) -> bool:
    """True for the function that torch's table has for a composite op which nobody has another for: the op's kernel."""
    return isinstance(decomposition, functools.partial) and decomposition.keywords.get("kernel") is op


@contextlib.contextmanager
def composites_asked_once() -> Iterator[None]:
    """Inside, torch.ops gets its attributes of composite ops once, and ops whose decomposition is their own kernel stay
    as they are. Not for several threads at once, and nothing that is run inside may register an op.
    """
    ask, override = utils._materialize_cpp_cia_ops, exported_program._override_composite_implicit_decomp

    @contextlib.contextmanager
    def override_others(cia_ops_to_callable: Table) -> Iterator[None]:
        with override({op: f for op, f in cia_ops_to_callable.items() if not is_its_own(op, f)}):
            yield

    ask()
    utils._materialize_cpp_cia_ops = lambda: None
    exported_program._override_composite_implicit_decomp = override_others
    try:
        yield
    finally:
        utils._materialize_cpp_cia_ops = ask
        exported_program._override_composite_implicit_decomp = override
