"""Parts of a model from a bundle, the rest of it eager: against the model itself."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import hardtack
from hardtack.exporter import InputSpecError, MutationError, TrainingModeError
from hardtack.regions import _real, _relative


class Pair(NamedTuple):
    total: Tensor
    shifted: Tensor | None


class Layer(nn.Module):
    """With a keyword, a flag, a nested result, and an attribute that its caller reads."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.linear, self.kind = nn.Linear(width, width), kind

    def forward(self, x: Tensor, scale: Tensor, *, shift: bool = False) -> Pair:
        y = self.linear(x) * scale
        return Pair(y.relu(), y + 1 if shift else None)


class Stack(nn.Module):
    def __init__(self, width: int = 16, count: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, "even" if k % 2 == 0 else "odd") for k in range(count))
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            scale = x.abs().amax((1, 2), keepdim=True).to(layer.linear.weight.dtype)  # type: ignore[union-attr, arg-type]
            found = layer(x, scale=scale, shift=layer.kind == "even")
            x = found.total if found.shifted is None else found.shifted
        return self.head(x)  # type: ignore[no-any-return]


def inputs(batch: int, length: int) -> Tensor:
    return torch.randn(batch, length, 16, generator=torch.Generator().manual_seed(batch * length))


@pytest.fixture(scope="module")
def stack() -> Stack:
    torch.manual_seed(0)
    return Stack().eval()


