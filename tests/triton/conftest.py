"""Chooses Triton's interpreter before any test of this folder imports triton."""

import tests.triton.interpreter  # noqa: F401
