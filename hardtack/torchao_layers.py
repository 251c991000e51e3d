"""Layers that torchao quantises, the weights and what they do with activations; it is imported when it is asked for."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from hardtack.exporter import ExportError, InputSpecError
from hardtack.gptq import gptq_codes
from hardtack.linear_forms import OF_TORCH, as_linear
from hardtack.observation import Observed
from hardtack.quantised_layers import LINEAR, Layer
from hardtack.schemes import BY_DATA, METHODS, ActivationScheme, Scheme
from hardtack.smoothing import smoothing_divisors


def check_torchao(scheme: Scheme) -> None:
    """ExportError without torchao."""
    try:
        with _quiet("torchao", "torch.utils._pytree"):
            import torchao.quantization  # noqa: F401
    except ImportError as error:
        what = f"weights of {scheme} need the package torchao, from 0.18 on and before 0.19"
        raise ExportError(what, fix="pip install 'hardtack[quantize]'") from error


def method_of(layer: Layer, method: str, seen: Observed | None) -> str:
    """How a layer's integers are chosen where Options.weights_method is `method`: GPTQ is for linear layers that
    calibration showed enough of, and floats have one way."""
    fits = method != BY_DATA or (layer.kind is LINEAR and seen is not None and seen.moments.is_enough)
    return method if fits and not layer.scheme.is_float else METHODS[0]


def quantise_layer(layer: Layer, made: nn.Module, method: str, seen: Observed | None) -> Any:
    """Quantises `made`, the copy of a layer, its integers chosen by Options.weights_method, and gives the tensor of
    torchao's that its weight is then, which has qdata, scale and dequantize(). seen: what calibration showed. Raises
    InputSpecError for a layer that it showed nothing usable of."""
    scheme, activations, method = layer.scheme, layer.activations, method_of(layer, method, seen)
    wide = layer.weight
    if layer.kind is LINEAR and layer.form is not OF_TORCH:
        made = as_linear(made, layer.form, str(layer))
    divisors = None
    if activations is None:
        _quantize(made, _config(scheme, method))
        found: Any = made.weight
    else:
        divisors = _divisors(layer, seen) if activations.is_static else None
        found = _with_activations(wide, activations, None if divisors is None else _static_scale(layer, seen, divisors))
        if divisors is not None and (divisors != 1).any():
            found.act_pre_scale, wide = 1 / divisors, wide * divisors
        made.weight = nn.Parameter(found, requires_grad=False)
        if method == "hqq" or divisors is not None:
            _take_numbers(found, wide, _config(scheme, method))
    if scheme.is_float:
        _make_zeros(found.qdata, found.scale)
    if method == BY_DATA:
        assert seen is not None
        half = 1 << (scheme.bits - 1)
        sums = seen.moments.sums if divisors is None else seen.moments.sums / (divisors[:, None] * divisors)
        found.qdata.copy_(gptq_codes(wide, found.scale, sums, -half, half - 1))
    return made.weight


def numbers_of(weight: Any) -> torch.Tensor:
    """What a weight that quantise_layer gave stands for, in float64."""
    numbers: torch.Tensor = weight.dequantize().double()
    before = getattr(weight, "act_pre_scale", None)
    return numbers if before is None else numbers * before.double()


def _quantize(module: nn.Module, config: Any) -> None:
    from torchao.quantization import quantize_

    quantize_(module, config, lambda *_: True)


def _config(scheme: Scheme, method: str) -> Any:
    """torchao's, of weights alone."""
    from torchao.quantization import (
        Float8WeightOnlyConfig,
        Int8WeightOnlyConfig,
        IntxWeightOnlyConfig,
        PerAxis,
        PerGroup,
    )
    from torchao.quantization.quantize_.workflows import IntxChooseQParamsAlgorithm as Algorithm

    if scheme.is_float:
        return Float8WeightOnlyConfig(set_inductor_config=False)
    if scheme.group is None and method != "hqq":
        return Int8WeightOnlyConfig(set_inductor_config=False)  # else it changes settings of torch's own
    return IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{scheme.bits}"),
        granularity=PerAxis(0) if scheme.group is None else PerGroup(scheme.group),
        intx_choose_qparams_algorithm=Algorithm.HQQ_SCALE_ONLY if method == "hqq" else Algorithm.AFFINE,
    )


