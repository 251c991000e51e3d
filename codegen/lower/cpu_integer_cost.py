"""When a convolution of int8 on a CPU is worth it beside one of float32: a count of cycles of one core."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hardtack.codegen.hints import size_hint
from hardtack.codegen.ir.expr import int_value
from hardtack.codegen.ir.graph import Graph, Op
from hardtack.codegen.lower.convolution import geometry
from hardtack.codegen.lower.cpu_workspace import number
from hardtack.codegen.lower.winograd_cost import winograd_cost
from hardtack.codegen.machine.blocking import FLOAT_NBYTES
from hardtack.codegen.machine.machine import Cpu

EXACT_TAPS = (1 << 24) // (128 * 128)
"""The sum of so many products of int8 is a whole number that float32 has: of a depthwise filter, by depthwise.h."""
QUAD = 4
"""Codes that lie side by side in packed weights."""
_FMA_RATE = 2
"""Products of vectors that a core does in a cycle."""
_STEP = 16
"""Codes that are staged at once."""
_STEP_CYCLES = 4
"""To stage them: a load, two conversions, two stores."""
_ROW_CYCLES = 8
"""To begin a row of codes, one tap of a result's."""
_REST_CYCLES = 8
"""For codes behind the last whole step."""
_PLACE_CYCLES = 2
"""To begin a row of codes that are read where they lie."""

_WIDEN_CYCLES = 5
"""For a vector of results of a depthwise filter: its codes made float, and its sum whole. Measured on Zen 3: 4 to 5."""
_FAR_NBYTES = 8
"""Bytes that a core reads in a cycle of what does not fit in its own cache."""


@dataclass(frozen=True)
class ConvCost:
    """Cycles for a convolution in both types."""

    integers: float
    floats: float

    @property
    def pays(self) -> bool:
        """True if int8 takes fewer."""
        return self.integers <= self.floats

    @property
    def reason(self) -> str:
        """The two counts."""
        return f"{self.integers:.3g} cycles by int8, {self.floats:.3g} by float32"


def conv_cost(
    graph: Graph, op: Op, hints: Mapping[str, int], machine: Cpu, seven_bits: bool, sums_windows: bool
) -> ConvCost:
    """Of a convolution that is not transposed, by a constant weight [O, C/groups, *K]. seven_bits: of x; sums_windows:
    its codes are summed, too, for zero points of the filters."""
    given = geometry(op)
    outputs, channels, *kernel = (int_value(n) or 0 for n in graph.type_of(op.inputs[1]).shape)
    n, _, *points = (size_hint(e, hints) for e in graph.types[op.outputs[0]].shape)
    if is_depthwise(graph, op):
        numel = math.prod(size_hint(e, hints) for e in graph.type_of(op.inputs[0]).shape)
        return _depthwise_cost(numel, n * math.prod(points) * outputs, math.prod(kernel), machine)
    results = n * math.prod(points) * given.groups
    vectors = -(-outputs // given.groups // (machine.vector_nbytes // 4))
    direct = results * math.prod(kernel) * channels * vectors / _FMA_RATE
    floats = direct
    plain = given.groups == 1 and {*given.stride, *given.dilation} == {1}
    if plain and tuple(kernel) == (3, 3):
        cost = winograd_cost(machine, (n, points[0], points[1]), channels, outputs)
        floats = cost.winograd if cost.pays else direct
    short = channels < number("kShortTap") or channels % QUAD != 0
    merged = given.groups == 1 and short and given.dilation[-1] == 1 and kernel[-1] > 1
    rows = math.prod(kernel[:-1]) if merged else math.prod(kernel)
    codes = math.prod(kernel) * channels // rows
    row = _ROW_CYCLES + -(-codes // _STEP) * _STEP_CYCLES + (_REST_CYCLES if codes % _STEP else 0)
    if seven_bits and machine.seven_bit_rate > machine.int8_rate and (codes % QUAD == 0 or merged):
        row = _PLACE_CYCLES
    rate = machine.seven_bit_rate if seven_bits else machine.int8_rate
    quads = results * rows * -(-codes // QUAD) * QUAD * vectors / _FMA_RATE
    summed = math.prod(size_hint(e, hints) for e in graph.type_of(op.inputs[0]).shape) / QUAD if sums_windows else 0
    taps = results * math.prod(kernel) if sums_windows else 0
    return ConvCost(quads / rate + results * rows * row + summed + taps, floats)


def is_depthwise(graph: Graph, op: Op) -> bool:
    """Whether a convolution has a filter for each channel."""
    outputs, channels, *_ = map(int_value, graph.type_of(op.inputs[1]).shape)
    return channels == 1 and outputs == op.int_attr("groups") > 1


def _depthwise_cost(inputs: int, results: int, taps: int, machine: Cpu) -> ConvCost:
    """Both types are multiplied as floats; codes are a quarter of the bytes, of which an image that fits in a core's
    own cache has none to wait for."""
    vectors = results / (machine.vector_nbytes // FLOAT_NBYTES)
    products = vectors * taps / _FMA_RATE
    waits = inputs / _FAR_NBYTES if inputs * FLOAT_NBYTES > machine.second_level_nbytes else 0
    return ConvCost(products + vectors * _WIDEN_CYCLES + waits, products + waits * FLOAT_NBYTES)
