"""What users bring: decompositions, lowerings and passes, and what is said where they are wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from hardtack.codegen.ir.constants import ConstantStore
from hardtack.codegen.ir.graph import Constant, Graph, TensorType
from hardtack.codegen.ir.types import DType
from hardtack.exporter import Exported, InputSpecError, PluginError, RangeError, UnsupportedOpError, to_graphs
from hardtack.exporter.convert.builder import Builder
from hardtack.exporter.convert.table import Value
from hardtack.exporter.errors import Refusal
from hardtack.exporter.extensions import Contribution, Extensions, UserPass, extensions
from hardtack.exporter.reference.interpreter import ReferenceFailure, results
from hardtack.exporter.rewrite.edit import Edit


@torch.library.custom_op("hardtack_tests::clip_scale", mutates_args=())
def clip_scale(x: Tensor, scale: float = 2.0) -> Tensor:
    return torch.from_numpy(np.clip(x.numpy(), -1, 1) * np.float32(scale))


@clip_scale.register_fake
def _(x: Tensor, scale: float = 2.0) -> Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("hardtack_tests::halves", mutates_args=())
def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 0.5, x.sum(-1)


@halves.register_fake
def _(x: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(x.shape[:-1])


@torch.library.custom_op("hardtack_tests::double_into", mutates_args=("out",))
def double_into(x: Tensor, out: Tensor) -> None:
    out.copy_(x * 2)


@double_into.register_fake
def _(x: Tensor, out: Tensor) -> None:
    return None


class Calls(nn.Module):
    """Calls of a function between others, in a branch, too."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(self.function(x + 1.0)) - 3.0


def _clip(x: Tensor, scale: float = 2.0) -> Tensor:
    return x.clamp(-1, 1) * scale


def _brought(**given: Any) -> Extensions:
    return extensions([Contribution("the argument decompositions", **given)])


def _export(function: Callable[..., Any], brought: Extensions | None, shape: tuple[int, ...] = (3, 4)) -> Exported:
    return to_graphs(Calls(function).eval(), (torch.randn(shape),), extensions=brought)


def _outputs(exported: Exported, *x: Tensor) -> list[Tensor]:
    graph = exported.entries["forward"].graph
    return results(graph, exported.store, dict(zip((i.name for i in graph.inputs), x, strict=True)))


@pytest.mark.parametrize(
    "key",
    [
        clip_scale,
        torch.ops.hardtack_tests.clip_scale,
        torch.ops.hardtack_tests.clip_scale.default,
        "hardtack_tests::clip_scale",
        "hardtack_tests::clip_scale.default",
        "hardtack_tests.clip_scale.default",
    ],
    ids=["custom_op", "packet", "overload", "name", "name and overload", "dots"],
)
def test_a_custom_op_is_computed_by_its_decomposition(key: Any) -> None:
    brought = _brought(decompositions={key: _clip})
    exported, x = _export(lambda x: clip_scale(x, 1.5), brought), torch.randn(3, 4) * 2
    torch.testing.assert_close(_outputs(exported, x)[0], Calls(lambda x: clip_scale(x, 1.5))(x), rtol=0, atol=0)
    assert brought.used == {"decomposition hardtack_tests.clip_scale.default": f"{__name__}._clip"}


def test_branches_and_dynamic_sizes_are_decomposed_too() -> None:
    def branch(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: clip_scale(x), lambda x: x * 2, (x,))

    exported = to_graphs(
        Calls(branch).eval(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim.AUTO},),
        extensions=_brought(decompositions={clip_scale: _clip}),
    )  # fmt: skip
    for x in (torch.rand(5, 4), -torch.rand(1, 4) - 2):
        torch.testing.assert_close(_outputs(exported, x)[0], Calls(branch)(x))


def test_several_results_and_writes_to_arguments() -> None:
    def both(x: Tensor) -> Tensor:
        half, total = halves(x)
        out = torch.zeros_like(x)
        double_into(half, out)
        return out * total.unsqueeze(-1)

    def into(x: Tensor, out: Tensor) -> None:
        out.copy_(x * 2)

    brought = _brought(decompositions={halves: lambda x: (x * 0.5, x.sum(-1)), double_into: into})
    x = torch.randn(3, 4)
    torch.testing.assert_close(_outputs(_export(both, brought), x)[0], Calls(both)(x))