def _with_activations(wide: torch.Tensor, activations: ActivationScheme, scale: torch.Tensor | None) -> Any:
    """A weight of torchao's that quantises what it is multiplied with. scale: the static one."""
    from torchao.quantization import (
        Int8DynamicActivationInt8WeightConfig,
        Int8StaticActivationInt8WeightConfig,
        PerRow,
        PerTensor,
    )

    if activations.is_float:
        return _of_float8(wide)
    config: Any = Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)
    if scale is not None:
        granularity: Any = [PerTensor(), PerRow()]
        config = Int8StaticActivationInt8WeightConfig(
            act_quant_scale=scale, granularity=granularity, set_inductor_config=False
        )
    linear = nn.Linear(wide.shape[1], wide.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(wide, requires_grad=False)
    _quantize(linear, config)
    return linear.weight


def _divisors(layer: Layer, seen: Observed | None) -> torch.Tensor:
    """What a layer's activations are divided by, channel by channel, before they are rounded, float32 (K,). Raises
    InputSpecError for a layer that was given nothing but zeros."""
    assert seen is not None
    if not seen.largest.any():
        raise InputSpecError(
            f"{layer} is given nothing but zeros by the calibration, of which no scale can be made",
            fix="add examples for which it is given other numbers, or name it in keep_activations",
        )
    return smoothing_divisors(layer.weight, seen.sample)


def _static_scale(layer: Layer, seen: Observed | None, divisors: torch.Tensor) -> torch.Tensor:
    """The scale of a layer's activations: the largest of -128 to 127 reach as far as those that were seen, divided. It
    has as many dimensions as these, as torchao wants it."""
    assert seen is not None
    if len(seen.ranks) > 1:
        raise InputSpecError(
            f"{layer} is given activations of {' and of '.join(map(str, sorted(seen.ranks)))} dimensions, for which "
            "torchao has no one static scale",
            fix='take activations "int8:dynamic", or name it in keep_activations',
        )
    scale = max(float((seen.largest / divisors).max()) / 127.5, torch.finfo(torch.float32).eps)
    return torch.full((1,) * next(iter(seen.ranks)), scale, device=layer.weight.device)


def _of_float8(wide: torch.Tensor) -> Any:
    """What torchao's Float8DynamicActivationFloat8WeightConfig makes with scales of rows, which it refuses to on a
    machine without a GPU for it, and for other types than bfloat16. Rows of zeros have a scale that is not zero."""
    from torchao.float8.inference import Float8MMConfig
    from torchao.quantization import Float8Tensor, PerRow
    from torchao.quantization.quantize_.common import KernelPreference
    from torchao.quantization.quantize_.workflows import QuantizeTensorToFloat8Kwargs

    least = max(1e-12, torch.finfo(wide.dtype).tiny)
    mm, kernel = Float8MMConfig(use_fast_accum=True), KernelPreference.TORCH
    activations = QuantizeTensorToFloat8Kwargs(
        granularity=PerRow(), mm_config=mm, hp_value_lb=least, kernel_preference=kernel
    )
    return Float8Tensor.from_hp(
        wide, granularity=PerRow(), mm_config=mm, kernel_preference=kernel, act_quant_kwargs=activations
    )


def _take_numbers(found: Any, wide: torch.Tensor, config: Any) -> None:
    """Gives a weight the codes and scales that another config makes."""
    linear = nn.Linear(wide.shape[1], wide.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(wide, requires_grad=False)
    _quantize(linear, config)
    other: Any = linear.weight
    found.qdata.copy_(other.qdata)
    found.scale.copy_(other.scale.reshape(found.scale.shape))


def _make_zeros(codes: torch.Tensor, scales: torch.Tensor) -> None:
    """Zeros of rows that torchao 0.18 divides by a scale of zero, as those of padding in an embedding are."""
    empty = scales == 0
    codes.view(torch.uint8).masked_fill_(empty, 0)
    scales.masked_fill_(empty, 1)


@contextlib.contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Inside, loggers say errors only: torchao tells of each of its libraries for GPUs that is not for this torch."""
    loggers = [logging.getLogger(n) for n in names]
    levels = [x.level for x in loggers]
    for x in loggers:
        x.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for x, level in zip(loggers, levels, strict=True):
            x.setLevel(level)
