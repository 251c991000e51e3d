"""Training steps: a module whose forward gives a loss and the gradients of a model's parameters or, with an optimizer,
changes the parameters, which are states of the sessions that run it.

    step = training_step(model, (x,), (y,), loss=F.cross_entropy, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    export(step, step.args, path="train.pkg")

With accumulate=True gradients are states, too, to which several runs add before the parameters change.

torch makes the program of forward and backward (torch.export.experimental); what is here turns its results into outputs
and writes in place, so that it is captured as every other module is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.exporter.errors import InputSpecError
from hardtack.joint_program import JointGraph, Loss, Together, check_gradients, joint_program
from hardtack.optimizers import Update, update_of


def training_step(
    model: nn.Module,
    inputs: tuple[Any, ...],
    targets: tuple[Any, ...] = (),
    *,
    loss: Loss,
    optimizer: torch.optim.Optimizer | None = None,
    accumulate: bool = False,
    dynamic_shapes: Any = None,
) -> TrainingStep:
    """A module that trains `model` by one batch, in the mode that its parts are in, and is exported as any other.

    inputs, targets: examples: of forward's parameters, and of what loss takes behind forward's result. loss gives a
    tensor of one number. The step takes inputs and targets, one behind the other; dynamic_shapes is as for
    torch.export.export, for all of them.
    Without an optimizer it gives (loss, {parameter: gradient}), of the parameters that require gradients. With one,
    torch.optim.SGD, Adam or AdamW of parameters of the model, it gives the loss, and the parameters and what the
    optimizer keeps of each are states. Where the optimizer's lr is a tensor, the step takes it as its last input, lr.
    accumulate: the step adds the gradients to states, gradient.<parameter>, which begin as zeros, and gives the loss.
    With an optimizer step.update is a module, to be exported beside the step, that changes the parameters by what these
    states have, sets them to zero, and gives their norm; lr is its input then.
    The model and the optimizer stay as they are; states begin with what they have.

    Raises ExportError and its subclasses: InputSpecError for arguments that do not fit, CaptureError for what torch
    cannot trace, or where the program's gradients are not eager's.
    """
    _check(model, optimizer, accumulate)
    update = None if optimizer is None else update_of(optimizer, dict(model.named_parameters()))
    args, names = (*inputs, *targets), _names(model, loss, len(inputs), len(targets))
    together = _named(Together, names)(model, loss, len(inputs))
    joint = joint_program(together, args, dynamic_shapes)
    check_gradients(joint, together, args)
    step = JointGraph(joint, model)
    if accumulate:
        return _accumulating(step, names, model, update, args, dynamic_shapes)
    names += ["lr"] if update is not None and update.lr is not None else []
    made: TrainingStep = _named(TrainingStep, names)(step, model, update, args, dynamic_shapes)
    return made


def _accumulating(
    step: JointGraph, names: list[str], model: nn.Module, update: Update | None, args: tuple[Any, ...], shapes: Any
) -> TrainingStep:
    """The step that adds gradients up, and what changes the parameters by them."""
    parameters = dict(model.named_parameters())
    sums = {f"{_GRADIENT}.{n}": torch.zeros_like(parameters[n]).detach() for n in step.gradients}
    made: TrainingStep = _named(TrainingStep, names)(step, model, None, args, shapes, sums)
    if update is not None:
        made.__dict__["update"] = _named(UpdateStep, ["lr"] if update.lr is not None else [])(model, update, sums)
    return made


def _check(model: nn.Module, optimizer: torch.optim.Optimizer | None, accumulate: bool) -> None:
    if not isinstance(model, nn.Module):
        raise InputSpecError(f"the model is a {type(model).__name__}", fix="pass an nn.Module, whose parameters train")
    if not any(p.requires_grad for p in model.parameters()):
        raise InputSpecError(
            "no parameter of the model requires gradients", fix="call requires_grad_() on what is to be trained"
        )
    for name, what, used in ((_OPTIMIZER, "optimizers", optimizer is not None), (_GRADIENT, "gradients", accumulate)):
        if used and hasattr(model, name):
            raise InputSpecError(
                f"the model has an attribute {name}, the name of the states of {what}", fix="give it another name"
            )


_OPTIMIZER, _GRADIENT = "optimizer", "gradient"


def _names(model: nn.Module, loss: Loss, num_inputs: int, num_targets: int) -> list[str]:
    """The names of the step's inputs: those of forward's parameters, and of the loss's behind its first."""
    first = _parameters(model.forward)[:num_inputs]
    second = _parameters(loss)[1 : 1 + num_targets]
    found = [*first, *(f"input_{k}" for k in range(len(first), num_inputs))]
    found += [*second, *(f"target_{k}" for k in range(len(second), num_targets))]
    return [n if found.index(n) == k else f"{n}_{k}" for k, n in enumerate(found)]


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Of those that can be given by position."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _named(base: type[Any], names: Sequence[str]) -> type[Any]:
    """The class with a forward that has parameters of these names, which torch calls the inputs by."""

    def forward(self: Any, *args: Any) -> Any:
        return self.call(*args)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in ("self", *names)])  # type: ignore[attr-defined]
    return type(base.__name__, (base,), {"forward": forward})


