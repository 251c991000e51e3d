"""The ops of torch's own table of samples whose results torch traces with other strides than eager mode on a CPU has.

    python tools/traced_strides.py [--samples 25]

Each sample runs as it is, with its tensors' first and last dimensions exchanged in memory, and channels_last: once with
numbers, and once as tensors without elements are traced during a capture. Strides of dimensions of size 1 and of empty
tensors do not count. Prints one line for each entry of the table, with the first sample, and their number: a minute.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.common_methods_invocations import op_db

from hardtack.exporter.capture.torch_patches.whole_shapes import kept_whole


def main() -> None:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--samples", type=int, default=25, help="of each op (25)")
    samples = top.parse_args().samples
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    count = compared = 0
    with kept_whole(), torch.no_grad():
        for op in op_db:
            results = list(comparisons(op, samples)) if torch.float32 in op.dtypes else []
            compared += len(results)
            found = next((text for text in results if text), None)
            if found is not None:
                count += 1
                print(f"{op.full_name}: {found}", flush=True)
    print(f"{count} entries of the table, {compared} results compared, torch {torch.__version__}")


def comparisons(op: Any, samples: int) -> Iterator[str]:
    """For each result of a sample: how it is traced otherwise, or ""."""
    for given in _samples(op)[:samples]:
        for how, layout in LAYOUTS.items():
            args, kwargs = _over_tensors(layout, (given.input, *given.args)), _over_tensors(layout, given.kwargs)
            try:
                made = op.op(*_over_tensors(torch.clone, args), **kwargs)
                with FakeTensorMode() as mode:
                    traced = op.op(*_over_tensors(mode.from_tensor, args), **_over_tensors(mode.from_tensor, kwargs))
            except Exception:  # whatever an op says against a layout, or against being traced
                continue
            for eager, fake in zip(_tensors(made), _tensors(traced), strict=False):
                if not _is_otherwise(eager, fake):
                    yield ""
                    continue
                sizes = [(tuple(t.shape), t.stride()) for t in _tensors(args)]
                yield f"{how} {sizes}: {tuple(eager.shape)} has {eager.stride()}, traced {fake.stride()}"


def _samples(op: Any) -> list[Any]:
    """Those of dense tensors; [] for an op whose samples cannot be made here."""
    try:
        made = list(op.sample_inputs("cpu", torch.float32, requires_grad=False))
    except Exception:  # a library that is not installed
        return []
    return [s for s in made if all(t.layout is torch.strided for t in _tensors((s.input, s.args, s.kwargs)))]


def _exchanged(t: torch.Tensor) -> torch.Tensor:
    return t.transpose(0, -1).contiguous().transpose(0, -1) if t.dim() > 1 else t


def _channels_last(t: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats[t.dim()]) if t.dim() in formats else t


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "as it is": lambda t: t,
    "exchanged": _exchanged,
    "channels_last": _channels_last,
}


def _over_tensors(function: Callable[[torch.Tensor], torch.Tensor], given: Any) -> Any:
    return pytree.tree_map(lambda x: function(x) if isinstance(x, torch.Tensor) else x, given)


def _tensors(given: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(given) if isinstance(x, torch.Tensor)]


def _is_otherwise(eager: torch.Tensor, fake: torch.Tensor) -> bool:
    if eager.layout is not torch.strided or eager.shape != fake.shape or not eager.numel():
        return False
    return any(n > 1 and a != b for n, a, b in zip(eager.shape, eager.stride(), fake.stride(), strict=True))


if __name__ == "__main__":
    main()
