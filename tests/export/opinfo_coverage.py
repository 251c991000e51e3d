"""How much of torch's own op suite converts: one sample of each OpInfo entry through export, Graph and reference, or
with --bundle through a file that this CPU runs.

    python tests/export/opinfo_coverage.py [--samples N] [--dtype float32] [--bundle] [--only TEXT] [--verbose]

Needs the package expecttest. Prints one line for each entry that is not equal to eager, and the totals: equal,
refused (an ExportError, with its reason), different, crashed. Not a test: a map of what is missing.
"""

from __future__ import annotations

import argparse
import collections
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree

import hardtack
from hardtack.exporter import ExportError, to_graphs
from hardtack.exporter.reference import outputs, run

_SECONDS = 20
# Relative and absolute, of an op's result beside eager's; of what is no float, too.
_TOLERANCES = {torch.float64: 1e-9, torch.complex128: 1e-9, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
_TOLERANCE = 2e-4


class Sample(torch.nn.Module):
    """An OpInfo sample with its tensors as inputs and everything else baked in."""

    def __init__(self, op: Any, leaves: list[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self.op, self.leaves, self.spec = op, leaves, spec
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        filled = [next(given) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(filled, self.spec)
        return self.op(*args, **kwargs)


def prepare(op: Any, sample: Any) -> tuple[Sample, tuple[torch.Tensor, ...]]:
    """The module and its inputs."""
    leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    tensors = tuple(x.detach().clone() for x in leaves if isinstance(x, torch.Tensor))
    return Sample(op, leaves, spec), tensors


def through_graph(module: Sample, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The results of the captured graph, op by op."""
    exported = to_graphs(module, tensors)
    entry = exported.entries["forward"]
    graph = entry.graph
    values = run(graph, exported.store, {i.name: t for i, t in zip(graph.inputs, tensors, strict=True)})
    pairs = entry.complex.outputs
    return [torch.complex(t[..., 0], t[..., 1]) if i in pairs else t for i, t in enumerate(outputs(graph, values))]


def through_bundle(module: Sample, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    """The results of compiled kernels."""
    with tempfile.TemporaryDirectory(prefix="hardtack_opinfo_") as folder:
        path = Path(folder) / "op.pkg"
        hardtack.export(module, tensors, path=path, targets=["cpu"], progress=False)
        found = pytree.tree_leaves(hardtack.load(path, device="cpu").session()(*tensors))
    return [torch.as_tensor(t) for t in found]


def judge(op: Any, sample: Any, through: Callable[..., list[torch.Tensor]]) -> tuple[str, str]:
    """(verdict, detail) of one sample."""
    module, tensors = prepare(op, sample)
    with torch.no_grad():
        want = [w for w in pytree.tree_leaves(module(*(t.clone() for t in tensors))) if isinstance(w, torch.Tensor)]
    try:
        got = through(module, tensors)
    except ExportError as error:
        return "refused", " ".join(str(error).split())[:180]
    if len(got) != len(want):
        return "different", f"{len(got)} outputs, eager {len(want)}"
    for g, w in zip(got, want, strict=True):
        tolerance = _TOLERANCES.get(w.dtype, _TOLERANCE)
        try:
            torch.testing.assert_close(g, w, equal_nan=True, rtol=tolerance, atol=tolerance)
        except AssertionError as error:
            return "different", " ".join(str(error).split())[:160]
    return "equal", ""


def _timeout(*_: Any) -> None:
    raise TimeoutError(f"no result within {_SECONDS} s")


def main() -> int:
    """Run the suite and print the map."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--bundle", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

    totals: collections.Counter[str] = collections.Counter()
    signal.signal(signal.SIGALRM, _timeout)
    through = through_bundle if options.bundle else through_graph
    entries: list[Any] = list(op_db)
    for op in entries:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        dtype = getattr(torch, options.dtype)
        if options.only not in name or not op.supports_dtype(dtype, "cpu"):
            continue
        verdict, detail = "equal", ""
        try:
            samples: Any = op.sample_inputs("cpu", dtype)
            for i, sample in zip(range(options.samples), samples, strict=False):
                signal.alarm(_SECONDS)
                verdict, detail = judge(op.op, sample, through)
                if verdict != "equal":
                    detail = f"sample {i}: {detail}"
                    break
        except Exception as error:  # whatever goes wrong is what this script is to show
            verdict, detail = "crashed", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finally:
            signal.alarm(0)
        totals[verdict] += 1
        if verdict != "equal" or options.verbose:
            print(f"{verdict:<10} {name:<45} {detail}", flush=True)
    print(f"{sum(totals.values())} entries: " + ", ".join(f"{v} {k}" for k, v in sorted(totals.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
