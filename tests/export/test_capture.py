"""Capture: signatures, examples of size 0 and 1, states, control flow, integers, and every way to give a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

from hardtack.codegen.ir.expr import bounds
from hardtack.codegen.ir.graph import Graph
from hardtack.exporter import to_graphs
from hardtack.exporter.reference import ReferenceFailure, outputs, run
from tests.export.checks import assert_same, check, eager, entry, feed, kinds

ANY = Dim.DYNAMIC
X = torch.linspace(-1, 1, 32).view(4, 8)


class Sum(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Counter(nn.Module):
    """Two buffers that a run changes: one replaced, one counted up."""

    last: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(2, 3))
        self.register_buffer("count", torch.ones(1))
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.last * self.count
        self.last.copy_(x)
        self.count += 1
        return out


class Keywords(nn.Module):
    def forward(self, x: torch.Tensor, **rest: torch.Tensor) -> Any:
        return {"sum": x + rest["y"], "parts": [x, None, 3, "text", (rest["y"],)]}


@pytest.mark.parametrize("size", [0, 1])
def test_example_of_size_zero_or_one(size: int) -> None:
    """A dynamic dim is dynamic whatever the example's size."""
    exported = check(Sum().eval(), (X[:size], X[:size]), ({0: ANY}, {0: ANY}), [(X, X), (X[:1], X[:1]), (X[:0], X[:0])])
    (binding,) = entry(exported).graph.syms
    assert (binding.sym.lo, binding.sym.hi) == (0, None)


def test_declared_range_is_the_contract() -> None:
    batch = Dim("batch", min=1, max=64)
    graph = entry(to_graphs(Sum().eval(), (X, X), None, ({0: batch}, {0: batch}))).graph
    (binding,) = graph.syms
    assert (binding.sym.name, binding.input, binding.dim) == ("batch", "x", 0)
    assert bounds(binding.sym) == (1, 64)
    with pytest.raises(ReferenceFailure, match="input y is"):
        run(graph, to_graphs(Sum().eval(), (X, X)).store, {"x": X, "y": X[:2]})


def test_one_dim_for_two_inputs_that_never_meet() -> None:
    """The same Dim means equal sizes, even where the program does not need it."""
    batch = Dim("batch", max=64)
    exported = to_graphs(lambda x, y: (x + 1, y * 2), (X, X), None, ({0: batch}, {0: batch}))
    graph = entry(exported).graph
    assert [str(graph.types[i.name]) for i in graph.inputs] == ["f32[batch, 8]", "f32[batch, 8]"]
    with pytest.raises(ReferenceFailure, match="input y is"):
        run(graph, exported.store, {"x": X, "y": X[:2]})


def test_states_are_updated() -> None:
    exported = to_graphs(Counter(), (torch.ones(2, 3),))
    graph = entry(exported).graph
    last, count = graph.states
    assert (last.name, last.init, count.name) == ("last", None, "count")
    assert count.init is not None
    module = Counter()
    state: dict[str, torch.Tensor] = {}
    for i in range(3):
        x = torch.full((2, 3), float(i))
        values = run(graph, exported.store, {"x": x}, state)
        assert_same(outputs(graph, values), eager(module, (x,)))
        state = {s.name: values[s.final or s.name] for s in graph.states}
    assert state["count"].item() == 4


class Reader(nn.Module):
    def __init__(self, source: Counter) -> None:
        super().__init__()
        self.last, self.count = source.last, source.count
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.last


def test_entry_points_share_states_and_constants() -> None:
    """A buffer that one entry point changes is a state of another that only reads it."""
    counter = Counter()
    exported = to_graphs(
        {"write": counter, "read": Reader(counter)}, {"write": (torch.ones(2, 3),), "read": (torch.ones(2, 3),)}
    )
    (state,) = exported.entries["read"].graph.states
    assert (state.name, state.final) == ("last", None)


