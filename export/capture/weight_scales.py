"""Scales of weights that were quantised before: a library that met bad data, or none, leaves NaN or zeros in them."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from hardtack.exporter.block_scales import from_swizzled, swizzled_numel
from hardtack.exporter.errors import InputSpecError

_DEQUANTIZE = "quantized_decomposed.dequantize_per_"
_TOLD = (("NaN", torch.isnan), ("infinite", torch.isinf), ("zero", lambda t: t == 0))


def check_tensors(module: nn.Module) -> None:
    """InputSpecError for a tensor of a library's own class, such as torchao's, with a scale that is no positive or
    negative number."""
    for name, t in (*module.named_parameters(), *module.named_buffers()):
        if is_traceable_wrapper_subclass(t):
            for part in t.__tensor_flatten__()[0]:
                if "scale" in part and isinstance(getattr(t, part), torch.Tensor):
                    _check(f"the weight {name!r}, a {type(t).__name__},", _without_filling(t, getattr(t, part)))


def _without_filling(t: Any, scale: torch.Tensor) -> torch.Tensor:
    """Scales of blocks of t's rows without what fills their last tiles, where they lie as cuBLAS wants them."""
    size = getattr(t, "block_size", None)
    if not getattr(t, "is_swizzled_scales", False) or not isinstance(size, int) or t.dim() != 2:
        return scale
    rows, columns = t.shape[0], t.shape[1] // size
    return from_swizzled(scale, rows, columns) if scale.numel() == swizzled_numel(rows, columns) else scale


def check_program(ep: ExportedProgram) -> None:
    """The same for the dequantize ops of a program that was quantised as a graph (PT2E), and for scales and zero points
    that are not one a channel."""
    for node in ep.graph.nodes:
        if node.op == "call_function" and str(node.target).startswith(_DEQUANTIZE):
            _check_channels(node)
            scale = _content(ep, node.args[1])
            if scale is not None:
                _check(f"{_layer(node)}{node.target}, at {node.name!r},", scale)


def _check_channels(node: fx.Node) -> None:
    if not str(node.target).startswith(f"{_DEQUANTIZE}channel."):
        return
    x, *numbers = (a.meta.get("val") if isinstance(a, fx.Node) else None for a in node.args[:3])
    axis = node.args[3]
    if not isinstance(x, torch.Tensor) or not isinstance(axis, int):
        return
    for word, found in zip(("scales", "zero points"), numbers, strict=True):
        if isinstance(found, torch.Tensor) and tuple(found.shape) != (x.shape[axis],):
            raise InputSpecError(
                f"{_layer(node)}{node.target}, at {node.name!r}, has {word} of shape {list(found.shape)} for "
                f"{x.shape[axis]} channels",
                fix=f"give one for each channel, dimension {axis} of what it dequantises",
            )


def _check(what: str, scale: torch.Tensor) -> None:
    if scale.is_meta or isinstance(scale, FakeTensor):
        return
    for word, wrong in _TOLD:
        count = int(wrong(scale.double()).sum())
        if count:
            raise InputSpecError(
                f"{what} has {'a scale' if scale.numel() == 1 else f'{count} of {scale.numel()} scales'} that "
                f"{'is' if count == 1 or scale.numel() == 1 else 'are'} {word}",
                fix="look at the weights that it was made of, and whether calibration reached the layer; then quantise "
                "again",
            )


def _content(ep: ExportedProgram, scale: Any) -> torch.Tensor | None:
    """The scales that an argument names; None for what the program computes."""
    if not isinstance(scale, fx.Node):
        return torch.tensor(float(scale))
    signature = ep.graph_signature
    name = (
        signature.inputs_to_parameters.get(scale.name)
        or signature.inputs_to_buffers.get(scale.name)
        or signature.inputs_to_lifted_tensor_constants.get(scale.name)
    )
    found = None if name is None else ep.state_dict.get(name, ep.constants.get(name))
    return found if isinstance(found, torch.Tensor) else None


def _layer(node: fx.Node) -> str:
    """The module around what reads the result, in words; nothing where it is not known."""
    paths = [path for path in map(_path, (node, *node.users)) if path]
    return f"in {paths[-1]!r}, " if paths else ""


def _path(node: fx.Node) -> str:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return str(stack[-1][0]) if stack else ""
