"""finish.h: sums that the epilogue gets from registers are those, bit for bit, that it gets from the workspace."""

from __future__ import annotations

import pytest
import torch

from hardtack.codegen.machine.machine import Cpu
from tests.templates import sources
from tests.templates.conftest import all_targets
from tests.templates.cpu_kernels import Library, load_library
from tests.templates.layouts import (
    Conv,
    gemm_dynamic_workspace,
    gemm_packed_workspace,
    pack_conv,
    pack_gemm,
)

_KERNELS = {"gemm_packed": sources.GEMM_PACKED, "gemm_dynamic": sources.GEMM_DYNAMIC, "conv2d": sources.CONV}
_SHORT, _LONG = (f"static constexpr int kOperations = {n};" for n in (4, 1000))


def _workspace_only() -> dict[str, str]:
    """The kernels again with an epilogue that says it is too long, under names of their own."""
    found = {}
    for name, source in _KERNELS.items():
        assert _SHORT in source
        long = source.replace(_SHORT, _LONG)
        found[f"{name}_long"] = long.replace(f"int32_t {name}(", f"int32_t {name}_long(")
    return found


@pytest.fixture(scope="module", params=all_targets())
def both(request: pytest.FixtureRequest) -> Library:
    target: Cpu = request.param
    return load_library({**_KERNELS, **_workspace_only()}, target)


# Around the heights of tiles (6, 12) and the rows of a unit (192); every width of a panel's end; k around the longest
# that stays in registers (256), and the longest by which rows are cut into blocks of the full height (128).
_ROWS = (1, 5, 6, 7, 12, 13, 16, 17, 25, 49, 205)
_COLUMNS = (1, 7, 8, 9, 16, 17, 24, 31, 32, 33, 72)
_DEPTHS = (0, 1, 2, 3, 17, 64, 127, 128, 129, 255, 256, 257)


@pytest.mark.sweep(over="both")
@pytest.mark.parametrize(("k", "nworkers"), [(k, 1 + i % 2) for i, k in enumerate(_DEPTHS)])
def test_packed(both: Library, k: int, nworkers: int) -> None:
    for m in _ROWS:
        for n in _COLUMNS:
            a, b, bias = torch.randn(m, k), torch.randn(k, n), torch.randn(n)
            arguments = [m, n, k, k], gemm_packed_workspace(m, n), nworkers
            results = []
            for name in ("gemm_packed", "gemm_packed_long"):
                out = torch.randn(m + 1, n, generator=torch.Generator().manual_seed(0))
                assert both.call(name, [a, pack_gemm(b), bias, out], *arguments) == 0
                results.append(out)
            assert torch.equal(*results), (m, n, k)
            before = torch.randn(m + 1, n, generator=torch.Generator().manual_seed(0))
            assert torch.equal(results[0][m], before[m]), "a row behind the result changed"
            want = a.double() @ b.double() + bias + before[:m]
            torch.testing.assert_close(results[0][:m].double(), want, rtol=1e-5, atol=4e-6 * max(1, k) ** 0.5 + 1e-6)


@pytest.mark.parametrize("shape", [(2, 25, 40, 19), (3, 12, 32, 64), (2, 37, 70, 200), (1, 24, 33, 5)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_two_values(both: Library, shape: tuple[int, int, int, int], transposed: bool) -> None:
    """Of which B is read in place, where its rows are contiguous, or packed."""
    batch, m, n, k = shape
    x = torch.randn(1, batch, m, k)
    y = torch.randn(1, batch, n, k).mT if transposed else torch.randn(1, batch, k, n)
    bias, results = torch.randn(n), []
    ints = [1, batch, m, n, k, *x.stride(), *y.stride()]
    for name in ("gemm_dynamic", "gemm_dynamic_long"):
        out = torch.zeros(1, batch, m, n)
        assert both.call(name, [x, y, bias, out], ints, gemm_dynamic_workspace(m, n, k)) == 0
        results.append(out)
    assert torch.equal(*results)


_CONVS = [
    Conv(1, 16, (13, 11), 24, (1, 1)),
    Conv(2, 40, (7, 7), 24, (1, 1), stride=(2, 2)),
    Conv(1, 24, (9, 8), 40, (3, 3), padding=(1, 1)),
    Conv(1, 3, (17, 15), 16, (3, 3), stride=(2, 2), padding=(1, 1), channels_last=False),
    Conv(1, 48, (6, 10), 36, (3, 2), dilation=(2, 1), groups=3),
    Conv(1, 20, (12, 13), 19, (5, 1), padding=(2, 0)),
]


@pytest.mark.parametrize("s", _CONVS, ids=str)
@pytest.mark.parametrize("nworkers", [1, 2])
def test_convolutions(both: Library, s: Conv, nworkers: int) -> None:
    x, bias, size, results = s.input(), torch.randn(s.oc), s.out_size(), []
    weight = pack_conv(torch.randn(s.oc, s.c // s.groups, *s.kernel), s.groups)
    for name in ("conv2d", "conv2d_long"):
        out = torch.zeros(s.n, *size, s.oc)
        assert both.call(name, [x, weight, bias, out], s.ints(x, size), s.workspace(x.stride(1)), nworkers) == 0
        results.append(out)
    assert torch.equal(*results)
