"""Helpers of the tests of Options.compute: a module's graph with narrowed products, as text and as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hardtack.codegen.ir.graph_text import op_lines
from hardtack.codegen.ir.types import DType
from hardtack.exporter import Exported, narrowed, to_graphs
from hardtack.exporter.precision import Precision, Report
from tests.export.checks import entry


def narrow(
    module: Any,
    args: Sequence[Any],
    dynamic: Any = None,
    dtype: DType = DType.BF16,
    keep_f32: tuple[str, ...] = (),
    fewest: int = 0,
) -> tuple[Exported, Report]:
    """The module with products of any size narrowed, and what became of each."""
    return narrowed(to_graphs(module, tuple(args), None, dynamic), Precision(dtype, keep_f32, fewest))


def texts(exported: Exported) -> list[str]:
    """The ops of the only entry point, a line each, without their origins."""
    graph = entry(exported).graph
    return [line for op in graph.ops for line in op_lines(op, graph, origins=False)]


def reasons(report: Report) -> list[str]:
    """Why products stay f32, in their order."""
    return [k.reason for k in report.kept]


def rounded(x: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """What a product of 16 bits reads."""
    return x.to(dtype).float()
