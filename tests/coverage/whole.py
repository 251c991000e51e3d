"""A model through a file of its own, made as users make theirs, and timed."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch

import hardtack
from hardtack.exporter import ExportError, InternalError
from tests.coverage.cases import Case, Made, Verdict
from tests.coverage.check import torch_captures
from tests.coverage.judge import copied, difference, eager, tensors


def check_whole(case: Case, tell: Callable[[Verdict], None]) -> None:
    """Its verdict."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="hardtack_coverage_") as folder:
        cache = mock.patch.dict(os.environ, HARDTACK_CACHE=str(Path(folder) / "cache"))
        path = Path(folder) / "model.pkg"
        verdict = Verdict(case.suite, case.name, "equal")
        try:
            made = case.make()
            began = time.perf_counter()
            with cache:  # kernels that other cases have made are made again
                _export(made, path)
            verdict = replace(verdict, seconds=time.perf_counter() - began)
            if said := _difference(made, path):
                verdict = replace(verdict, what="different", detail=said)
        except Exception as error:  # whatever goes wrong is what is looked for
            verdict = replace(verdict, what=_what(error, case), detail=" ".join(str(error).split()))
    tell(verdict)


def _export(made: Made, path: Path) -> None:
    targets = ("cpu:native",)
    hardtack.export(made.module, made.args, path=path, dynamic_shapes=made.dynamic_shapes, targets=targets)


def _difference(made: Made, path: Path) -> str:
    model = hardtack.load(path, threads=1)
    calls = (made.args, *made.calls)
    with torch.no_grad():
        found = (difference(made, c, tensors(model(*copied(c))), eager(made, c)[: -len(c)]) for c in calls)
        return next((said for said in found if said), "")


def _what(error: Exception, case: Case) -> str:
    if not isinstance(error, ExportError) or isinstance(error, InternalError):
        return "crashed"
    return "refused" if torch_captures(case.make()) else "uncaptured"
