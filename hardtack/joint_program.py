"""torch's program of a model's loss and its gradients, checked against eager's autograd."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.nn.attention import SDPBackend, sdpa_kernel

from hardtack.exporter.capture.torch_errors import translated
from hardtack.exporter.errors import CaptureError, ExportError, InputSpecError
from hardtack.exporter.origin import WRAPPED

_TOLERANCE = 1e-3
"""How far loss and gradients of the program may be from eager's on the example, in parts of the largest number."""
Loss = Callable[..., Tensor]


class Together(nn.Module):
    """The model and its loss; it is in the modes that the model's parts are in."""

    def __init__(self, model: nn.Module, loss: Loss, num_inputs: int) -> None:
        super().__init__()
        setattr(self, WRAPPED, model)
        self.training = model.training
        self.loss, self.num_inputs = loss, num_inputs

    def call(self, *args: Any) -> tuple[Tensor]:
        made = getattr(self, WRAPPED)(*args[: self.num_inputs])
        return (self.loss(made, *args[self.num_inputs :]),)


def joint_program(together: nn.Module, args: tuple[Any, ...], dynamic_shapes: Any) -> ExportedProgram:
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


class JointGraph(nn.Module):
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
        values = zip(self.outputs, joint.graph.output_node().args[0], strict=True)
        self.gradients = [
            name for (kind, name), v in values if kind is OutputKind.GRADIENT_TO_PARAMETER and v is not None
        ]
        """The parameters that have one."""

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


def check_gradients(joint: ExportedProgram, together: nn.Module, args: tuple[Any, ...]) -> None:
    """CaptureError where the program's loss or a gradient is not eager's on the example; of a model that draws random
    numbers nothing can be said."""
    targets = [n.target for n in joint.graph.nodes if n.op == "call_function"]
    if any(torch.Tag.nondeterministic_seeded in getattr(t, "tags", ()) for t in targets):
        return
    own = copy.deepcopy(together)
    own.zero_grad()
    graph = JointGraph(joint, getattr(own, WRAPPED))
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