class _Held(nn.Module):
    """Tensors by their names in the model, without what the model does."""

    def __init__(self) -> None:
        super().__init__()
        self.training = False

    def hold(self, name: str, tensor: Tensor) -> None:
        """Under the path that the name is."""
        *parts, last = name.split(".")
        place: nn.Module = self
        for part in parts:
            if part not in place._modules:
                place.add_module(part, _Held())
            place = getattr(place, part)
        if isinstance(tensor, nn.Parameter):
            place.register_parameter(last, tensor)
        else:
            place.register_buffer(last, tensor)

    def hold_all(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            self.hold(name, tensor)

    def tensors(self) -> dict[str, Tensor]:
        """What is held, by name."""
        return {
            **dict(self.named_parameters(remove_duplicate=False)),
            **dict(self.named_buffers(remove_duplicate=False)),
        }


class TrainingStep(_Held):
    """What `training_step` gives. args, dynamic_shapes: those to export it with. update: what changes the parameters,
    of a step that adds gradients up."""

    args: tuple[Any, ...]
    dynamic_shapes: Any
    update: UpdateStep | None

    def __init__(
        self,
        step: JointGraph,
        model: nn.Module,
        update: Update | None,
        args: tuple[Any, ...],
        dynamic_shapes: Any,
        sums: Mapping[str, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.hold_all(dict(model.named_parameters(remove_duplicate=False)))
        self.hold_all(dict(model.named_buffers(remove_duplicate=False)))
        self.hold_all(sums or {})
        self._step, self._update, self._sums = step, update, tuple(sums or ())
        self.args, self.dynamic_shapes = args, dynamic_shapes
        self.__dict__["update"] = None  # no part of this module
        if update is None:
            return
        self.hold_all(_kept(update))
        if update.lr is not None:
            self.args = (*args, update.lr.detach().clone())
            self.dynamic_shapes = _with_lr(dynamic_shapes)

    def call(self, *args: Any) -> Any:
        """The loss, and what becomes of the model. args: as `args`."""
        update = self._update
        lr = args[-1] if update is not None and update.lr is not None else None
        tensors = self.tensors()
        loss, gradients, buffers = self._step(tensors, args if lr is None else args[:-1])
        with torch.no_grad():
            for name, new in buffers.items():
                tensors[name].copy_(new)
            for name in self._sums:
                tensors[name].copy_(tensors[name] + gradients[name.removeprefix(f"{_GRADIENT}.")])
            if update is not None:
                update.apply(tensors, gradients, f"{_OPTIMIZER}.", lr)
        return loss if update is not None or self._sums else (loss, gradients)


class UpdateStep(_Held):
    """Changes parameters by gradients that were added up. args: those to export it with, an lr or none."""

    def __init__(self, model: nn.Module, update: Update, sums: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.hold_all(dict(model.named_parameters()))
        self.hold_all(sums)
        self.hold_all(_kept(update))
        self._update, self._sums = update, tuple(sums)
        self.args: tuple[Tensor, ...] = () if update.lr is None else (update.lr.detach().clone(),)

    def call(self, *lr: Tensor) -> Tensor:
        """The 2-norm of all gradients together, in float32, as torch.nn.utils.clip_grad_norm_ has it."""
        tensors = self.tensors()
        with torch.no_grad():
            sums = {name.removeprefix(f"{_GRADIENT}."): tensors[name].clone() for name in self._sums}
            norm = torch.stack([(g.float() ** 2).sum() for g in sums.values()]).sum().sqrt()
            self._update.apply(tensors, sums, f"{_OPTIMIZER}.", lr[0] if lr else None)
            for name in self._sums:
                tensors[name].zero_()
        return norm


def _kept(update: Update) -> dict[str, Tensor]:
    """What the optimizer keeps, by the names of states."""
    return {f"{_OPTIMIZER}.{name}": t for name, t in update.states().items()}


def _with_lr(dynamic_shapes: Any) -> Any:
    if isinstance(dynamic_shapes, Mapping):
        return {**dynamic_shapes, "lr": None}
    return None if dynamic_shapes is None else (*dynamic_shapes, None)


__all__ = ["TrainingStep", "UpdateStep", "training_step"]
