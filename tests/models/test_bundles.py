"""The whole line on every model of the zoo: exported to a bundle for a CPU and a GPU; the C++ runtime runs it, equal to
eager on the CPU, and on the null driver, which gives no results.

The bound is the promise of docs/contract.md: for each output ||out - eager|| <= 1e-5 * ||eager|| in float32, or at most
four times eager's own error against float64.
"""

from __future__ import annotations

import copy
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from null_driver import NullDriver

torch = pytest.importorskip("torch")

import hardtack  # noqa: E402
from hardtack.codegen.package.bundle import verify_bundle  # noqa: E402
from tests.models import launched, zoo  # noqa: E402
from tests.models.launched import leaves  # noqa: E402

BOUND = 1e-5


def distance(a: Any, b: Any) -> float:
    """||a - b|| / ||b|| in float64."""
    x, y = (torch.as_tensor(np.asarray(t) if isinstance(t, np.ndarray) else t).double() for t in (a, b))
    return float((x - y).norm() / y.norm().clamp(min=1e-30))


def assert_close(out: Any, module: Any, args: Any) -> None:
    """Hardtack's result against eager's; `module` is run, so its buffers change as the bundle's states do."""
    before = copy.deepcopy(module)
    with torch.no_grad():
        wanted = leaves(module(*args))
    got = leaves(out)
    assert [(tuple(g.shape), g.dtype) for g in got] == [(tuple(w.shape), w.dtype) for w in wanted]
    errors = [distance(g, w) for g, w in zip(got, wanted, strict=True)]
    if max(errors) <= BOUND:
        return
    with torch.no_grad():
        wide = [a.double() if a.is_floating_point() else a for a in args]
        exact = leaves(before.double()(*wide))
    for g, w, e in zip(got, wanted, exact, strict=True):
        assert distance(g, e) <= max(BOUND, 4 * distance(w, e))


def load(name: str) -> Any:
    try:
        return zoo.load(name)
    except (ModuleNotFoundError, FileNotFoundError) as missing:
        pytest.skip(f"{name}: {missing}")


DECLARED_TWICE = ("craft_text_detector", "easyocr_crnn")
"""Models with a second declaration of dynamic dimensions."""
WAYS = [(name, way) for name in zoo.NAMES for way in range(3 if name in DECLARED_TWICE else 2)]


def kept(name: str) -> int:
    """The way that runs without a sweep: of a trained model the one with its golden."""
    return 1 if name in zoo.TRAINED or zlib.crc32(name.encode()) % 2 else 0


@pytest.mark.parametrize(
    ("name", "way"),
    [pytest.param(*x, marks=() if x[1] == kept(x[0]) else pytest.mark.sweep(only=True)) for x in WAYS],
)
def test_bundle_equals_eager(name: str, way: int, tmp_path: Path, driver: NullDriver) -> None:
    """way 0: static, others: with that declaration of dynamic dimensions; other sizes, batch 1 and the golden with the
    first one. One export serves both devices: half of its time is torch's."""
    model = load(name)
    declared = (None, *model.dynamic)
    assert len(declared) == (3 if name in DECLARED_TWICE else 2)
    path = tmp_path / "m.pkg"
    module = copy.deepcopy(model.module)
    hardtack.export(
        copy.deepcopy(model.module),
        model.args,
        path=path,
        dynamic_shapes=declared[way],
        targets=("cpu:native", launched.TARGET),
        options=hardtack.Options(strict=model.strict),
    )
    assert verify_bundle(path).num_plans == 2
    inputs = (model.args, *(model.others if way == 1 else ()))
    session = hardtack.load(path, threads=2, device="cpu").session("forward")
    calls = [(args, session(*args)) for args in inputs]
    for args, out in calls:
        assert_close(out, module, args)
    if way == 1 and model.golden is not None:
        model.golden(hardtack.load(path, device="cpu"))
    kernels = {k.function for k in launched.records(path)}
    assert launched.run(path, driver, calls) == kernels


@pytest.mark.sweep(over="name")
@pytest.mark.parametrize("name", ["gpt2_static_cache", "llama_static_cache"])
def test_decoding_with_a_cache(name: str, tmp_path: Path) -> None:
    """Prefill, then token by token: the cache is session state; reset starts over; sessions do not share it."""
    model = load(name)
    path = tmp_path / "m.pkg"
    hardtack.export(
        copy.deepcopy(model.module),
        model.args,
        path=path,
        dynamic_shapes=model.dynamic[0],
        targets=("cpu:native",),
        options=hardtack.Options(strict=True),
    )
    bundle = hardtack.load(path)
    session, other = bundle.session("forward"), bundle.session("forward")
    for _ in range(2):
        eager = copy.deepcopy(model.module)
        assert_close(session(*model.args), eager, model.args)
        for step in range(4, 8):
            args = (torch.tensor([[step * 7 % 50]]), torch.tensor([step]))
            assert_close(session(*args), eager, args)
        session.reset()
    assert_close(other(*model.args), copy.deepcopy(model.module), model.args)
