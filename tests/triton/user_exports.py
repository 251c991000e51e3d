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
from hardtack.exporter.capture.small import runs
from tests.triton.user_models import CASES


def export_all(folder: Path, names: list[str]) -> None:
    """Those cases, or all of them. AssertionError if a module ran at sizes that nobody gave: a kernel of it may write
    beyond what these have, and a GPU is lost to the process then.
    """
    found: dict[str, dict[str, Any]] = {}
    compile_kernels, run_module = triton_backend.compile_kernels, runs.run_module

    with pytest.MonkeyPatch.context() as patch:
        for name in names or CASES:
            case = CASES[name]
            kernels: dict[str, Any] = found.setdefault(name, {})

            def compiled(given: Any, *args: Any, into: dict[str, Any] = kernels, **named: Any) -> Any:
                codes = compile_kernels(given, *args, **named)
                into.update({k.name: (k, codes[k.name].record) for k in given})
                return codes

            shapes: set[Any] = set()

            def noted(module: Any, calls: Any, written: Any, into: set[Any] = shapes) -> Any:
                into.update(tuple(x.shape for x in args) for args, _ in calls)
                return run_module(module, calls, written)

            patch.setattr(triton_backend, "compile_kernels", compiled)
            patch.setattr(runs, "run_module", noted)
            hardtack.export(
                case.module().eval(),
                case.inputs[0],
                path=folder / f"{name}.pkg",
                dynamic_shapes=case.dynamic,
                targets=case.targets,
                **case.given,
            )
            assert shapes <= {tuple(x.shape for x in case.inputs[0])}, f"{name} ran with {shapes}"
            if name == "adds":
                text = stage_texts("lower", case.module().eval(), case.inputs[0], target="cuda:sm_90")["forward"]
                (folder / "lower.txt").write_text(text)
    (folder / "kernels.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    export_all(Path(sys.argv[1]), sys.argv[2:])
