"""Ops on complex numbers that are inputs, against eager: the graph's reference; and what is refused, in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from hardtack.exporter import to_graphs
from hardtack.exporter.errors import InputSpecError, UnsupportedOpError
from hardtack.exporter.reference import results

Program = Callable[[torch.Tensor, torch.Tensor], Any]


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.complex64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


X, Y = drawn(3, 4, seed=0), drawn(3, 4, seed=1)
REAL = drawn(3, 4, seed=2, dtype=torch.float32)


def written(z: torch.Tensor, write: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    """A copy that is changed in place."""
    copy = z.clone()
    write(copy)
    return copy


OPS: dict[str, Program] = {
    "add": lambda x, y: x + y,
    "sub_alpha": lambda x, y: torch.sub(x, y, alpha=2),
    "add_calpha": lambda x, y: torch.add(x, y, alpha=2j),
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "rdiv": lambda x, y: (1 + 2j) / x,
    "divreal": lambda x, y: x / REAL,
    "realmul": lambda x, y: REAL * x,
    "realdiv": lambda x, y: REAL / x,
    "rsub": lambda x, y: 1 - x,
    "rsubc": lambda x, y: 1j - x,
    "mm": lambda x, y: x @ y.t(),
    "bmm": lambda x, y: torch.bmm(x[None], y.t()[None]),
    "mv": lambda x, y: x @ y[0],
    "dot": lambda x, y: torch.dot(x[0], y[0]),
    "vdot": lambda x, y: torch.vdot(x[0], y[0]),
    "addmm": lambda x, y: torch.addmm(x[:, :3], x, y.t()),
    "baddbmm": lambda x, y: torch.baddbmm(x[None, :, :3], x[None], y.t()[None]),
    "addmv": lambda x, y: torch.addmv(x[:, 0], x, y[0]),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y),
    "linear": lambda x, y: F.linear(x, y),
    "outer": lambda x, y: torch.outer(x[0], y[0]),
    "adjoint": lambda x, y: x.mH @ y,
    "abs": lambda x, y: x.abs(),
    "angle": lambda x, y: x.angle(),
    "real": lambda x, y: x.real.clone(),
    "imag": lambda x, y: x.imag.clone(),
    "conj": lambda x, y: x.conj(),
    "conj_physical": lambda x, y: torch.conj_physical(x),
    "exp": lambda x, y: x.exp(),
    "log": lambda x, y: x.log(),
    "pow2": lambda x, y: x**2,
    "pow25": lambda x, y: x**2.5,
    "powt": lambda x, y: x**y,
    "powm1": lambda x, y: x ** (-1),
    "powm2": lambda x, y: x ** (-2),
    "pow5": lambda x, y: x**5,
    "powst": lambda x, y: 2.0**x,
    "powc": lambda x, y: x ** (1 + 1j),
    "sum": lambda x, y: x.sum(),
    "sumd": lambda x, y: x.sum(1),
    "mean": lambda x, y: x.mean(),
    "meand": lambda x, y: x.mean(0),
    "prod": lambda x, y: x.prod(),
    "prodd": lambda x, y: x.prod(1),
    "cumsum": lambda x, y: x.cumsum(1),
    "cumprod": lambda x, y: x.cumprod(1),
    "eq": lambda x, y: torch.where(REAL > 0, x, y) == x,
    "ne": lambda x, y: torch.where(REAL > 0, x, y) != x,
    "eqs": lambda x, y: x == 1 + 1j,
    "eqr": lambda x, y: x == REAL,
    "where": lambda x, y: torch.where(REAL > 0, x, y),
    "wheres": lambda x, y: torch.where(REAL > 0, x, 0),
    "whererx": lambda x, y: torch.where(REAL > 0, x, REAL),
    "masked_fill": lambda x, y: x.masked_fill(REAL > 0, 0),
    "masked_fillc": lambda x, y: x.masked_fill(REAL > 0, 1j),
    "cat": lambda x, y: torch.cat([x, y]),
    "catreal": lambda x, y: torch.cat([x, REAL]),
    "stack": lambda x, y: torch.stack([x, y], 1),
    "index": lambda x, y: x[torch.tensor([0, 2])],
    "index2": lambda x, y: x[:, torch.tensor([1, 1, 3])],
    "gather": lambda x, y: x.gather(1, torch.tensor([[0, 1], [2, 3], [1, 1]])),
    "take": lambda x, y: x.take(torch.tensor([0, 5])),
    "index_put": lambda x, y: x.index_put((torch.tensor([0, 1]),), y[:2]),
    "index_add": lambda x, y: x.index_add(0, torch.tensor([0, 1]), y[:2]),
    "scatter": lambda x, y: x.scatter(1, torch.tensor([[0], [1], [2]]), y),
    "scatter_add": lambda x, y: x.scatter_add(1, torch.tensor([[0], [1], [2]]), y),
    "setitem": lambda x, y: written(x, lambda z: z.__setitem__((slice(None), 1), y[:, 0])),
    "reshape": lambda x, y: x.reshape(2, 6),
    "t": lambda x, y: x.t(),
    "permute": lambda x, y: x[None].permute(2, 0, 1),
    "flip": lambda x, y: x.flip(0),
    "roll": lambda x, y: x.roll(1, 1),
    "expand": lambda x, y: x[None].expand(2, 3, 4),
    "repeat": lambda x, y: x.repeat(2, 1),
    "tile": lambda x, y: x.tile(2, 2),
    "rep_int": lambda x, y: x.repeat_interleave(2, 1),
    "chunk": lambda x, y: x.chunk(2, 1),
    "split": lambda x, y: x.split([1, 3], 1),
    "unbind": lambda x, y: x.unbind(0),
    "diag": lambda x, y: x[:, :3].diagonal(),
    "diage": lambda x, y: torch.diag_embed(x),
    "tril": lambda x, y: x.tril(),
    "triu": lambda x, y: x.triu(1),
    "trace": lambda x, y: x[:, :3].trace(),
    "pad": lambda x, y: F.pad(x, (1, 2)),
    "rot90": lambda x, y: x.rot90(),
    "movedim": lambda x, y: x.movedim(0, 1),
    "unfold": lambda x, y: x.unfold(1, 2, 1),
    "kron": lambda x, y: torch.kron(x, y),
    "squeeze": lambda x, y: x[None].squeeze(0),
    "zeros_like": lambda x, y: torch.zeros_like(x) + x,
    "ones_like": lambda x, y: torch.ones_like(x),
    "full_like": lambda x, y: torch.full_like(x, 1 + 2j),
    "new_zeros": lambda x, y: x.new_zeros(2),
    "empty": lambda x, y: torch.empty_like(x).copy_(y),
    "fill": lambda x, y: x.clone().fill_(1j),
    "fft": lambda x, y: torch.fft.fft(x),
    "ifft": lambda x, y: torch.fft.ifft(x),
    "fftn": lambda x, y: torch.fft.fft(x, n=6),
    "fftpad": lambda x, y: torch.fft.fft(x, n=2, norm="ortho"),
    "rfft": lambda x, y: torch.fft.rfft(x.real),
    "irfft": lambda x, y: torch.fft.irfft(x),
    "irfftn5": lambda x, y: torch.fft.irfft(x, n=5),
    "hfft": lambda x, y: torch.fft.hfft(x),
    "ihfft": lambda x, y: torch.fft.ihfft(x.real),
    "fft2": lambda x, y: torch.fft.fft2(x),
    "ifft2": lambda x, y: torch.fft.ifft2(x),
    "fftnd": lambda x, y: torch.fft.fftn(x),
    "ifftn": lambda x, y: torch.fft.ifftn(x),
    "rfft2": lambda x, y: torch.fft.rfft2(x.imag),
    "irfft2": lambda x, y: torch.fft.irfft2(x),
    "rfftn": lambda x, y: torch.fft.rfftn(x.imag),
    "irfftn": lambda x, y: torch.fft.irfftn(x),
    "hfft2": lambda x, y: torch.fft.hfft2(x),
    "ihfft2": lambda x, y: torch.fft.ihfft2(x.real),
    "hfftn": lambda x, y: torch.fft.hfftn(x),
    "ihfftn": lambda x, y: torch.fft.ihfftn(x.real),
    "fftshift": lambda x, y: torch.fft.fftshift(x),
    "ifftshift": lambda x, y: torch.fft.ifftshift(x),
    "istft": lambda x, y: torch.istft(
        torch.stft(x.real.reshape(-1).repeat(6), 16, 4, window=torch.hann_window(16), return_complex=True),
        16,
        4,
        window=torch.hann_window(16),
    ),
    "stftc": lambda x, y: torch.stft(x.reshape(-1).repeat(6), 16, 4, window=torch.hann_window(16), return_complex=True),
    "view_as_real": lambda x, y: torch.view_as_real(x),
    "view_as_complex": lambda x, y: torch.view_as_complex(REAL.reshape(3, 2, 2)),
    "complex": lambda x, y: torch.complex(x.real, y.imag),
    "polar": lambda x, y: torch.polar(x.abs(), y.angle()),
    "sgn": lambda x, y: x.sgn(),
    "isclose": lambda x, y: x.isclose(x + 1e-09 * y),
    "tan": lambda x, y: x.tan(),
    "tanh": lambda x, y: x.tanh(),
    "sin": lambda x, y: x.sin(),
    "cos": lambda x, y: x.cos(),
    "sinh": lambda x, y: x.sinh(),
    "cosh": lambda x, y: x.cosh(),
    "asin": lambda x, y: x.asin(),
    "acos": lambda x, y: x.acos(),
    "atan": lambda x, y: x.atan(),
    "asinh": lambda x, y: x.asinh(),
    "acosh": lambda x, y: x.acosh(),
    "atanh": lambda x, y: x.atanh(),
    "sqrt": lambda x, y: x.sqrt(),
    "rsqrt": lambda x, y: x.rsqrt(),
    "sigmoid": lambda x, y: x.sigmoid(),
    "log2": lambda x, y: x.log2(),
    "log10": lambda x, y: x.log10(),
    "log1p": lambda x, y: x.log1p(),
    "expm1": lambda x, y: x.expm1(),
    "exp2": lambda x, y: x.exp2(),
    "sinc": lambda x, y: x.sinc(),
    "logaddexp": lambda x, y: torch.logaddexp(x, y),
    "reciprocal": lambda x, y: x.reciprocal(),
    "square": lambda x, y: x.square(),
    "neg": lambda x, y: -x,
    "positive": lambda x, y: +x,
    "silu": lambda x, y: F.silu(x),
    "isnan": lambda x, y: x.isnan(),
    "isinf": lambda x, y: x.isinf(),
    "isfinite": lambda x, y: x.isfinite(),
    "isreal": lambda x, y: x.isreal(),
    "nonzero_bool": lambda x, y: x.bool(),
    "all": lambda x, y: x.all(),
    "any": lambda x, y: x.any(1),
    "logical_and": lambda x, y: torch.logical_and(x, y),
    "logical_not": lambda x, y: torch.logical_not(x),
    "count_nonzero": lambda x, y: x.count_nonzero(),
    "norm": lambda x, y: x.norm(),
    "vnorm1": lambda x, y: torch.linalg.vector_norm(x, 1, dim=1),
    "vnorminf": lambda x, y: torch.linalg.vector_norm(x, float("inf")),
    "var": lambda x, y: x.var(1),
    "std": lambda x, y: x.std(),
    "to128": lambda x, y: x.to(torch.complex128) * y,
    "mix": lambda x, y: x * y.to(torch.complex128),
    "toreal": lambda x, y: x.real.double(),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=2),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "dist": lambda x, y: torch.dist(x, y),
    "cumprod0": lambda x, y: x.cumprod(0),
    "conv1d": lambda x, y: F.conv1d(x[None], y[None, :, :2]),
    "item": lambda x, y: x * y[0, 0],
    "iadd": lambda x, y: written(x, lambda z: z.add_(y)),
    "imagset": lambda x, y: written(x, lambda z: z.imag.mul_(2)),
    "realset": lambda x, y: written(x, lambda z: z.real.zero_()),
    "viewreal_set": lambda x, y: written(x, lambda z: torch.view_as_real(z).mul_(2)),
    "vander": lambda x, y: torch.vander(x[0]),
    "cross": lambda x, y: torch.linalg.cross(x[:, :3], y[:, :3]),
    "tensordot": lambda x, y: torch.tensordot(x, y, dims=2),
    "float_power": lambda x, y: x.float_power(2),
    "ldexp": lambda x, y: torch.ldexp(x, torch.tensor([1, 2, 3, 4])),
    "true_div": lambda x, y: torch.true_divide(x, 3),
    "dropout_eval": lambda x, y: F.dropout(x, 0.5, False),
    "block_diag": lambda x, y: torch.block_diag(x, y),
    "meshgrid": lambda x, y: torch.meshgrid(x[0], y[0], indexing="ij"),
    "atleast": lambda x, y: torch.atleast_3d(x),
    "hstack": lambda x, y: torch.hstack([x, y]),
    "clone": lambda x, y: x.clone(),
    "ident": lambda x, y: x,
    "fftfreq": lambda x, y: x * torch.fft.fftfreq(4),
    "rfftfreq": lambda x, y: x[:, :3] * torch.fft.rfftfreq(4, 0.5),
    "a conjugate written": lambda x, y: written(x.conj(), lambda z: z.add_(y)),
    "an index put of numbers": lambda x, y: written(x, lambda z: z.__setitem__(0, 2 - 1j)),
    "an index put that adds": lambda x, y: x.index_put((torch.tensor([0, 0]),), y[:2], accumulate=True),
    "a scatter of a number": lambda x, y: x.scatter(1, torch.tensor([[0], [1], [2]]), 3.0),
    "a mask with a tensor": lambda x, y: x.masked_fill(REAL > 0, torch.tensor(2 + 1j)),
    "a real one's likeness": lambda x, y: torch.zeros_like(x, dtype=torch.float32),
    "to real": lambda x, y: x.to(torch.float32) + 1,
    "real into complex": lambda x, y: written(x, lambda z: z.copy_(REAL)),
    "addmm scaled": lambda x, y: torch.addmm(x[:, :3], x, y.t(), beta=2j, alpha=1 - 1j),
    "addbmm": lambda x, y: torch.addbmm(x[:, :3], torch.stack([x, y]), torch.stack([y.t(), x.t()]), beta=2j, alpha=1j),
    "addbmm alone": lambda x, y: torch.addbmm(x[:, :3], torch.stack([x, y]), torch.stack([y.t(), x.t()]), beta=0),
    "logsumexp": lambda x, y: (x.logsumexp(1), y.logsumexp((0, 1), keepdim=True), x.sum().logsumexp(0)),
    "softmax of real parts": lambda x, y: (x.softmax(1, dtype=torch.float64), y.log_softmax(0, dtype=torch.float32)),
    "as_strided": lambda x, y: (x.as_strided((2, 3), (1, 2), 1), torch.as_strided_copy(y.t(), (5,), (2,))),
    "as_strided_scatter": lambda x, y: torch.as_strided_scatter(x, y[0, :2], (2,), (3,), 1),
    "masked_select": lambda x, y: (x.masked_select(REAL > 0), y[0].masked_select(REAL > 0), x[REAL > 0.5]),
    "the product of nothing": lambda x, y: x[:, :0].prod(1),
    "products kept": lambda x, y: x.prod(0, keepdim=True),
    "equal parts": lambda x, y: (x == torch.complex(x.real, y.imag)) | (x != torch.complex(y.real, x.imag)),
    "of one type with another": lambda x, y: x.to(torch.complex128) == x,
    "padding with a number": lambda x, y: F.pad(x, (1, 0), value=2.5),
    "padding with a complex number": lambda x, y: F.pad(x.real, (1, 0), value=2.5) + F.pad(x, (1, 0), value=-1.0),
    "put": lambda x, y: x.put(torch.tensor([1, 7]), y[0, :2]),
    "put that adds": lambda x, y: x.put(torch.tensor([1, 1]), y[0, :2], accumulate=True),
    "pixels": lambda x, y: F.pixel_shuffle(x.reshape(1, 4, 1, 3), 2),
    "variance and mean": lambda x, y: torch.var_mean(x, 1, keepdim=True),
    "deviation and mean": lambda x, y: torch.std_mean(x, correction=0),
    "gradient": lambda x, y: torch.gradient(x, dim=1),
    "trapezoids": lambda x, y: torch.trapezoid(x, dim=1),
    "adding a number": lambda x, y: F.pairwise_distance(x, y),
    "rms_norm": lambda x, y: (F.rms_norm(x, (4,)), F.rms_norm(x[None], (3, 4), y, eps=0.1)),
    "norm of a type": lambda x, y: torch.linalg.vector_norm(x, 3.0, dim=1, dtype=torch.complex128),
    "scatter that adds": lambda x, y: (
        x.scatter(1, torch.tensor([[0, 0], [1, 1], [2, 3]]), y, reduce="add"),
        x.scatter(0, torch.tensor([[0, 1, 2, 2]]), 2 - 1j, reduce="add"),
    ),
    "new_empty_strided": lambda x, y: x.new_empty_strided((2, 3), (3, 1)).copy_(y[:2, :3]),
    "nonzero": lambda x, y: (
        torch.where(REAL > 0, x, 0).nonzero(),
        torch.complex(x.real * 0, y.imag).argwhere(),
        torch.full_like(x[0, 0], 1j).nonzero(),
    ),
    "alpha of a type": lambda x, y: torch.add(x, REAL, alpha=2),
}


def graph_results(program: Program, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the graph makes of the arguments, pairs made complex numbers where the interface says so."""

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return program(x, y)

    exported = to_graphs(Module().eval(), tuple(args))
    entry = exported.entries["forward"]
    found = results(entry.graph, exported.store, dict(zip([i.name for i in entry.graph.inputs], args, strict=True)))
    return [torch.view_as_complex(t.contiguous()) if i in entry.complex.outputs else t for i, t in enumerate(found)]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=["c64", "c128"])
