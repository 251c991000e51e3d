"""The op table on the GPU: every row against eager on the CPU, whose rounding the tolerances of the table know."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import hardtack
from tests.codegen.compare import Suite, Table, differences, leaves
from tests.codegen.test_ops import SUITES

_SCALE = 4.0
"""Other libraries' exp, and sums in another order, than the CPU's."""


@cache
def model(suite: str, target: str, folder: Path) -> hardtack.Model:
    """A suite as one bundle; compiling it is most of the work."""
    s = SUITES[suite]
    path = folder / f"{suite}.pkg"
    hardtack.export(Table(s.functions), tuple(s.inputs[0]), path=path, dynamic_shapes=s.dynamic, targets=(target,))
    return hardtack.load(path, device="cuda:0")


@cache
def results(suite: str, target: str, folder: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(ours, eager's) by row, for each set of inputs."""
    found = []
    session = model(suite, target, folder).session()
    for args in SUITES[suite].inputs:
        with torch.no_grad():
            want = Table(SUITES[suite].functions)(*(a.clone() for a in args))
        got = [t.cpu() for t in leaves(session(*(a.cuda() for a in args)))]
        found.append((pytree.tree_unflatten(got, pytree.tree_structure(want)), want))
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ops")


def rows() -> list[tuple[str, str]]:
    return [(s.name, row) for s in SUITES.values() for row in s.functions]


@pytest.mark.parametrize(("suite", "row"), rows())
def test_equals_eager(suite: str, row: str, target: str, folder: Path) -> None:
    s: Suite = SUITES[suite]
    found: list[str] = []
    for k, (got, want) in enumerate(results(suite, target, folder)):
        found += [
            f"{row}, inputs {k}: {d}" for d in differences(got[row], want[row], s.scale * _SCALE, nan_signs=False)
        ]
    assert not found, "\n".join(found)
