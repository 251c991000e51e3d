"""Exports the models of user_models.py for sm_90, in a process where Triton compiles.

python -m tests.triton.user_exports FOLDER [CASE ...] leaves a bundle for each case, and their kernels as Driven takes
them.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import hardtack
from hardtack.api import stage_texts
from hardtack.codegen.backends.triton import triton_backend
from tests.triton.user_models import CASES


def export_all(folder: Path, names: list[str]) -> None:
    """Those cases, or all of them."""
    found: dict[str, dict[str, Any]] = {}
    compile_kernels = triton_backend.compile_kernels

    with pytest.MonkeyPatch.context() as patch:
        for name in names or CASES:
            case = CASES[name]
            kernels: dict[str, Any] = found.setdefault(name, {})

            def compiled(given: Any, *args: Any, into: dict[str, Any] = kernels, **named: Any) -> Any:
                codes = compile_kernels(given, *args, **named)
                into.update({k.name: (k, codes[k.name].record) for k in given})
                return codes

            patch.setattr(triton_backend, "compile_kernels", compiled)
            hardtack.export(
                case.module().eval(),
                case.inputs[0],
                path=folder / f"{name}.pkg",
                dynamic_shapes=case.dynamic,
                targets=case.targets,
                **case.given,
            )
            if name == "adds":
                text = stage_texts("lower", case.module().eval(), case.inputs[0], target="cuda:sm_90")["forward"]
                (folder / "lower.txt").write_text(text)
    (folder / "kernels.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    export_all(Path(sys.argv[1]), sys.argv[2:])