def test_a_decomposition_stands_in_for_one_of_ours() -> None:
    brought = _brought(decompositions={"aten::gelu": lambda x, approximate="none": x * (x * 1.702).sigmoid()})
    x = torch.randn(3, 4)
    exported = _export(nn.functional.gelu, brought)
    torch.testing.assert_close(_outputs(exported, x)[0], (x + 1) * ((x + 1) * 1.702).sigmoid() - 3)


def test_what_another_library_registered_with_torch_is_used() -> None:
    @torch.library.custom_op("hardtack_tests::registered", mutates_args=())
    def registered(x: Tensor) -> Tensor:
        return torch.from_numpy(np.exp(x.numpy()))

    registered.register_fake(torch.empty_like)
    torch._decomp.register_decomposition(torch.ops.hardtack_tests.registered.default)(lambda x: x.exp())
    x = torch.randn(3, 4)
    torch.testing.assert_close(_outputs(_export(registered, None), x)[0], (x + 1).exp() - 3)


def _lowered_clip(b: Builder, x: Value, scale: float = 2.0) -> Value:
    return b.pw("mul", b.pw("max", b.pw("min", x, 1.0), -1.0), scale)


def test_a_custom_op_is_computed_by_its_lowering() -> None:
    brought = _brought(lowerings={clip_scale: _lowered_clip})
    exported, x = _export(lambda x: clip_scale(x, scale=1.5), brought), torch.randn(3, 4) * 2
    torch.testing.assert_close(_outputs(exported, x)[0], _clip(x + 1, 1.5) - 3, rtol=0, atol=0)
    (maximum,) = [op for op in exported.entries["forward"].graph.ops if op.kind == "max"]
    assert maximum.origin.op == "hardtack_tests.clip_scale"
    assert maximum.origin.file.endswith("test_extensions.py")
    assert brought.used == {"lowering hardtack_tests.clip_scale.default": f"{__name__}._lowered_clip"}


def test_a_lowering_gets_an_op_that_is_taken_apart_otherwise() -> None:
    def gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
        return b.pw("mul", x, b.op("sigmoid", b.pw("mul", x, 1.702)))

    x = torch.randn(3, 4)
    exported = _export(nn.functional.gelu, _brought(lowerings={torch.ops.aten.gelu.default: gelu}))
    torch.testing.assert_close(_outputs(exported, x)[0], (x + 1) * ((x + 1) * 1.702).sigmoid() - 3)


def test_what_is_not_in_the_model_is_not_in_the_manifest() -> None:
    brought = _brought(decompositions={clip_scale: _clip}, lowerings={halves: _lowered_clip})
    _export(torch.sin, brought)
    assert brought.used == {}


def _negated(graph: Graph, store: ConstantStore) -> Graph:
    """sin(x) as -sin(-x), by a constant: each value of the graph is another one."""
    edit = Edit(graph)
    key = store.add(DType.F32, np.array(-1.0, np.float32))
    edit.types["minus"] = TensorType(DType.F32, ())
    for op in graph.ops:
        if op.kind != "sin":
            edit.keep(op)
            continue
        inner = edit.emit("mul", op.inputs[0], "minus", like=op)
        edit.renamed[op.outputs[0]] = edit.emit("mul", edit.emit("sin", inner, like=op), "minus", like=op)
    made = edit.done()
    return replace(made, constants=(*made.constants, Constant("minus", key)))


def _with_pass(apply: Callable[[Graph, ConstantStore], Any]) -> Extensions:
    return extensions(
        [
            Contribution(
                "Options.passes", passes=(UserPass("negate", "1.2", apply, "Options.passes", ("pass negate", "1.2")),)
            )
        ]
    )


def test_a_pass_changes_the_graph() -> None:
    brought, x = _with_pass(_negated), torch.randn(3, 4)
    exported = _export(torch.sin, brought)
    entry = exported.entries["forward"]
    assert [op.kind for op in entry.graph.ops].count("sin") == 1
    assert "minus" in {c.name for c in entry.graph.constants} or len(entry.graph.ops) > 3
    torch.testing.assert_close(_outputs(exported, x)[0], torch.sin(x + 1) - 3)
    assert brought.used == {"pass negate": "1.2"}
    assert " = sin(" in entry.texts["pass-negate"]


def _other_outputs(graph: Graph, store: ConstantStore) -> Graph:
    return replace(graph, outputs=(graph.inputs[0].name,), output_names=("other",))


def _undefined(graph: Graph, store: ConstantStore) -> Graph:
    return replace(graph, ops=graph.ops[1:])


