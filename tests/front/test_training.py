"""Training steps beside eager: gradients by autograd, updates by torch.optim."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import hardtack
from hardtack import training_step
from hardtack.exporter import InputSpecError, to_graphs
from hardtack.exporter.reference import outputs, run
from tests.front.training_models import cases

Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def _near(ours: Any, eager: Tensor, what: str = "") -> None:
    torch.testing.assert_close(
        torch.as_tensor(ours), eager.detach(), rtol=2e-4, atol=2e-5, msg=lambda said: f"{what}: {said}"
    )


@pytest.mark.parametrize("name", cases())
def test_gradients_are_those_of_autograd(name: str) -> None:
    """Of the Graph; buffers that training changes, too."""
    model, inputs, targets, loss = cases()[name]
    step = training_step(model, inputs, targets, loss=loss)
    exported = to_graphs(step, step.args)
    graph = exported.entries["forward"].graph
    values = run(graph, exported.store, {i.name: t for i, t in zip(graph.inputs, step.args, strict=True)})
    own = copy.deepcopy(model)
    want = loss(own(*inputs), *targets)
    want.backward()
    found = dict(zip(graph.output_names, outputs(graph, values), strict=True))
    gradients = {n: p.grad for n, p in own.named_parameters() if p.grad is not None}
    assert len(found) == 1 + len(gradients)
    _near(found["output_0"], want, "the loss")
    for key, grad in gradients.items():
        _near(found[f"output_1.{key}"], grad, key)
    finals = {s.name: s.final for s in graph.states}
    assert set(finals) == {n for n, _ in own.named_buffers()}
    for key, buffer in own.named_buffers():
        _near(values[finals[key] or key], buffer, key)


def _export(path: Path, modules: Any, args: Any, **more: Any) -> hardtack.Model:
    hardtack.export(modules, args, path=path, targets=["cpu:x86-64-v3"], progress=False, **more)
    return hardtack.load(path, device="cpu")


def test_compiled_gradients(tmp_path: Path) -> None:
    chosen = {name: cases()[name] for name in ("convolutions", "pools", "tokens")}
    steps = {name: training_step(m, i, t, loss=loss) for name, (m, i, t, loss) in chosen.items()}
    model = _export(tmp_path / "m.pkg", steps, {name: step.args for name, step in steps.items()})
    for name, (module, inputs, targets, loss) in chosen.items():
        found, gradients = model.session(name)(*steps[name].args)
        want = loss(module(*inputs), *targets)
        want.backward()
        _near(found, want, name)
        for key, p in module.named_parameters():
            _near(gradients[key], p.grad, f"{name} {key}")


OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, maximize=True),
    "adamw": lambda p: torch.optim.AdamW([{"params": p[:2], "lr": 0.02}, {"params": p[2:]}], lr=0.01),
}


def _mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))


def test_optimizers_are_those_of_torch(tmp_path: Path) -> None:
    """By the module as it is captured, which is exported and compared with at export; ten steps."""
    for name, make in OPTIMIZERS.items():
        model = _mlp()
        step = training_step(
            model, (torch.randn(4, 3),), (torch.randn(4, 2),), loss=F.mse_loss,
            optimizer=make([*model.parameters()]),
        )  # fmt: skip
        mine, own = copy.deepcopy(step), copy.deepcopy(model)
        optimizer = make([*own.parameters()])
        for turn in range(10):
            x, y = torch.randn(4, 3), torch.randn(4, 2)
            want = F.mse_loss(own(x), y)
            optimizer.zero_grad()
            want.backward()
            optimizer.step()
            _near(mine(x, y), want, f"{name}, turn {turn}")
        for key, p in own.named_parameters():
            _near(mine.get_parameter(key), p, f"{name} {key}")
            for kept, t in optimizer.state.get(p, {}).items():
                if isinstance(t, Tensor):
                    _near(mine.get_buffer(f"optimizer.{key}.{kept}"), t, f"{name} {key} {kept}")
        for a, b in zip(model.parameters(), _mlp().parameters(), strict=True):
            assert torch.equal(a, b)  # the model that was given stays as it is


def test_a_session_trains_and_another_entry_point_sees_it(tmp_path: Path) -> None:
    """Adam with a learning rate that is an input, batches of any size; the states go back into a module."""
    model = _mlp()
    rate = torch.tensor(0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    batch = Dim("batch", max=64)
    given = (torch.randn(8, 3),), (torch.randint(0, 2, (8,)),)
    step = training_step(
        model, *given, loss=F.cross_entropy, optimizer=optimizer, dynamic_shapes=({0: batch}, {0: batch})
    )
    eager, first = copy.deepcopy(model), copy.deepcopy(model)
    modules = {"train": step, "predict": model.eval()}
    args = {"train": step.args, "predict": given[0]}
    shapes = {"train": step.dynamic_shapes, "predict": ({0: batch},)}
    bundle = _export(tmp_path / "m.pkg", modules, args, dynamic_shapes=shapes)
    session = bundle.session("train")
    assert [t.name for t in bundle.entries["train"].inputs] == ["input", "target", "lr"]
    theirs = torch.optim.Adam(eager.parameters(), lr=0.05)
    for turn in range(12):
        n, lr = (8, 3, 1, 21)[turn % 4], 0.05 / (1 + turn)
        x, y = torch.randn(n, 3), torch.randint(0, 2, (n,))
        theirs.param_groups[0]["lr"] = lr
        theirs.zero_grad()
        want = F.cross_entropy(eager(x), y)
        want.backward()
        theirs.step()
        _near(session(x, y, lr), want, f"turn {turn}")
    x = torch.randn(5, 3)
    _near(session.run("predict", x), eager(x))
    learned = {name: torch.from_numpy(session.read_state(name)) for name, _ in first.named_parameters()}
    first.load_state_dict(learned)
    _near(session.run("predict", x), first(x))
    session.reset()
    _near(session.run("predict", x), _mlp()(x))


@pytest.mark.parametrize("rate", [0.01, torch.tensor(0.01)], ids=["number", "input"])
def test_gradients_of_several_runs_are_added_up(tmp_path: Path, rate: Any) -> None:
    """Twice: what is added up begins anew behind an update."""
    model = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).train()
    own, batch = copy.deepcopy(model), Dim("batch", max=16)
    eager = torch.optim.AdamW(own.parameters(), lr=0.01)
    step = training_step(
        model,
        (torch.randn(4, 5),),
        (torch.randn(4, 3),),
        loss=F.mse_loss,
        optimizer=torch.optim.AdamW(model.parameters(), lr=rate),
        accumulate=True,
        dynamic_shapes=({0: batch}, {0: batch}),
    )
    assert step.update is not None
    args = {"add": step.args, "update": step.update.args}
    sizes = {"add": step.dynamic_shapes, "update": None}
    found = _export(tmp_path / "m.pkg", {"add": step, "update": step.update}, args, dynamic_shapes=sizes)
    session = found.session("add")
    for k in range(2):
        for rows in (3, 8, 1):
            x, y = torch.randn(rows, 5), torch.randn(rows, 3)
            want = F.mse_loss(own(x), y)
            want.backward()
            _near(session(x, y), want, f"the loss of round {k}")
        for name, p in own.named_parameters():
            assert p.grad is not None
            _near(session.read_state(f"gradient.{name}"), p.grad, name)
        norm = nn.utils.clip_grad_norm_(own.parameters(), 1e9)
        _near(session.run("update", *([] if isinstance(rate, float) else [0.01])), norm, "the norm")
        eager.step()
        eager.zero_grad()
        for name, p in own.named_parameters():
            _near(session.read_state(name), p, name)
            assert not session.read_state(f"gradient.{name}").any()


def test_sums_of_gradients_without_an_optimizer(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    step = training_step(model, (torch.ones(4, 3),), loss=lambda made: made.sum(), accumulate=True)
    assert step.update is None
    session = _export(tmp_path / "m.pkg", step, step.args).session()
    for _ in range(3):
        session(torch.ones(4, 3))
    assert (session.read_state("gradient.weight") == 12).all()
    session.write_state("gradient.weight", torch.zeros(2, 3).numpy())
    session(torch.ones(4, 3))
    assert (session.read_state("gradient.weight") == 4).all()
    assert (session.read_state("gradient.bias") == 16).all()


def test_batch_norm_and_dropout_are_as_the_model_is(tmp_path: Path) -> None:
    """Of a model in eval mode gradients are those of eval mode; dropout draws numbers of the session's."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 1)).eval()
    x, y = torch.randn(7, 4), torch.randn(7, 1)
    step = training_step(model, (x,), (y,), loss=F.mse_loss)
    want = F.mse_loss(model(x), y)
    want.backward()
    loss, gradients = step(x, y)
    _near(loss, want)
    _near(gradients["0.weight"], model[0].weight.grad)
    drops = training_step(model.train(), (x,), (y,), loss=F.mse_loss)
    assert model[1].weight.grad is not None
    session = _export(tmp_path / "m.pkg", drops, drops.args).session()
    assert session(x, y)[0] != session(x, y)[0]


