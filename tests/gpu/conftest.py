"""Tests that need a GPU: skipped, and counted, where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [i for i in items if _HERE in i.path.parents]
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no GPU: run ./dev test-gpu on a machine that has one"))


@pytest.fixture(scope="session")
def target() -> str:
    """The target of this machine's GPU."""
    major, minor = torch.cuda.get_device_capability()
    return f"cuda:sm_{major}{minor}"
