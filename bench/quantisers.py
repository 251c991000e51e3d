"""Models of int8 as each system's own tool makes them of float32: PT2E, quantize_static of ONNX Runtime, NNCF.

All are static, calibrated with the inputs that they are timed on, and have one scale for each channel of a weight.
reduce_range: what a tool has for CPUs whose instructions of pairs of bytes saturate (AVX2, AVX-512 without VNNI).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Feed = dict[str, np.ndarray[Any, Any]]


def by_pt2e(module: nn.Module, args: tuple[Tensor, ...], path: Path, reduce_range: bool) -> None:
    """Writes to `path` what torchao's convert_pt2e makes, with the quantiser for x86 and its defaults.

    reduce_range: activations of 7 bits.
    """
    import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    config = x86.get_default_x86_inductor_quantization_config(reduce_range=reduce_range)
    quantiser = x86.X86InductorQuantizer().set_global(config)
    exported = torch.export.export(module, args).module()
    assert isinstance(exported, torch.fx.GraphModule)
    _name_convolutions(exported.graph)
    prepared = prepare_pt2e(exported, quantiser)
    prepared(*args)
    torch.export.save(torch.export.export(convert_pt2e(prepared), args), path)


def _name_convolutions(graph: torch.fx.Graph) -> None:
    """Tells the quantiser of convolutions in classes that derive from nn.Conv2d, for it compares names of classes, and
    of a ReLU6 that is called twice, whose calls it takes for one."""
    plain = f"{nn.Conv2d.__module__}.{nn.Conv2d.__qualname__}"
    for node in graph.nodes:
        if node.target in (torch.ops.aten.conv2d.default, torch.ops.aten.hardtanh.default):
            stack = node.meta["nn_module_stack"]
            inner, (path, kind) = list(stack.items())[-1]
            kind = plain if node.target is torch.ops.aten.conv2d.default else kind
            node.meta["nn_module_stack"] = {**stack, inner: (f"{path}.{node.name}", kind)}


def read_pt2e(path: Path) -> torch.export.ExportedProgram:
    """What by_pt2e has written."""
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401  registers the ops that the program has

    return torch.export.load(path)


def by_onnxruntime(source: Path, args: Sequence[Tensor], path: Path, reduce_range: bool) -> None:
    """Writes to `path` the model of the file `source`, prepared and quantised as ONNX Runtime advises for CPUs: u8 by
    s8, pairs of QuantizeLinear and DequantizeLinear.

    reduce_range: weights of 7 bits.
    """
    import onnx
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = path.with_suffix(".prepared.onnx")
    quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    names = [i.name for i in onnx.load(str(prepared), load_external_data=False).graph.input]
    q.quantize_static(
        str(prepared), str(path), _Once(dict(zip(names, (a.numpy() for a in args), strict=True))),
        quant_format=q.QuantFormat.QDQ, per_channel=True, reduce_range=reduce_range,
        activation_type=q.QuantType.QUInt8, weight_type=q.QuantType.QInt8,
    )  # fmt: skip
    prepared.unlink()


class _Once:
    """A CalibrationDataReader of one example."""

    def __init__(self, feed: Feed) -> None:
        self._left: list[Feed] = [feed]

    def get_next(self) -> Feed | None:
        return self._left.pop() if self._left else None

    def __iter__(self) -> _Once:
        return self

    def __next__(self) -> Feed:
        found = self.get_next()
        if found is None:
            raise StopIteration
        return found

    def __len__(self) -> int:
        return len(self._left)


def by_nncf(model: Any, args: Sequence[Tensor], transformer: bool) -> Any:
    """An openvino.Model quantised as NNCF does by default. transformer: as it advises for models with attention."""
    import nncf

    dataset = nncf.Dataset([[a.numpy() for a in args]])
    kind = nncf.ModelType.TRANSFORMER if transformer else None
    return nncf.quantize(model, dataset, model_type=kind, subset_size=1)
