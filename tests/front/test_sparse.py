"""Sparse tensors as constants, as inputs and made in forward, beside eager torch (ADR 0075)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import hardtack
from hardtack.comparison import compare
from hardtack.exporter import to_graphs
from hardtack.exporter.reference import run
from hardtack.narrowing import input_tensors

pytestmark = pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*invariant checks")
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SIZES = ((4, 6, 9), (1, 1, 1), (1, 1, 3), (5, 7, 0), (0, 3, 0), (3, 0, 0), (3, 3, 30), (2, 9, 1), (7, 40, 100))
COO = [*TOLERANCE, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
CSR = [torch.float32, torch.float64]


class Call(nn.Module):
    """Functions of the same arguments, side by side."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        super().__init__()
        self.functions = functions
        self.eval()

    def forward(self, a: Any, x: Any, y: Any) -> Any:
        return tuple(f(a, x, y) for f in self.functions)


def matrix(rows: int, columns: int, nnz: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """A COO matrix whose places may repeat, in no order."""
    noise = torch.Generator().manual_seed(seed)
    places = torch.stack([torch.randint(max(n, 1), (nnz,), generator=noise) for n in (rows, columns)])
    return torch.sparse_coo_tensor(places, numbers((nnz,), dtype, seed), (rows, columns))


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 1) -> Tensor:
    noise = torch.Generator().manual_seed(seed + 100)
    return torch.randint(-4, 5, shape, generator=noise).abs_().to(dtype) if not dtype.is_floating_point else (
        torch.randn(shape, generator=noise).to(dtype)
    )  # fmt: skip


def bundle(module: Any, args: Any, path: Path, **more: Any) -> hardtack.Session:
    hardtack.export(module, args, path=path / "m.pkg", **more)
    return hardtack.load(path / "m.pkg").session()


def interpreted(module: Any, args: Any, dynamic_shapes: Any) -> Callable[..., list[Tensor]]:
    """The graph that a module becomes, run op by op: what kernels compute of it is others' subject."""
    exported = to_graphs(module, args, dynamic_shapes=dynamic_shapes)
    entry = exported.entries["forward"]

    def call(*args: Any) -> list[Tensor]:
        found = run(entry.graph, exported.store, input_tensors(entry, args, {}))
        return [found[name] for name in entry.graph.outputs]

    return call


def same(got: Any, want: Any) -> None:
    for g, w in zip(got, want, strict=True):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        torch.testing.assert_close(g, w, rtol=TOLERANCE.get(w.dtype, 0), atol=TOLERANCE.get(w.dtype, 0), equal_nan=True)


def _mm(a: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.mm(a, x)


PRODUCTS = (
    lambda a, x, y: a @ x,
    lambda a, x, y: torch.mm(a, x),
    lambda a, x, y: torch.sparse.mm(a, x),
    lambda a, x, y: torch.sparse.addmm(y, a, x, beta=2, alpha=3),
    lambda a, x, y: a.t() @ y,
    lambda a, x, y: a.mv(x[:, 0]),
    lambda a, x, y: (a * 2).to_dense() + a.coalesce().to_dense(),
    lambda a, x, y: torch.sparse.sum(a),
    lambda a, x, y: torch.sparse.sum(a, dim=1).to_dense(),
    lambda a, x, y: a.sum(dim=0).to_dense(),
    lambda a, x, y: (a + a).to_dense(),
    lambda a, x, y: (a.coalesce() * y[:, :1]).to_dense(),
    lambda a, x, y: a.coalesce().indices(),
    lambda a, x, y: a.coalesce().values(),
)


def taken(function: Callable[..., Any], *args: Any) -> bool:
    """Whether eager takes the dtype."""
    try:
        function(*args)
    except (RuntimeError, NotImplementedError) as error:
        if "not implemented" not in str(error):
            raise
        return False
    return True


def dynamic() -> list[Any]:
    rows, columns, nnz = (Dim(n, max=1000) for n in ("rows", "columns", "nnz"))
    return [{0: rows, 1: columns, "nnz": nnz}, {0: columns}, {0: rows}]


@pytest.mark.parametrize("dtype", COO, ids=str)
def test_coo_inputs_are_eagers(dtype: torch.dtype) -> None:
    example = matrix(4, 6, 9, dtype), numbers((6, 3), dtype), numbers((4, 3), dtype)
    module = Call(*(f for f in PRODUCTS if taken(f, *example)))
    session = interpreted(module, example, dynamic() if dtype is torch.float32 else None)
    for rows, columns, nnz in SIZES if dtype is torch.float32 else SIZES[:1]:
        args = matrix(rows, columns, nnz, dtype, seed=nnz), numbers((columns, 3), dtype), numbers((rows, 3), dtype)
        same(session(*args), module(*args))


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc], ids=str)
@pytest.mark.parametrize("dtype", CSR, ids=str)
def test_compressed_inputs_are_eagers(dtype: torch.dtype, layout: torch.layout) -> None:
    def compressed(rows: int, columns: int, nnz: int) -> Tensor:
        a = matrix(rows, columns, nnz, dtype, seed=nnz).coalesce()
        return a.to_sparse_csr() if layout is torch.sparse_csr else a.to_sparse_csc()

    products = [
        lambda a, x, y: a @ x,
        lambda a, x, y: torch.addmm(y, a, x, beta=2, alpha=3),
        lambda a, x, y: a.t() @ y,
        lambda a, x, y: (a * 2).to_dense(),
        lambda a, x, y: a.values() * 2,
    ]
    if layout is torch.sparse_csr:
        products += [
            lambda a, x, y: a.crow_indices(),
            lambda a, x, y: x.t() @ a.t(),
            lambda a, x, y: torch.nn.functional.linear(x.t(), a, y[:, 0]),
            lambda a, x, y: torch.sparse.sampled_addmm(a, y, x.t(), beta=0.5, alpha=2).to_dense(),
            *(lambda a, x, y, r=r: torch.sparse.mm(a, x, r) for r in ("sum", "mean", "amax", "amin")),
        ]
    module = Call(*products)
    example = compressed(4, 6, 9), numbers((6, 3), dtype), numbers((4, 3), dtype)
    session = interpreted(module, example, dynamic() if dtype is torch.float32 else None)
    for rows, columns, nnz in SIZES if dtype is torch.float32 else SIZES[:1]:
        args = compressed(rows, columns, nnz), numbers((columns, 3), dtype), numbers((rows, 3), dtype)
        same(session(*args), module(*args))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_reduced_products_of_half_types(dtype: torch.dtype) -> None:
    a = matrix(4, 6, 9, dtype).coalesce().to_sparse_csr()
    module = Call(*(lambda a, x, y, r=r: torch.sparse.mm(a, x, r) for r in ("sum", "mean", "amax", "amin")))
    x = numbers((6, 3), dtype)
    same(interpreted(module, (a, x, x), None)(a, x, x), module(a, x, x))


