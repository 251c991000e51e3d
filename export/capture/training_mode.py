"""No part of a module may be in training mode."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn
from torch.fx import GraphModule

from hardtack.exporter.errors import TrainingModeError

_UNLIKE_IN_TRAINING = (
    nn.modules.dropout._DropoutNd,
    nn.modules.batchnorm._BatchNorm,
    nn.RReLU,
)


def check_eval(module: nn.Module) -> None:
    """TrainingModeError if any part of the module is in training mode."""
    training = [(name or "the module", m) for m, name in _with_modes(module).items() if m.training]
    if not training:
        return
    if not module.training and not isinstance(training[0][1], _UNLIKE_IN_TRAINING):
        name, part = training[0]
        raise TrainingModeError(
            f"{name}, a {type(part).__name__}, is in training mode; the module around it is not",
            fix="call .eval() on the whole module after its last change",
        )
    unlike = [f"{name} ({type(m).__name__})" for name, m in training if isinstance(m, _UNLIKE_IN_TRAINING)]
    shown = ", ".join(unlike[:3]) + (f" and {len(unlike) - 3} more" if len(unlike) > 3 else "")
    what = (
        f"the module is in training mode; {shown} would behave as in training"
        if unlike
        else (f"the module is in training mode ({training[0][0]}, a {type(training[0][1]).__name__})")
    )
    raise TrainingModeError(what, fix="call .eval() on the module before exporting")


def _with_modes(module: nn.Module) -> dict[nn.Module, str]:
    """The module and its parts by name, without those whose mode says nothing: the code of a GraphModule is fixed, and
    calls what its graph does. torch.export's cannot be put in eval mode.
    """
    from torch.export._unlift import GuardsFn  # here: it imports dynamo, which `import hardtack` need not wait for

    found: dict[nn.Module, str] = {}

    def add(part: nn.Module, name: str) -> None:
        if part in found or isinstance(part, GuardsFn):
            return
        if not isinstance(part, GraphModule):
            found[part] = name
        for inner, child in _called(part):
            add(child, f"{name}.{inner}" if name else inner)

    add(module, "")
    return found


def _called(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    if not isinstance(module, GraphModule):
        yield from module.named_children()
        return
    for name in dict.fromkeys(str(n.target) for n in module.graph.find_nodes(op="call_module")):
        yield name, module.get_submodule(name)
