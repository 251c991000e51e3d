"""A feed-forward layer whose products are of int8, beside float32 and ONNX Runtime: python -m bench.quantised_products.

torchao quantises the weights, a scale a column, and each row of an activation as the layer runs; ONNX Runtime's
quantize_dynamic likewise, with one scale for all rows. They take turns, and ratios are medians of those of the turns.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import hardtack
from bench.quantised_weights import seconds

WIDTH, HIDDEN = 768, 3072
ROWS = (1, 16, 128)
Call = Callable[[torch.Tensor], object]


def feed_forward() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH)).eval()


def of_int8(module: nn.Module) -> nn.Module:
    """A copy that torchao has quantised."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantised = copy.deepcopy(module)
    quantize_(quantised, Int8DynamicActivationInt8WeightConfig())
    return quantised


def bundle(path: Path, module: nn.Module, x: torch.Tensor, threads: int) -> Call:
    hardtack.export(module, (x,), path=path, targets=("cpu:native",))
    return hardtack.load(path, threads=threads).session()


def onnx_session(path: Path, threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: session.run(None, {name: x.numpy()})


def four_ways(folder: Path, x: torch.Tensor, threads: int) -> dict[str, Call]:
    """What is measured, by name, warm; the second is what ratios are of."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    wide, written, quantised = feed_forward(), folder / "wide.onnx", folder / "int8.onnx"
    torch.onnx.export(wide, (x,), str(written), dynamo=True, verbose=False)
    model = onnx.load(written)
    del model.graph.value_info[:]  # torch leaves shapes from before it transposed the weights
    quantize_dynamic(model, quantised, per_channel=True, weight_type=QuantType.QInt8)
    return {
        "Hardtack f32": bundle(folder / "wide.pkg", wide, x, threads),
        "Hardtack int8": bundle(folder / "int8.pkg", of_int8(wide), x, threads),
        "ONNX Runtime f32": onnx_session(written, threads),
        "ONNX Runtime int8": onnx_session(quantised, threads),
    }


@click.command(help=__doc__)
@click.option("--threads", default=1, show_default=True)
@click.option("--rounds", default=30, show_default=True, help="Turns of each.")
@click.option("--rows", multiple=True, type=int, default=ROWS, show_default=True, help="Of the activation.")
def main(threads: int, rounds: int, rows: tuple[int, ...]) -> None:
    table = Table("rows")
    for count in rows:
        x = torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(1))
        with tempfile.TemporaryDirectory() as folder:
            ways = four_ways(Path(folder), x, threads)
            turns = [[seconds(call, x) for call in ways.values()] for _ in range(rounds)]
        if not table.rows:
            for name in ways:
                table.add_column(f"{name}, us")
                table.add_column("/ int8")
        shown = [str(count)]
        for k in range(len(ways)):
            shown += [f"{statistics.median(t[k] for t in turns) * 1e6:.0f}"]
            shown += [f"{statistics.median(t[k] / t[1] for t in turns):.2f}"]
        table.add_row(*shown)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
