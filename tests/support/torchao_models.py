"""Models quantised by torchao, which is imported when it is asked for: it imports Triton, which some tests do first."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def _x86(is_dynamic: bool) -> Any:
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86

    config = x86.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic)
    return x86.X86InductorQuantizer().set_global(config)


def _xnnpack(is_dynamic: bool, is_per_channel: bool) -> Any:
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    config = get_symmetric_quantization_config(is_per_channel=is_per_channel, is_dynamic=is_dynamic)
    return XNNPACKQuantizer().set_global(config)


QUANTISERS: dict[str, Callable[[], Any]] = {
    "x86, static": lambda: _x86(False),
    "x86, dynamic": lambda: _x86(True),
    "xnnpack, static, per tensor": lambda: _xnnpack(False, False),
    "xnnpack, static, per channel": lambda: _xnnpack(False, True),
    "xnnpack, dynamic, per channel": lambda: _xnnpack(True, True),
}


def of_pt2e(module: nn.Module, x: torch.Tensor, quantiser: str) -> nn.Module:
    """What convert_pt2e makes of it, calibrated with x."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(torch.export.export(module, (x,)).module(), QUANTISERS[quantiser]())
    prepared(x)
    made = convert_pt2e(prepared)
    assert isinstance(made, nn.Module)
    return made


CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "int8 weights": ("Int8WeightOnlyConfig", {}),
    "float8 weights": ("Float8WeightOnlyConfig", {}),
    "int8": ("Int8DynamicActivationInt8WeightConfig", {}),
    "int4 weights in groups": ("IntxWeightOnlyConfig", {"weight_dtype": torch.int4}),
    "int8 by int4": ("Int8DynamicActivationIntxWeightConfig", {"weight_dtype": torch.int4}),
}
"""Name -> torchao's class, and what it is given; groups are of 32."""


def of_torchao(module: nn.Module, config: str) -> nn.Module:
    """A copy with quantised linear layers."""
    from torchao import quantization

    name, given = CONFIGS[config]
    if name == "IntxWeightOnlyConfig":
        given = {**given, "granularity": quantization.PerGroup(32)}
    made = copy.deepcopy(module)
    quantization.quantize_(made, getattr(quantization, name)(**given))
    return made
