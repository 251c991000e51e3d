"""Training steps: a module whose forward gives a loss and the gradients of a model's parameters or, with an optimizer,
changes the parameters, which are states of the sessions that run it.

    step = training_step(model, (x,), (y,), loss=F.cross_entropy, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    export(step, step.args, path="train.pkg")

torch makes the program of forward and backward (torch.export.experimental); what is here turns its results into outputs
and writes in place, so that it is captured as every other module is.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.attention import SDPBackend, sdpa_kernel

from hardtack.exporter.capture.capture import WRAPPED
from hardtack.exporter.capture.torch_errors import translated
from hardtack.exporter.errors import CaptureError, ExportError, InputSpecError
from hardtack.optimizers import Update, update_of

_TOLERANCE = 1e-3
"""How far loss and gradients of the program may be from eager's on the example, in parts of the largest number."""
Loss = Callable[..., Tensor]


def training_step(
    model: nn.Module,
    inputs: tuple[Any, ...],
    targets: tuple[Any, ...] = (),
    *,
    loss: Loss,
    optimizer: torch.optim.Optimizer | None = None,
    dynamic_shapes: Any = None,
) -> TrainingStep:
    """A module that trains `model` by one batch, in the mode that its parts are in, and is exported as any other.

    inputs, targets: examples: of forward's parameters, and of what loss takes behind forward's result. loss gives a
    tensor of one number. The step takes inputs and targets, one behind the other; dynamic_shapes is as for
    torch.export.export, for all of them.
    Without an optimizer it gives (loss, {parameter: gradient}), of the parameters that require gradients. With one,
    torch.optim.SGD, Adam or AdamW of parameters of the model, it gives the loss, and the parameters and what the
    optimizer keeps of each are states. Where the optimizer's lr is a tensor, the step takes it as its last input, lr.
    The model and the optimizer stay as they are; states begin with what they have.

    Raises ExportError and its subclasses: InputSpecError for arguments that do not fit, CaptureError for what torch
    cannot trace, or where the program's gradients are not eager's.
    """
    _check(model, optimizer)
    update = None if optimizer is None else update_of(optimizer, dict(model.named_parameters()))
    args, names = (*inputs, *targets), _names(model, loss, len(inputs), len(targets))
    together = _named(_Together, names)(model, loss, len(inputs))
    joint = _joint(together, args, dynamic_shapes)
    _check_gradients(joint, together, args)
    names += ["lr"] if update is not None and update.lr is not None else []
    made: TrainingStep = _named(TrainingStep, names)(joint, model, update, args, dynamic_shapes)
    return made


