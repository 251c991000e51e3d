"""The updates of torch's optimizers as ops on tensors: what torch.optim does in `step`, for one parameter at a time.

Numbers of an optimizer (betas, weight_decay, ...) are those that it has when the step is made. How many steps there
were is a tensor, as in torch, and powers of it are computed in float64, as torch computes them in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hardtack.exporter.errors import InputSpecError

Group = Mapping[str, Any]
Kept = dict[str, Tensor]
"""What an optimizer keeps of one parameter, by torch's names."""


@dataclass(frozen=True)
class _Rule:
    """kept: (group, parameter) -> what there is before the first step. apply: changes a parameter and what is kept."""

    kept: Callable[[Group, Tensor], Kept]
    apply: Callable[[Group, Tensor, Tensor, Kept, Any], None]


@dataclass(frozen=True)
class Update:
    """How the parameters change. rows: name -> its group and what is kept of it. lr: where it is an input."""

    rule: _Rule
    rows: Mapping[str, tuple[Group, Kept]]
    lr: Tensor | None = field(default=None)

    def states(self) -> dict[str, Tensor]:
        """What is kept of all parameters: `<parameter>.<torch's name>`."""
        return {f"{name}.{key}": t.clone() for name, (_, kept) in self.rows.items() for key, t in kept.items()}

    def apply(self, tensors: Mapping[str, Tensor], gradients: Mapping[str, Tensor], prefix: str, lr: Any) -> None:
        """Changes the tensors in place; those of the optimizer have the prefix before their names. Parameters without
        a gradient stay as they are."""
        for name, (group, kept) in self.rows.items():
            if name in gradients:
                own = {key: tensors[f"{prefix}{name}.{key}"] for key in kept}
                self.rule.apply(group, tensors[name], gradients[name], own, group["lr"] if lr is None else lr)


def update_of(optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> Update:
    """What an optimizer does to the parameters of a model, by name. InputSpecError for one that is not known."""
    rule = _RULES.get(type(optimizer))
    if rule is None:
        raise InputSpecError(
            f"the optimizer is a {type(optimizer).__name__}, whose step is not known",
            fix="take torch.optim.SGD, Adam or AdamW, or export without one: the gradients are outputs then",
        )
    names = {id(p): name for name, p in parameters.items()}
    rows: dict[str, tuple[Group, Kept]] = {}
    for group in optimizer.param_groups:
        _check_group(group)
        for p in group["params"]:
            if id(p) not in names:
                raise InputSpecError(
                    f"the optimizer has a parameter of shape {list(p.shape)} that is none of the model's",
                    fix="make it with the parameters of the model that is trained",
                )
            state = optimizer.state.get(p) or {}
            kept = rule.kept(group, p)
            before = {k: v for k in kept if (v := state.get(k)) is not None}
            given = {k: torch.as_tensor(v).detach().to(kept[k]).clone() for k, v in before.items()}
            rows[names[id(p)]] = group, {**kept, **given}
    rates = {id(g["lr"]): g["lr"] for g in optimizer.param_groups if isinstance(g["lr"], Tensor)}
    if rates and (len(rates) > 1 or any(not isinstance(g["lr"], Tensor) for g in optimizer.param_groups)):
        raise InputSpecError("the groups of the optimizer have different lr, of which some are tensors",
                             fix="give all groups one tensor, or numbers")  # fmt: skip
    return Update(rule, rows, next(iter(rates.values()), None))


def _check_group(group: Group) -> None:
    if group.get("differentiable"):
        raise InputSpecError("the optimizer is differentiable", fix="leave differentiable out")
    if group.get("momentum") and group.get("dampening"):
        raise InputSpecError(
            f"the optimizer has a dampening of {group['dampening']}, which torch leaves out of the first step only",
            fix="take a dampening of 0",
        )


def _sgd_kept(group: Group, p: Tensor) -> Kept:
    return {"momentum_buffer": torch.zeros_like(p)} if group["momentum"] else {}


def _sgd(group: Group, p: Tensor, grad: Tensor, kept: Kept, lr: Any) -> None:
    grad = -grad if group["maximize"] else grad
    if group["weight_decay"]:
        grad = grad + group["weight_decay"] * p
    if group["momentum"]:
        velocity = kept["momentum_buffer"]
        velocity.copy_(group["momentum"] * velocity + grad)
        grad = grad + group["momentum"] * velocity if group["nesterov"] else velocity
    p.copy_(p - lr * grad)


def _adam_kept(group: Group, p: Tensor) -> Kept:
    names = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if group["amsgrad"] else ()))
    return {"step": torch.zeros((), dtype=torch.float32), **{n: torch.zeros_like(p) for n in names}}


def _adam(group: Group, p: Tensor, grad: Tensor, kept: Kept, lr: Any) -> None:
    _adam_by(group, p, grad, kept, lr, bool(group.get("decoupled_weight_decay")))


def _adamw(group: Group, p: Tensor, grad: Tensor, kept: Kept, lr: Any) -> None:
    _adam_by(group, p, grad, kept, lr, True)


def _adam_by(group: Group, p: Tensor, grad: Tensor, kept: Kept, lr: Any, decoupled: bool) -> None:
    (first, second), decay = group["betas"], group["weight_decay"]
    grad = -grad if group["maximize"] else grad
    count, mean, square = kept["step"], kept["exp_avg"], kept["exp_avg_sq"]
    count.copy_(count + 1)
    weight: Tensor = p
    if decay and decoupled:
        weight = weight * (1 - lr * decay)
    elif decay:
        grad = grad + decay * weight
    mean.copy_(mean + (1 - first) * (grad - mean))
    square.copy_(second * square + (1 - second) * (grad * grad))
    largest = square
    if group["amsgrad"]:
        largest = kept["max_exp_avg_sq"]
        largest.copy_(torch.maximum(largest, square))
    done = count.double()
    root = (1 - torch.pow(second, done)).sqrt().to(p.dtype)
    rate = (lr / (1 - torch.pow(first, done))).to(p.dtype)
    p.copy_(weight - rate * (mean / (largest.sqrt() / root + group["eps"])))


_RULES: dict[type[torch.optim.Optimizer], _Rule] = {
    torch.optim.SGD: _Rule(_sgd_kept, _sgd),
    torch.optim.Adam: _Rule(_adam_kept, _adam),
    torch.optim.AdamW: _Rule(_adam_kept, _adamw),
}
