"""The numbers of dequantisation's steps as kernels with codes read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.codegen.backends.triton.sketch import Sketch
from hardtack.codegen.backends.triton.triton_gemm import scaled
from hardtack.codegen.backends.triton.triton_spelling import FLOAT8
from hardtack.codegen.ir.types import DType
from hardtack.codegen.lower.gpu_code_rows import TableStep
from hardtack.codegen.lower.gpu_quantized import CodeGemm


@dataclass(frozen=True)
class StepTable:
    """A step's numbers in a kernel. start: where they start; at: offsets of rows; stored: what they are in memory;
    factor: where the one number lies that they are multiplied with first, empty for none."""

    name: str
    step: TableStep
    start: str
    at: str
    stored: DType
    factor: str

    def wide(self, loaded: str) -> str:
        """Numbers that were loaded, as f32."""
        known = FLOAT8.get(self.stored)
        found = f"{loaded}.to(tl.float32)" if known is None else f"float_of_{known}({loaded})"
        return f"({found} * tl.load({self.factor}))" if self.factor else found


def step_table(gemm: CodeGemm, sketch: Sketch, index: int, columns: str) -> StepTable:
    """That of a product's step; columns: the index of the matrix's columns in the kernel."""
    assert sketch.kernel.anchor is not None
    operands, step = sketch.kernel.anchor.operands, gemm.steps[index]
    view = operands[2 + index]
    at = scaled(columns, view.strides[0], sketch, f"table_row{index}")
    factor = 2 + len(gemm.steps) + sum(s.scaled for s in gemm.steps[:index])
    number = sketch.operand(factor) if step.scaled else ""
    return StepTable(f"table{index}", step, sketch.operand(2 + index), at, view.dtype, number)


def affine(steps: Sequence[tuple[str, str]], of: str = "") -> tuple[list[str], str, str]:
    """Steps, each its kind and its number's name, as one: lines that make `scale` and `shift`, with `of` behind their
    names, and these names, empty for 1 and 0."""
    lines, scale, shift = [], "", ""
    for kind, number in steps:
        if kind == "mul":
            lines += [f"scale{of} = scale{of} * {number}"] if scale else [f"scale{of} = {number}"]
            lines += [f"shift{of} = shift{of} * {number}"] if shift else []
            scale = f"scale{of}"
        else:
            sign = "-" if kind == "sub" else ""
            lines.append(f"shift{of} = shift{of} {sign or '+'} {number}" if shift else f"shift{of} = {sign}{number}")
            shift = f"shift{of}"
    return lines, scale, shift
