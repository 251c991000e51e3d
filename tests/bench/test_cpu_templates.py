"""bench/cpu_templates.py: what it times runs, for the best target here."""

from __future__ import annotations

from bench.cpu_templates import SOURCES, cases
from tests.templates.cpu_kernels import load_library, runnable_targets


def test_every_case_runs() -> None:
    library = load_library(SOURCES, runnable_targets()[0])
    found = cases(library)
    assert len({case.label for case in found}) == len(found)
    for case in found:
        assert case.ours.run() == 0, case.label
        case.ours.check_guards()