def _no_content(graph: Graph, store: ConstantStore) -> Graph:
    made = _negated(graph, store)
    return replace(made, constants=tuple(replace(c, key="0" * 64) for c in made.constants))


def _fails(graph: Graph, store: ConstantStore) -> Graph:
    raise KeyError("nothing here")


PASS = "the pass negate 1.2 of Options.passes"


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        (_fails, f"{PASS} raised KeyError: 'nothing here', in entry forward"),
        (lambda graph, store: None, f"{PASS} gives a NoneType, not a Graph"),
        (_other_outputs, f"{PASS} changes the outputs of entry forward\n  To fix: change what lies between only"),
        (
            _no_content,
            f"{PASS} has the constant minus without a content of f32[], in entry forward\n"
            "  To fix: store.add(dtype, array) gives the key that a Constant needs",
        ),
    ],
)
def test_a_wrong_pass_is_told(apply: Callable[[Graph, ConstantStore], Any], words: str) -> None:
    with pytest.raises(PluginError) as caught:
        _export(torch.sin, _with_pass(apply))
    assert str(caught.value) == words


def test_a_pass_that_breaks_the_rules_of_graphs_is_told() -> None:
    with pytest.raises(PluginError, match=rf"^{PASS} gives a graph of entry forward that breaks the rules: sin reads "):
        _export(torch.sin, _with_pass(_undefined))


def _raises(*args: Any, **kwargs: Any) -> Any:
    raise ValueError("no such luck")


def _refuses(*args: Any, **kwargs: Any) -> Any:
    raise Refusal("sizes like these are not taken")


OF = "of hardtack_tests.clip_scale.default of the argument decompositions"
STATED = "and the op's fake kernel float32[3, 4]"


@pytest.mark.parametrize(
    ("what", "function", "words"),
    [
        ("decomposition", _raises, f"{OF} raised ValueError: no such luck"),
        ("decomposition", lambda x, scale: x.sum(0), f"{OF} gives float32[4], {STATED}"),
        ("decomposition", lambda x, scale: x.double(), f"{OF} gives float64[3, 4], {STATED}"),
        ("decomposition", lambda x, scale: (x, x), f"{OF} gives 2 results, {STATED}"),
        ("decomposition", lambda x, scale: 3, f"{OF} gives a int, {STATED}"),
        ("lowering", _raises, f"{OF} raised ValueError: no such luck"),
        (
            "lowering",
            lambda b, x, scale: b.reduce(x, "sum", [0], False),
            f"{OF} gives a result of f32[4], and torch states f32[3, 4]",
        ),
        ("lowering", lambda b, x, scale: (x, x), f"{OF} gives 2 results, and the op has 1"),
        ("lowering", lambda b, x, scale: 3.0, f"{OF} gives something that is no Value"),
    ],
)
def test_a_wrong_function_is_told_at_the_line_that_calls_the_op(
    what: str, function: Callable[..., Any], words: str
) -> None:
    with pytest.raises(PluginError) as caught:
        _export(lambda x: clip_scale(x), _brought(**{f"{what}s": {clip_scale: function}}))
    assert caught.value.what == f"the {what} {words}"
    assert caught.value.where is not None
    assert "clip_scale(x)" in caught.value.where.source


def test_a_lowering_may_refuse() -> None:
    with pytest.raises(UnsupportedOpError, match="sizes like these are not taken"):
        _export(lambda x: clip_scale(x), _brought(lowerings={clip_scale: _refuses}))


def test_a_lowering_of_an_op_that_writes_is_told() -> None:
    with pytest.raises(InputSpecError) as caught:
        _brought(lowerings={double_into: lambda b, x, out: None})
    assert caught.value.what == (
        "the argument decompositions has a lowering of hardtack_tests.double_into.default, which writes to its "
        "arguments"
    )
    assert caught.value.fix == "give it a decomposition or a kernel, which may write in place"


def _spread(x: Tensor) -> Tensor:
    return x.std(0) if x.shape[0] > 1 else torch.zeros_like(x[0])


@torch.library.custom_op("hardtack_tests::spread", mutates_args=())
def spread(x: Tensor) -> Tensor:
    return _spread(x)


@spread.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[1:])