@pytest.mark.parametrize("name", OPS)
def test_equals_eager(name: str, dtype: torch.dtype) -> None:
    args = [X.to(dtype), Y.to(dtype)]
    try:
        want = pytree.tree_leaves(OPS[name](*args))
    except RuntimeError:
        pytest.skip("eager wants operands of one type here")
    for got, eager in zip(graph_results(OPS[name], args), want, strict=True):
        torch.testing.assert_close(got, eager.resolve_conj().resolve_neg(), rtol=1e-4, atol=1e-5)


REFUSED: dict[str, tuple[Program, type[Exception], str]] = {
    "scatter that multiplies": (
        lambda x, y: x.scatter(1, torch.tensor([[0]]), y, reduce="multiply"),
        UnsupportedOpError,
        "scatter with reduce='multiply' of complex numbers: gather the factors and multiply them",
    ),
    "logcumsumexp": (lambda x, y: x.logcumsumexp(1), UnsupportedOpError, "on complex numbers is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    program, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        graph_results(program, (X, Y))


@pytest.mark.parametrize("program", [lambda x: x.prod(0), lambda x: x.cumprod(0)], ids=["product", "running"])
def test_products_along_dynamic_dimensions_are_refused(program: Callable[[torch.Tensor], torch.Tensor]) -> None:
    n = torch.export.Dim("n", min=2, max=9)
    with pytest.raises(UnsupportedOpError, match="of complex numbers along a dynamic dimension: make it static"):
        to_graphs(program, (X,), dynamic_shapes=({0: n},))


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_complex_numbers_of_two_halves_are_no_results() -> None:
    with pytest.raises(InputSpecError) as caught:
        to_graphs(lambda x: torch.view_as_complex(x), (torch.ones(3, 2, dtype=torch.float16),))
    assert caught.value.what == "output view_as_complex: element type complex32 is not supported"