def _refused(model: Any, loss: Any = F.mse_loss, **options: Any) -> str:
    with pytest.raises(InputSpecError) as caught:
        training_step(model, (torch.randn(4, 3),), (torch.randn(4, 2),), loss=loss, **options)
    return caught.value.what


def test_what_cannot_be_trained_is_told() -> None:
    model = _mlp()
    assert _refused(model, lambda out, y: (out - y).abs()) == "the loss gives a tensor of shape [4, 2]"
    assert _refused(model, lambda out, y: (out.detach() - y).mean()) == (
        "the loss does not depend on a parameter that requires gradients"
    )
    assert _refused(model.forward) == "the model is a method"
    assert _refused(_mlp().requires_grad_(False)) == "no parameter of the model requires gradients"
    other = torch.optim.SGD([nn.Parameter(torch.ones(2, 5))], lr=0.1)
    assert _refused(model, optimizer=other) == (
        "the optimizer has a parameter of shape [2, 5] that is none of the model's"
    )
    assert _refused(model, optimizer=torch.optim.RMSprop(model.parameters())) == (
        "the optimizer is a RMSprop, whose step is not known"
    )
    damped = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
    assert _refused(model, optimizer=damped) == (
        "the optimizer has a dampening of 0.5, which torch leaves out of the first step only"
    )

    model.gradient = nn.Identity()
    assert _refused(model, accumulate=True) == (
        "the model has an attribute gradient, the name of the states of gradients"
    )

    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            return x.mul_(2)[:, :2] * self.w[:2]

    assert _refused(Writes()) == "the model writes to its input x, of which a training step takes no gradient"

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) + self.b(x).detach()

    assert _refused(Half()) == "the loss does not depend on b.weight, b.bias"
