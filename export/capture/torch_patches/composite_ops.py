"""What torch does to no effect each time that a program is decomposed, for composite ops: those that its dispatcher has
as functions of others. It was more than half of a small export.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch.export.decomp_utils as decomp_utils
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
    Patch(
        name="composite ops that there are",
        replaces=(
            "torch.export.decomp_utils._collect_all_valid_cia_ops",
            "torch.export.exported_program._collect_all_valid_cia_ops",
            "torch.export.exported_program._is_preservable_cia_op",
        ),
        why="the ops of all libraries are gone through twice a program, and each op of torch's own table once more",
    ),
)

Table = dict[Any, Callable[..., Any]]


def is_its_own(op: Any, decomposition: Callable[..., Any]) -> bool:
    """True for the function that torch's table has for a composite op which nobody has another for: the op's kernel."""
    return isinstance(decomposition, functools.partial) and decomposition.keywords.get("kernel") is op


@contextlib.contextmanager
def composites_asked_once() -> Iterator[None]:
    """Inside, torch.ops gets its attributes of composite ops once, they are collected once, and ops whose decomposition
    is their own kernel stay as they are. Not for several threads at once; nothing run inside may register an op.
    """
    ask, override = utils._materialize_cpp_cia_ops, exported_program._override_composite_implicit_decomp
    is_composite = utils._is_preservable_cia_op
    collect = functools.cache(utils._collect_all_valid_cia_ops)

    @contextlib.contextmanager
    def override_others(cia_ops_to_callable: Table) -> Iterator[None]:
        with override({op: f for op, f in cia_ops_to_callable.items() if not is_its_own(op, f)}):
            yield

    def is_composite_of_a_library(op: Any) -> bool:
        """Of those that were not collected, which all of torch's own were."""
        return not utils._is_aten_op(op) and is_composite(op)

    ask()
    changes: list[tuple[ModuleType, str, Callable[..., Any]]] = [
        (utils, "_materialize_cpp_cia_ops", lambda: None),
        (decomp_utils, "_collect_all_valid_cia_ops", collect),
        (exported_program, "_collect_all_valid_cia_ops", collect),
        (exported_program, "_is_preservable_cia_op", is_composite_of_a_library),
        (exported_program, "_override_composite_implicit_decomp", override_others),
    ]
    before = [getattr(module, name) for module, name, _ in changes]
    for module, name, change in changes:
        setattr(module, name, change)
    try:
        yield
    finally:
        for (module, name, _), own in zip(changes, before, strict=True):
            setattr(module, name, own)
