"""Tests of what only some versions of torch can trace."""

from __future__ import annotations

import pytest
import torch

TORCH = tuple(int(n) for n in torch.__version__.split(".")[:2])


def refused_before(major: int, minor: int, error: type[Exception], why: str) -> pytest.MarkDecorator:
    """The mark of a test that an older torch must fail with `error`, a refusal with a reason for the user."""
    return pytest.mark.xfail(
        (major, minor) > TORCH, raises=error, strict=True, reason=f"torch {torch.__version__}: {why}"
    )