@pytest.mark.parametrize("ready", [False, True], ids=["module", "program"])
def test_a_decomposition_that_asks_for_a_size_holds_where_it_was_asked(ready: bool) -> None:
    """torch traces sizes from 2 on: the branch for 1 is not in the program, and 1 is refused, not wrong."""
    brought, args, sizes = _brought(decompositions={spread: _spread}), (torch.randn(3, 4),), ({0: Dim.AUTO},)
    module: Any = Calls(spread).eval()
    if ready:
        module, sizes = torch.export.export(module, args, dynamic_shapes=sizes), None  # type: ignore[assignment]
    exported = to_graphs(module, args, dynamic_shapes=sizes, extensions=brought)
    x = torch.randn(5, 4)
    torch.testing.assert_close(_outputs(exported, x)[0], Calls(spread)(x))
    with pytest.raises(ReferenceFailure):
        _outputs(exported, torch.randn(1, 4))


def test_composite_ops_of_torch_are_computed_by_decompositions() -> None:
    def composite(x: Tensor) -> Tensor:
        return nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4)).flatten()

    norm = _brought(decompositions={"aten::batch_norm": lambda x, *rest: x * 7.0})
    x = torch.randn(3, 4)
    torch.testing.assert_close(_outputs(_export(composite, norm), x)[0], ((x + 1) * 7).flatten() - 3)
    assert list(norm.used) == ["decomposition aten.batch_norm.default"]


def test_a_lowering_of_an_op_that_torch_takes_apart_is_told() -> None:
    brought = _brought(lowerings={"aten::batch_norm": lambda b, x, *rest: x})
    with pytest.raises(PluginError) as caught:
        _export(lambda x: nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4)), brought)
    assert caught.value.what == (
        "the lowering of aten.batch_norm.default of the argument decompositions was not asked: torch takes the op "
        "apart before"
    )
    assert brought.used == {}


@torch.library.custom_op("hardtack_tests::inner", mutates_args=())
def inner(x: Tensor) -> Tensor:
    return x + 1


inner.register_fake(torch.empty_like)