def test_ready_programs() -> None:
    programs = {n: torch.export.export(Sum().eval(), (X[:n], X[:n])) for n in (2, 3)}
    exported = to_graphs({f"rows_{n}": ep for n, ep in programs.items()})
    assert list(exported.entries) == ["rows_2", "rows_3"]


def test_program_saved_and_loaded(tmp_path: Any) -> None:
    ep = torch.export.export(Sum().eval(), (X, X), dynamic_shapes=({0: ANY}, {0: ANY}))
    torch.export.save(ep, tmp_path / "sum.pt2")
    exported = to_graphs(torch.export.load(tmp_path / "sum.pt2"))
    graph = entry(exported).graph
    assert_same(outputs(graph, run(graph, exported.store, {"x": X[:1], "y": X[:1]})), [X[:1] * 2])


def test_keywords_and_trees() -> None:
    exported = check(Keywords().eval(), (X,), {"x": {0: ANY}, "y": {0: ANY}}, kwargs={"y": X})
    found = entry(exported)
    assert found.in_tree == {
        "kind": "tuple",
        "items": [
            {"kind": "tuple", "items": [{"kind": "leaf", "index": 0}]},
            {"kind": "dict", "keys": ["y"], "items": [{"kind": "leaf", "index": 1}]},
        ],
    }
    assert found.out_tree["keys"] == ["sum", "parts"]
    assert [i["kind"] for i in found.out_tree["items"][1]["items"]] == ["leaf", "none", "const", "const", "tuple"]
    assert found.graph.output_names == ("sum", "parts.0", "parts.4.0")


def test_named_results() -> None:
    found = entry(to_graphs(lambda x: x.max(1), (X,)))
    assert found.out_tree["kind"] == "namedtuple"
    assert found.out_tree["fields"] == ["values", "indices"]
    assert found.graph.output_names == ("values", "indices")


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, n: int) -> Any:
        return x * n, x.shape[0]


def test_integer_input_and_output() -> None:
    exported = to_graphs(Scaled().eval(), (X, 3), None, ({0: ANY}, ANY))
    graph = entry(exported).graph
    values = run(graph, exported.store, feed(graph, (X[:2], 5)))
    assert_same(outputs(graph, values), [X[:2] * 5, torch.tensor(2)])


cond: Any = torch.cond
while_loop: Any = torch._higher_order_ops.while_loop


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x * x.shape[0], (x,))


class SizeBranches(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return cond(x.shape[0] > 3, lambda x: x + 1, lambda x: x - 1, (x,))


class Loop(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + 1), (torch.tensor(0), x))


@pytest.mark.parametrize("module", [Branches(), SizeBranches()], ids=["on a value", "on a size"])
def test_cond(module: nn.Module) -> None:
    exported = check(module.eval(), (X,), ({0: ANY},), [(X + 5,), (X[:2],), (X[:1] - 3,)])
    assert "cond" in kinds(exported)
    op = next(o for o in entry(exported).graph.ops if o.kind == "cond")
    assert isinstance(op.attr("then"), Graph)


def test_while() -> None:
    assert "while" in kinds(check(Loop().eval(), (X,)))


def test_torchscript() -> None:
    scripted = torch.jit.script(nn.Linear(8, 2).eval())
    exported = to_graphs(scripted, (X,))
    graph = entry(exported).graph
    got = outputs(graph, run(graph, exported.store, feed(graph, (X,))))
    assert_same(got, [scripted(X)])


def test_same_export_twice() -> None:
    """Same module, same Graph and same constants."""
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16)).eval()
    first, second = (to_graphs(module, (X,), None, ({0: ANY},)) for _ in range(2))
    assert entry(first).graph == entry(second).graph
    assert list(first.store.data) == list(second.store.data)


def test_origins_name_the_line_without_machine_paths() -> None:
    exported = to_graphs(Sum().eval(), (X, X))
    (op,) = entry(exported).graph.ops
    assert op.origin.file.endswith("test_capture.py")
    assert not op.origin.file.startswith("/")
    assert op.origin.source == "return x + y"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_float_types(dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Softmax(-1)).eval().to(dtype)
    exported = to_graphs(module, (X.to(dtype),))
    graph = entry(exported).graph
    got = outputs(graph, run(graph, exported.store, feed(graph, (X.to(dtype),))))
    assert_same(got, eager(module, (X.to(dtype),)), rtol=0.02, atol=2e-3)