class Graph(nn.Module):
    """A network whose adjacency is a buffer in one layout, a parameter in another and an attribute in a third."""

    def __init__(self) -> None:
        super().__init__()
        a = matrix(5, 5, 12, torch.float32).coalesce()
        self.register_buffer("adjacency", a.to_sparse_csr())
        self.weight = nn.Parameter(a * 2)
        self.plain = (a * 3).to_sparse_csc()
        self.linear = nn.Linear(3, 3)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.adjacency @ self.linear(x))
        return torch.sparse.mm(self.weight, y) + self.plain @ x


def test_constants_are_sparse(tmp_path: Path) -> None:
    module, x = nn.Sequential(Graph(), Graph()).eval(), torch.randn(5, 3)
    before = list(module.state_dict())
    session = bundle(module, (x,), tmp_path)
    same([session(x)], [module(x)])
    assert list(module.state_dict()) == before  # the module is as it was


class Made(nn.Module):
    """A graph convolution that makes its adjacency of edges and weights."""

    def forward(self, edges: Tensor, weights: Tensor, x: Tensor) -> Any:
        n = x.shape[0]
        a = torch.sparse_coo_tensor(edges, weights, (n, n))
        softened = torch.sparse.softmax(a, 1)
        return (
            a @ x,
            softened @ x,
            torch.sparse.log_softmax(a, 1).to_dense(),
            a.coalesce().to_sparse_csr() @ x,
            (x.relu().to_sparse() @ x.t()),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_made_in_forward(dtype: torch.dtype) -> None:
    def args(n: int, e: int) -> tuple[Tensor, Tensor, Tensor]:
        a = matrix(n, n, e, dtype, seed=n)
        return a._indices().contiguous(), a._values(), numbers((n, 3), dtype)

    n, e = Dim("n", max=99), Dim("e", max=999)
    module = Made().eval()
    session = interpreted(module, args(5, 9), [{1: e}, {0: e}, {0: n}])
    for sizes in ((5, 9), (1, 1), (4, 0), (3, 20)):
        same(session(*args(*sizes)), module(*args(*sizes)))


def test_compressed_made_in_forward(tmp_path: Path) -> None:
    a = matrix(4, 6, 9, torch.float32).coalesce().to_sparse_csr()
    x = torch.randn(6, 2)

    def f(crow: Tensor, column: Tensor, values: Tensor, x: Tensor) -> Any:
        return torch.sparse_csr_tensor(crow, column, values, (4, 6)) @ x

    args = a.crow_indices().int(), a.col_indices().int(), a.values(), x
    session = bundle(f, args, tmp_path)
    same([session(*args)], [f(*args)])
    with pytest.raises(hardtack.RunError, match="an assertion of the model failed"):
        session(args[0].flip(0), *args[1:])


def test_products_in_a_bundle(tmp_path: Path) -> None:
    """With dynamic sizes and nonzeros, from no rows on, and a size that the run computes."""
    module = Call(_mm, lambda a, x, y: a.coalesce().values())
    example = matrix(4, 6, 9, torch.float32), torch.randn(6, 3), torch.randn(4, 3)
    session = bundle(module, example, tmp_path, dynamic_shapes=dynamic())
    for rows, columns, nnz in (*SIZES, (0, 4, 0)):
        args = matrix(rows, columns, nnz, torch.float32), torch.randn(columns, 3), torch.randn(rows, 3)
        same(session(*args), module(*args))


def test_parts_by_name(tmp_path: Path) -> None:
    a, x, y = matrix(4, 6, 9, torch.float32), torch.randn(6, 2), torch.randn(4, 2)
    session = bundle(Call(_mm), (a, x, y), tmp_path, dynamic_shapes=dynamic())
    parts = {"indices": a._indices(), "values": a._values(), "size_0": 4, "size_1": 6}
    same(session(parts, x, y), [a @ x])
    found = compare(hardtack.load(tmp_path / "m.pkg"), Call(_mm), (a, x, y), dynamic_shapes=dynamic())
    assert found.outputs[0].good
    with pytest.raises(hardtack.RunError, match="an assertion of the model failed"):
        session({**parts, "indices": a._indices() + 3}, x, y)
    with pytest.raises(hardtack.RunError, match="an assertion of the model failed"):
        session({**parts, "indices": a._indices() - 1}, x, y)


def test_a_coalesced_input_stays_coalesced(tmp_path: Path) -> None:
    a = matrix(4, 6, 9, torch.float32).coalesce()
    module = Call(lambda a, x, y: a.values() + x)
    x = torch.randn(a.values().shape)
    session = bundle(module, (a, x, x), tmp_path)
    same(session(a, x, x), module(a, x, x))
    parts = {"indices": a.indices().flip(1), "values": a.values(), "size_0": 4, "size_1": 6}
    with pytest.raises(hardtack.RunError, match="an assertion of the model failed"):
        session(parts, x, x)


def test_a_matrix_of_another_size_is_refused(tmp_path: Path) -> None:
    """Whose parts would fit: no index lies beyond the example's size."""
    a, x = matrix(4, 6, 9, torch.float32), torch.randn(6, 3)
    wider = torch.sparse_coo_tensor(a._indices(), a._values(), (4, 7))
    for example, other in ((a, wider), (a.to_sparse_csr(), wider.to_sparse_csr())):
        session = bundle(Call(lambda a, x, y: a @ x), (example, x, x), tmp_path)
        same(session(example, x, x), [a @ x])
        with pytest.raises(hardtack.InputError) as caught:
            session(other, x, x)
        assert str(caught.value) == "args[0]['size_1'] was 6 when the model was exported and cannot change; it is 7"


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "output": (lambda a, x, y: a * 2, "output[0] is a sparse tensor"),
    "cat": (lambda a, x, y: torch.cat([a, a]).to_dense(), "cat of a sparse tensor is not supported"),
    "both": (lambda a, x, y: (a.t() @ a).to_dense(), "a product of two sparse tensors"),
    "no size": (
        lambda a, x, y: torch.sparse_coo_tensor(a._indices(), a._values()) @ x,
        "sparse_coo_tensor without a size takes one that the values of indices say",
    ),
    "values": (lambda a, x, y: a.values(), "values() of a sparse tensor that is not coalesced"),
    "sizes": (lambda a, x, y: a @ x[1:], "the sizes of the sparse tensor and of the dense one do not fit"),
    "dtypes": (
        lambda a, x, y: a @ x.double(),
        "a product of a sparse tensor of torch.float32 and a tensor of torch.float64",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    function, what = REFUSED[case]
    with pytest.raises(hardtack.ExportError) as caught:
        hardtack.export(Call(function), (matrix(4, 6, 9, torch.float32), torch.randn(6, 2), None), path="unused.pkg")
    assert caught.value.what == what
    assert caught.value.fix


def test_refused_inputs() -> None:
    x = torch.randn(6, 2)
    blocks = torch.eye(4).to_sparse_bsr((2, 2))
    batch = torch.ones(2, 4, 6).to_sparse_csr()
    for a, what in (
        (blocks, "args[0] is a sparse tensor of blocks, sparse_bsr"),
        (batch, "args[0] is a batch of sparse matrices, sparse_csr"),
    ):
        with pytest.raises(hardtack.ExportError) as caught:
            hardtack.export(Call(lambda a, x, y: x), (a, x, x), path="unused.pkg")
        assert caught.value.what == what
    a = matrix(4, 6, 9, torch.float32)
    with pytest.raises(hardtack.ExportError) as caught:
        hardtack.export(Call(_mm), (a, x, x), path="unused.pkg", dynamic_shapes=[{"nonzeros": 3}, None, None])
    assert caught.value.what == "dynamic_shapes of a sparse tensor is {'nonzeros': 3}"
    with pytest.raises(hardtack.ExportError) as caught:
        hardtack.export(Call(_mm), (a, x, x), path="unused.pkg", options=hardtack.Options(strict=True))
    assert caught.value.what == "a model with sparse tensors is captured with strict=True"