@torch.library.custom_op("hardtack_tests::typed", mutates_args=())
def typed(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    return x.to(dtype)


@typed.register_fake
def _(x: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.empty_like(x, dtype=dtype)


def test_functions_that_call_ops_with_functions() -> None:
    brought = _brought(decompositions={clip_scale: lambda x, s: inner(x) * s, inner: lambda x: x + 1})
    x = torch.randn(3, 4)
    torch.testing.assert_close(_outputs(_export(lambda x: clip_scale(x), brought), x)[0], (x + 2) * 2 - 3)


@pytest.mark.parametrize("wrong", [lambda x: (x + 1).double(), lambda x: (x + 1)[:1], lambda x: (x + 1).half()])
def test_what_another_function_calls_is_checked(wrong: Callable[..., Any]) -> None:
    brought = _brought(decompositions={clip_scale: lambda x, s: (inner(x) * s).float(), inner: wrong})
    with pytest.raises(PluginError, match=r"^the decomposition of hardtack_tests.inner.default .* gives float"):
        _export(lambda x: clip_scale(x), brought)


@torch.library.custom_op("hardtack_tests::places", mutates_args=())
def places(x: Tensor) -> Tensor:
    return torch.nonzero(x)


@places.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty((torch.library.get_ctx().new_dynamic_size(), x.dim()), dtype=torch.int64)


def test_sizes_that_depend_on_values_are_as_torchs_are() -> None:
    brought = _brought(decompositions={places: torch.nonzero})
    x = torch.randn(3, 4).clamp(min=0) - 1
    exported = _export(lambda x: places(x).sum().float(), brought)
    torch.testing.assert_close(_outputs(exported, x)[0], torch.nonzero(x + 1).sum() - 3.0)


def test_defaults_are_those_of_the_schema() -> None:
    def converted(x: Tensor, dtype: torch.dtype) -> Tensor:
        assert dtype is torch.float64
        return x.to(dtype)

    x = torch.randn(3, 4)
    exported = _export(lambda x: typed(x), _brought(decompositions={typed: converted}))
    torch.testing.assert_close(_outputs(exported, x)[0], (x + 1).double() - 3)


@pytest.mark.parametrize(
    ("what", "function"),
    [
        ("decomposition", lambda x, scale: torch.cat([x, x])),
        ("lowering", lambda b, x, scale: b.op("cat", x, x, dim=0)),
    ],
)
def test_other_dynamic_sizes_are_told(what: str, function: Callable[..., Any]) -> None:
    with pytest.raises((PluginError, RangeError), match=r"gives|must be|declared"):
        to_graphs(
            Calls(lambda x: clip_scale(x)).eval(), (torch.randn(3, 4),), dynamic_shapes=({0: Dim("n", max=100)},),
            extensions=_brought(**{f"{what}s": {clip_scale: function}}),
        )  # fmt: skip


def _doubled_into(x: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    double_into(x, out)
    return out


def test_a_result_that_the_op_has_not_is_dropped() -> None:
    x = torch.randn(3, 4)
    exported = _export(_doubled_into, _brought(decompositions={double_into: lambda x, out: out.copy_(x * 2)}))
    torch.testing.assert_close(_outputs(exported, x)[0], (x + 1) * 2 - 3)


def test_a_function_that_writes_what_its_op_does_not_is_told() -> None:
    with pytest.raises(PluginError) as caught:
        _export(_doubled_into, _brought(decompositions={double_into: lambda x, out: out.copy_(x.mul_(2))}))
    assert caught.value.what == (
        "the decomposition of hardtack_tests.double_into.default of the argument decompositions writes to an argument, "
        "and the op does not"
    )


def test_a_composite_op_that_gives_its_argument_is_told() -> None:
    brought = _brought(decompositions={"aten::batch_norm": lambda x, *rest: x})
    with pytest.raises(PluginError, match="gives an argument, or a view of one"):
        _export(lambda x: nn.functional.batch_norm(x, torch.zeros(4), torch.ones(4)), brought)


def test_a_lowering_may_give_its_one_result_in_a_tuple() -> None:
    x = torch.randn(3, 4)
    lowered = _brought(lowerings={clip_scale: lambda b, x, s: (_lowered_clip(b, x, s),)})
    torch.testing.assert_close(_outputs(_export(lambda x: clip_scale(x), lowered), x)[0], _clip(x + 1) - 3)


def _types_in_place(graph: Graph, store: ConstantStore) -> Graph:
    graph.types[graph.outputs[0]] = TensorType(DType.F64, ())
    return graph


def _content_in_place(graph: Graph, store: ConstantStore) -> Graph:
    for key in store.data:
        store.data[key] = store.data[next(iter(store.data))]
        store.data[key].array[...] = 0
    return graph


@pytest.mark.parametrize(
    ("apply", "words"),
    [
        (_types_in_place, "edits in place what it is given, in entry forward"),
        (_content_in_place, "raised ValueError: assignment destination is read-only, in entry forward"),
        (lambda graph, store: replace(graph, name="other"), "changes the name of entry forward"),
        (
            lambda graph, store: replace(graph, ops=tuple(replace(op, origin=None) for op in graph.ops)),
            "has an op add without an Origin, in entry forward",
        ),
    ],
)
def test_a_pass_that_edits_what_it_must_not_is_told(apply: Callable[..., Any], words: str) -> None:
    with pytest.raises(PluginError) as caught:
        _export(lambda x: torch.sin(x) + torch.arange(4.0), _with_pass(apply))
    assert caught.value.what == f"{PASS} {words}"


def test_two_functions_of_one_op_are_told() -> None:
    with pytest.raises(InputSpecError) as caught:
        extensions(
            [
                Contribution("the plug-in a 1.0", ("plugin a", "1.0"), decompositions={clip_scale: _clip}),
                Contribution("the plug-in b 2.0", ("plugin b", "2.0"), lowerings={clip_scale: _lowered_clip}),
            ]
        )
    assert str(caught.value) == (
        "there are two functions for one op: the decomposition of hardtack_tests.clip_scale.default of the plug-in a "
        "1.0, and the lowering of hardtack_tests.clip_scale.default of the plug-in b 2.0\n"
        "  To fix: leave one of them out"
    )


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("hardtack_tests::nothing", "has a function for 'hardtack_tests::nothing', which is no op that torch knows"),
        (torch.sin, f"has a function for {torch.sin!r}, which is no op that torch knows"),
        ("aten::add", "names the op aten.add, which has the overloads "),
    ],
)
def test_a_key_that_is_no_op_is_told(key: Any, words: str) -> None:
    with pytest.raises(InputSpecError) as caught:
        _brought(decompositions={key: _clip})
    assert caught.value.what.startswith(f"the argument decompositions {words}")


def test_a_custom_op_without_a_function_is_told_what_to_do() -> None:
    with pytest.raises(UnsupportedOpError) as caught:
        _export(lambda x: clip_scale(x), None)
    assert caught.value.ops[0].reason == (
        "a custom op: its code is unknown to the compiler; give its function in torch's ops, as "
        "export(decompositions={'hardtack_tests::clip_scale': function}), or call it outside"
    )
