"""Small transformers by the code generator alone, run step by step in Python with guarded memory, against eager."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.codegen.compare import compile_module, leaves
from tests.models import zoo

BOUND = 1e-5


@pytest.mark.sweep(share=4)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", list(zoo.SMALL))
def test_equals_eager_at_every_size(name: str, dynamic: bool) -> None:
    pytest.importorskip("transformers")
    model = zoo.load(name)
    expected = copy.deepcopy(model.module)
    compiled = compile_module(copy.deepcopy(model.module), model.args, model.dynamic[0] if dynamic else None)
    for args in (model.args, *(model.others if dynamic else ())):
        with torch.no_grad():
            want = leaves(expected(*args))
        got = compiled(*args)
        assert [g.shape for g in got] == [w.shape for w in want]
        for g, w in zip(got, want, strict=True):
            error = (g.double() - w.double()).norm() / w.double().norm().clamp(min=1e-30)
            assert error <= BOUND, f"{name}: relative error {error:.1e} at {[tuple(a.shape) for a in args]}"