def test_weights_keep_their_names_and_are_stored_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(11, 8)
            self.other = nn.Parameter(self.table.weight.detach().clone())

        def forward(self, i: torch.Tensor) -> Any:
            return self.table(i) + self.other[i]

    exported = to_graphs(Tied().eval(), (torch.tensor([1, 2]),))
    # two constants, so that one can be replaced alone; one content
    assert {c.name for c in entry(exported).graph.constants} == {"other", "table.weight"}
    assert len(exported.store.data) == 1


def test_pooling_asks_for_no_remainder() -> None:
    """torch before 2.13 notes whether a pooled size divides the stride, which no op of the program needs."""
    pools = (nn.MaxPool2d(2), nn.AvgPool2d(3, 2, 1), nn.MaxPool2d(3, 2, 1, ceil_mode=True))
    exported = to_graphs(lambda x: [p(x) for p in pools], (torch.randn(2, 3, 13, 16),), None, ({2: ANY, 3: ANY},))
    assert [g.text for g in entry(exported).graph.guards if "%" in g.text] == []


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 2, 64).view(8, 8))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (q @ k.T) @ v + self.weight.sum()


def test_a_tensor_given_twice_is_two_inputs() -> None:
    """torch takes equal objects for one: attention(x, x, x) would read one input, and weights as examples none."""
    other = (torch.randn(8, 8), torch.randn(8, 8), torch.randn(8, 8))
    module, x = Attends().eval(), torch.randn(8, 8)
    check(module, (x, x, x), None, [other])
    check(module, (x, module.weight, x), None, [other])


def test_views_of_one_tensor_are_inputs_like_others() -> None:
    """torch gives views of one tensor sizes that vary, and lost them while it took a convolution apart."""

    class Both(nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return F.conv3d(x, w), F.avg_pool2d(y, 3, ceil_mode=True)

    image = torch.randn(2, 4, 9, 10)
    other = (torch.randn(2, 1, 4, 9, 10), torch.randn(2, 1, 2, 2, 2), torch.randn(2, 4, 9, 10))
    check(Both().eval(), (image[:, None], other[1], image), None, [other])


class Fields(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclass
class Registered:
    first: torch.Tensor
    second: torch.Tensor


torch.export.register_dataclass(Registered)


class Swaps(nn.Module):
    """The fields of its input exchanged, in the class that is given."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, pair: Any) -> Any:
        return self.kind(pair.second, pair.first + 1)


@pytest.mark.parametrize(("kind", "described"), [(Fields, "namedtuple"), (Registered, "dict")])
def test_classes_with_named_fields(kind: Any, described: str) -> None:
    found = entry(check(Swaps(kind).eval(), (kind(X, X * 2),)))
    given = found.in_tree["items"][0]["items"][0]
    assert (given["kind"], found.out_tree["kind"]) == (described, described)
    names = "fields" if described == "namedtuple" else "keys"
    assert (given[names], found.out_tree[names]) == (["first", "second"], ["first", "second"])


class Both(nn.Module):
    def forward(self, x: torch.Tensor, rest: list[torch.Tensor]) -> Any:
        return x + 1, rest[0] * rest[1]


@pytest.mark.parametrize("spec", [{"x": {0: ANY}}, {"x": {0: ANY}, "rest": None}])
def test_a_container_without_dynamic_dims(spec: Any) -> None:
    check(Both().eval(), (X, [X, X * 2]), spec, [(X[:1], [X, X])])


def test_a_range_that_ends_at_one() -> None:
    exported = check(Sum().eval(), (X[:1], X[:1]), ({0: Dim("B", max=1)},) * 2, [(X[:0], X[:0])])
    (binding,) = entry(exported).graph.syms
    assert (binding.sym.lo, binding.sym.hi) == (0, 1)
