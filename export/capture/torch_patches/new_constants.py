"""Constants that come up while torch decomposes a program, as where a weight of a library's own class is made numbers
by `x[mask] = 0`: torch forgets them, and refuses the program that reads them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.export.exported_program as exported_program
from torch.export.graph_signature import InputKind

from hardtack.exporter.capture.torch_patches.patch import Patch

PATCHES = (
    Patch(
        name="constants of decompositions",
        replaces=("torch.export.exported_program._decompose_and_get_gm_with_new_signature_constants",),
        why="a constant that a decomposition makes is not in the new program",
    ),
)


@contextlib.contextmanager
def constants_kept() -> Iterator[None]:
    """Inside, a decomposed program has the constants that its decomposition made. Not for several threads at once."""
    decomposed = exported_program._decompose_and_get_gm_with_new_signature_constants

    def with_constants(ep: torch.export.ExportedProgram, **given: Any) -> Any:
        found = decomposed(ep, **given)
        module, signature = found[:2]
        values = {node.name: node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"}
        for spec in signature.input_specs:
            if spec.kind is InputKind.CONSTANT_TENSOR and spec.target not in ep.constants:
                made = getattr(values[spec.arg.name], "constant", None)
                if made is not None:
                    ep.constants[spec.target] = made  # which is the new program's, too
        return found

    exported_program._decompose_and_get_gm_with_new_signature_constants = with_constants
    try:
        yield
    finally:
        exported_program._decompose_and_get_gm_with_new_signature_constants = decomposed