def _check(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    if not isinstance(model, nn.Module):
        raise InputSpecError(f"the model is a {type(model).__name__}", fix="pass an nn.Module, whose parameters train")
    if not any(p.requires_grad for p in model.parameters()):
        raise InputSpecError(
            "no parameter of the model requires gradients", fix="call requires_grad_() on what is to be trained"
        )
    if hasattr(model, _OPTIMIZER) and optimizer is not None:
        raise InputSpecError(
            f"the model has an attribute {_OPTIMIZER}, the name of the states of optimizers", fix="give it another name"
        )


_OPTIMIZER = "optimizer"


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


class _Together(nn.Module):
    """The model and its loss; it is in the modes that the model's parts are in."""

    def __init__(self, model: nn.Module, loss: Loss, num_inputs: int) -> None:
        super().__init__()
        setattr(self, WRAPPED, model)
        self.training = model.training
        self.loss, self.num_inputs = loss, num_inputs

    def call(self, *args: Any) -> tuple[Tensor]:
        made = getattr(self, WRAPPED)(*args[: self.num_inputs])
        return (self.loss(made, *args[self.num_inputs :]),)


def _joint(together: nn.Module, args: tuple[Any, ...], dynamic_shapes: Any) -> ExportedProgram:
    """torch's program of loss and gradients. Its door imports Triton, so it is opened here only."""
    from torch.export import experimental

    if not hasattr(experimental, "_export_forward_backward"):
        raise ExportError(
            f"torch {torch.__version__} cannot export a backward pass", fix="use a version of torch from 2.11 to 2.13"
        )
    try:
        # of attention's kernels only the plain one has a backward pass in ops that can be taken apart
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
            # torch warns about its own way of copying pytrees
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*treespec.*")
            ep = torch.export.export(together, args, dynamic_shapes=dynamic_shapes)
            _check_loss(ep)
            _leave_unread(ep)
            joint: ExportedProgram = experimental._export_forward_backward(ep)
            _refuse_writes(joint)
            return joint
    except ExportError:
        raise
    except Exception as error:  # torch raises many types; each becomes one of ours, with its cause kept
        raise _of_gradients(str(error), together, args) or translated(error) from error


def _of_gradients(text: str, together: nn.Module, args: tuple[Any, ...]) -> InputSpecError | None:
    """What torch says of parameters that get no gradient."""
    if "marked as the loss, but it does not require gradients" in text:
        return InputSpecError(
            "the loss does not depend on a parameter that requires gradients",
            fix="leave no_grad and detach out, and call requires_grad_() on what is to be trained",
        )
    if "did not receive a gradient" not in text:
        return None
    own = copy.deepcopy(together)
    named = {name: p for name, p in own.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        found = torch.autograd.grad(own(*args)[0], [*named.values()], allow_unused=True)
    unread = [_plain(name) for name, grad in zip(named, found, strict=True) if grad is None]
    return InputSpecError(
        f"the loss does not depend on {', '.join(unread) or 'a parameter'}",
        fix="call requires_grad_(False) on parameters that are not trained",
    )


def _check_loss(ep: ExportedProgram) -> None:
    (value,) = (n.meta.get("val") for n in ep.graph.output_node().args[0][-1:])
    is_number = isinstance(value, Tensor) and value.numel() == 1 and value.dim() == 0
    if not is_number or not value.is_floating_point():
        shape = f"a tensor of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise InputSpecError(f"the loss gives {shape}", fix="have it give one number, as loss.mean() does")


def _leave_unread(ep: ExportedProgram) -> None:
    """Of parameters that nothing reads, and of further names of one, torch asks for no gradient, which eager gives none
    of either."""
    nodes = {n.name: n for n in ep.graph.nodes if n.op == "placeholder"}
    for spec in ep.graph_signature.input_specs:
        node = nodes[spec.arg.name]
        if spec.kind is InputKind.PARAMETER and not node.users:
            node.meta["val"] = node.meta["val"].detach()


def _refuse_writes(ep: ExportedProgram) -> None:
    for spec in ep.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            raise InputSpecError(
                f"the model writes to its input {spec.target}, of which a training step takes no gradient",
                fix="have forward work on a clone of it",
            )


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


class TrainingStep(_Held):
    """What `training_step` gives. args, dynamic_shapes: those to export it with."""

    args: tuple[Any, ...]
    dynamic_shapes: Any

    def __init__(
        self,
        joint: ExportedProgram,
        model: nn.Module,
        update: Update | None,
        args: tuple[Any, ...],
        dynamic_shapes: Any,
    ) -> None:
        super().__init__()
        for name, p in model.named_parameters(remove_duplicate=False):
            self.hold(name, p)
        for name, b in model.named_buffers(remove_duplicate=False):
            self.hold(name, b)
        self._step = _Graph(joint, model)
        self._update = update
        self.args, self.dynamic_shapes = args, dynamic_shapes
        if update is None:
            return
        for name, t in update.states().items():
            self.hold(f"{_OPTIMIZER}.{name}", t)
        if update.lr is not None:
            self.args = (*args, update.lr.detach().clone())
            self.dynamic_shapes = _with_lr(dynamic_shapes)

    def call(self, *args: Any) -> Any:
        """The loss, and what becomes of the model. args: as `args`."""
        update = self._update
        lr = args[-1] if update is not None and update.lr is not None else None
        tensors = {
            **dict(self.named_parameters(remove_duplicate=False)),
            **dict(self.named_buffers(remove_duplicate=False)),
        }
        loss, gradients, buffers = self._step(tensors, args if lr is None else args[:-1])
        with torch.no_grad():
            for name, new in buffers.items():
                tensors[name].copy_(new)
            if update is None:
                return loss, gradients
            update.apply(tensors, gradients, f"{_OPTIMIZER}.", lr)
        return loss


def _with_lr(dynamic_shapes: Any) -> Any:
    if isinstance(dynamic_shapes, Mapping):
        return {**dynamic_shapes, "lr": None}
    return None if dynamic_shapes is None else (*dynamic_shapes, None)


class _Graph(nn.Module):
    """A joint program: tensors by name, and the step's inputs, to the loss, gradients and buffers by name."""

    def __init__(self, joint: ExportedProgram, model: nn.Module) -> None:
        super().__init__()
        self.training = False
        first = {id(p): name for name, p in model.named_parameters()}  # of one with several names
        names = {name: first[id(p)] for name, p in model.named_parameters(remove_duplicate=False)}
        self.graph = joint.graph_module
        self.inputs: list[str | None] = []  # None: the next input of the step
        for spec in joint.graph_signature.input_specs:
            if spec.kind is InputKind.USER_INPUT:
                self.inputs.append(None)
                continue
            assert spec.target is not None
            if spec.kind is InputKind.CONSTANT_TENSOR:
                name = f"constant_{len(self.inputs)}"
                self.register_buffer(name, joint.constants[spec.target].detach(), persistent=False)
                self.inputs.append(f"_step.{name}")
            else:
                self.inputs.append(_plain(spec.target))
        targets = [(s.kind, _plain(s.target or "")) for s in joint.graph_signature.output_specs]
        self.outputs = [(kind, names.get(name, name)) for kind, name in targets]

    def forward(self, tensors: Mapping[str, Tensor], args: Any) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        given = iter(pytree.tree_leaves(args))
        found = self.graph(*(next(given) if name is None else tensors[name] for name in self.inputs))
        parts: dict[OutputKind, dict[str, Tensor]] = {kind: {} for kind in OutputKind}
        for (kind, name), value in zip(self.outputs, found, strict=True):
            parts[kind][name] = value
        (loss,) = parts[OutputKind.LOSS_OUTPUT].values()
        gradients = {n: g for n, g in parts[OutputKind.GRADIENT_TO_PARAMETER].items() if g is not None}
        return loss, gradients, parts[OutputKind.BUFFER_MUTATION]


def _plain(target: str) -> str:
    return target.removeprefix(f"{WRAPPED}.")


def _check_gradients(joint: ExportedProgram, together: nn.Module, args: tuple[Any, ...]) -> None:
    """CaptureError where the program's loss or a gradient is not eager's on the example; of a model that draws random
    numbers nothing can be said."""
    targets = [n.target for n in joint.graph.nodes if n.op == "call_function"]
    if any(torch.Tag.nondeterministic_seeded in getattr(t, "tags", ()) for t in targets):
        return
    own = copy.deepcopy(together)
    own.zero_grad()
    graph = _Graph(joint, getattr(own, WRAPPED))
    tensors = {**dict(own.named_parameters(remove_duplicate=False)), **dict(own.named_buffers(remove_duplicate=False))}
    tensors = {_plain(n): t.detach().clone() for n, t in tensors.items()}
    tensors |= {f"_step.{n}": t for n, t in graph.named_buffers()}
    with torch.no_grad():
        loss, gradients, _ = graph(tensors, args)
    with torch.enable_grad():
        (want,) = own(*args)
        want.backward()
    pairs = [("the loss", loss, want.detach())]
    for name, p in own.named_parameters():
        if _plain(name) in gradients:
            grad = torch.zeros_like(p) if p.grad is None else p.grad
            pairs.append((f"the gradient of {_plain(name)}", gradients[_plain(name)], grad))
    for what, ours, eager in pairs:
        if not _near(ours, eager):
            raise CaptureError(
                f"{what} is another one in the program that torch made than in eager mode, on the example",
                fix="leave out what forward does unlike it does in eager mode, or report the model as a bug",
            )


def _near(ours: Tensor, eager: Tensor) -> bool:
    scale = 1.0 if not eager.numel() else float(eager.abs().double().nan_to_num(0.0, 0.0, 0.0).max())
    limit = _TOLERANCE * max(scale, float(torch.finfo(eager.dtype).tiny))
    if eager.dtype in (torch.float16, torch.bfloat16):
        limit *= 32
    return bool(torch.isclose(ours.double(), eager.double(), rtol=0.0, atol=limit, equal_nan=True).all())


__all__ = ["TrainingStep", "training_step"]