@pytest.fixture(scope="module")
def region(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("region") / "layers.pkg"
    return hardtack.export_region(stack, "layers.*", (inputs(2, 5),), more_args=[(inputs(3, 7),)], path=path)


def same(found: nn.Module, stack: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        torch.testing.assert_close(found(x), stack(x))


def test_a_model_with_baked_layers_gives_what_it_gave(region: Any, stack: Stack) -> None:
    for size in ((2, 5), (3, 7), (1, 1), (6, 11)):
        same(region.module, stack, inputs(*size))
    assert [type(m).__name__ for m in region.module.layers] == ["BakedModule"] * 3
    assert isinstance(stack.layers[0], Layer)
    assert region.module.head.weight is stack.head.weight
    assert {n for n, _ in region.module.named_parameters()} == {"head.weight", "head.bias"}


def test_each_part_is_an_entry_point_and_kernels_are_shared(region: Any) -> None:
    model = hardtack.load(region.info.path)
    assert list(model.entries) == ["layers.0", "layers.1", "layers.2"]
    assert region.info.num_kernels < 3 * model.entries["layers.0"].num_kernels


def test_the_report_says_what_was_gained(region: Any) -> None:
    assert [(p.name, p.num_calls) for p in region.parts] == [(f"layers.{k}", 1) for k in range(3)]
    assert all(p.eager_seconds > 0 and p.baked_seconds > 0 and p.farthest < 1e-5 for p in region.parts)
    text = str(region)
    assert "layers.2" in text
    assert str(region.info.path) in text
    faster = region.saved_seconds > 0
    assert (region.break_even_runs is not None) == faster
    assert ("pays after" if faster else "never pays") in text


def test_a_difference_is_seen_in_what_is_not_finite() -> None:
    nan, inf = torch.nan, torch.inf
    assert _relative(torch.tensor([1.0, nan, inf]), torch.tensor([1.0, nan, inf])) == 0
    for other in ([1.0, 0.0, inf], [1.0, nan, -inf], [nan, nan, inf]):
        assert _relative(torch.tensor(other), torch.tensor([1.0, nan, inf])) == inf
    assert _relative(_real(torch.tensor([1 + 2j])), _real(torch.tensor([1 + 4j]))) == 0.5
    assert _relative(torch.tensor([3.0, 4.0]), torch.tensor([2.0, 4.0])) == 0.25


def test_copies_and_pickles_run(region: Any, stack: Stack) -> None:
    same(copy.deepcopy(region.module), stack, inputs(2, 5))
    again = pickle.loads(pickle.dumps(region.module))
    same(again, stack, inputs(4, 2))


def test_threads_have_sessions_of_their_own(region: Any, stack: Stack) -> None:
    xs = [inputs(k, k) for k in range(1, 5)]
    found: dict[int, Tensor] = {}

    def work(k: int) -> None:
        with torch.no_grad():
            for _ in range(20):
                found[k] = region.module(xs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(xs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, x in enumerate(xs):
        torch.testing.assert_close(found[k], stack(x).detach())


def test_a_gradient_through_a_part_is_an_error(region: Any) -> None:
    with pytest.raises(hardtack.RunError) as caught:
        region.module(inputs(2, 5).requires_grad_())
    message = f"layers.0 runs from {region.info.path}, which has no gradients: call the model in torch.no_grad()"
    assert str(caught.value) == message


def test_a_container_stands_for_what_lies_in_it(stack: Stack, tmp_path: Path) -> None:
    found = hardtack.export_region(stack, ("layers", "head"), (inputs(2, 5),), path=tmp_path / "m.pkg")
    assert [p.name for p in found.parts] == ["layers.0", "layers.1", "layers.2", "head"]
    same(found.module, stack, inputs(2, 5))


def test_a_module_of_two_names_and_two_calls(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            self.second = self.first

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x)[:1])  # type: ignore[no-any-return]

    model = Twice().eval()
    found = hardtack.export_region(model, "first", (torch.randn(3, 4),), path=tmp_path / "m.pkg")
    assert [(p.name, p.num_calls) for p in found.parts] == [("first", 2)]
    assert found.module.second is found.module.first
    same(found.module, model, torch.randn(5, 4))


def test_a_model_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, vocab_size=50
    )
    model = transformers.BertModel(config).eval()
    tokens = torch.randint(0, 50, (3, 9))
    found = hardtack.export_region(
        model,
        "encoder",
        (),
        {"input_ids": tokens[:2, :5]},
        more_kwargs=[{"input_ids": tokens}],
        path=tmp_path / "m.pkg",
    )
    with torch.no_grad():
        torch.testing.assert_close(found.module(tokens[:1]).last_hidden_state, model(tokens[:1]).last_hidden_state)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        return x + self.count


class Calling(nn.Module):
    """Calls a part in another way for each length."""

    def __init__(self, part: nn.Module, arguments: Any) -> None:
        super().__init__()
        self.part, self.arguments = part, arguments

    def forward(self, x: Tensor) -> Tensor:
        args, kwargs = self.arguments(x)
        return self.part(*args, **kwargs)  # type: ignore[no-any-return]


class Any3(nn.Module):
    def forward(self, x: Tensor, flag: Any = None, more: Any = ()) -> Tensor:
        return x + len(more)


CALLS: dict[str, tuple[Any, str]] = {
    "another flag": (lambda x: ((x, len(x) > 2), {}), "flag of part is False in one call and True in another"),
    "another float": (lambda x: ((x, len(x) / 2), {}), "flag of part is 1.0 in one call and 1.5 in another"),
    "a keyword": (
        lambda x: ((x,), {"flag": 1} if len(x) > 2 else {}),
        "part is called with different arguments: 1 and no keywords; 1 and flag",
    ),
    "another length": (
        lambda x: ((x, None, [x] * len(x)), {}),
        "more of part is a list of 2 in one call and a list of 3 in another",
    ),
    "another rank": (
        lambda x: ((x if len(x) > 2 else x[0],), {}),
        "x of part is float32[16] in one call and float32[3, 16] in another",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_one_entry_point_cannot_serve(name: str, tmp_path: Path) -> None:
    arguments, message = CALLS[name]
    model = Calling(Any3(), arguments).eval()
    with pytest.raises(InputSpecError) as caught:
        hardtack.export_region(
            model, "part", (torch.ones(2, 16),), more_args=[(torch.ones(3, 16),)], path=tmp_path / "m.pkg"
        )
    assert caught.value.what == message
    assert not (tmp_path / "m.pkg").exists()


def test_a_whole_number_that_differs_is_dynamic(tmp_path: Path) -> None:
    class Shift(nn.Module):
        def forward(self, x: Tensor, by: int) -> Tensor:
            return x + by

    model = Calling(Shift(), lambda x: ((x, len(x)), {})).eval()
    found = hardtack.export_region(
        model, "part", (torch.ones(2),), more_args=[(torch.ones(3),)], path=tmp_path / "m.pkg"
    )
    same(found.module, model, torch.ones(9))


def test_what_is_refused(stack: Stack, tmp_path: Path) -> None:
    path = tmp_path / "m.pkg"
    with pytest.raises(InputSpecError) as caught:
        hardtack.export_region(stack, ("layers.*", "tail"), (inputs(2, 5),), path=path)
    assert caught.value.what == "the region has 'tail', but the example calls no module of that name"
    with pytest.raises(InputSpecError) as caught:
        hardtack.export_region(stack, "head", (inputs(2, 5),), more_args=[(), ()], more_kwargs=[{}], path=path)
    assert caught.value.what == "more_args has 2 examples and more_kwargs 1"
    with pytest.raises(MutationError) as mutation:
        hardtack.export_region(nn.Sequential(Counting()).eval(), "0", (torch.ones(2),), path=path)
    assert mutation.value.what == "the region 0 keeps states between calls: count"
    assert not path.exists()
    with pytest.raises(TrainingModeError):
        hardtack.export_region(Stack(), "head", (inputs(2, 5),), path=path)
