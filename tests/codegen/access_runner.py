"""Runs a compiled entry, and looks at what each kernel writes beside what it declares to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from hardtack.codegen.ir.plan import Access, Launch
from tests.codegen.runner import Runner

Array = npt.NDArray[Any]


def elements(a: Access, number: Any) -> Array:
    """The indices of the elements of a box."""
    out = np.array([number(a.offset)])
    for n, s in zip(a.shape, a.strides, strict=True):
        out = (out[:, None] + np.arange(number(n)) * number(s)).reshape(-1)
    return out


class AccessRunner(Runner):
    """Runs each launch twice, with other bytes in what it fills: all of it must come out alike, all else stay."""

    def _launch(self, launch: Launch, arrays: Mapping[str, Array], number: Any) -> None:
        record = next(k for k in self.compiled.plan.kernels if k.name == launch.kernel)
        passed = (launch.ints, launch.shared, launch.per_worker)
        (call,) = (c for c in record.calls if (c.ints, c.shared, c.per_worker) == passed)
        written = [
            (b, p.access, a)
            for b, p, a in zip(launch.buffers, record.buffers, call.accesses, strict=True)
            if p.access != "read"
        ]
        before = {b: arrays[b].copy() for b, _, _ in written}
        results: list[dict[str, Array]] = []
        for poison in (0x5A, 0xA5):
            for b, access, accesses in written:
                np.copyto(arrays[b], before[b])
                flat = arrays[b].reshape(-1)
                for a in accesses:
                    if a.fills and access == "write":
                        flat[elements(a, number)] = np.full(flat.itemsize, poison, np.uint8).view(flat.dtype)[0]
            super()._launch(launch, arrays, number)
            results.append({b: arrays[b].reshape(-1).copy() for b, _, _ in written})
        for b, _, accesses in written:
            what = f"{launch.kernel} {b}"
            one, two, old = (x[b].reshape(-1).view(np.uint8).reshape(-1, x[b].itemsize) for x in (*results, before))
            may = np.zeros(len(one), bool)
            for a in accesses:
                at = elements(a, number)
                may[at] = True
                if a.fills:
                    assert (one[at] == two[at]).all(), f"{what}: it does not write all that it declares to fill"
            assert (one[~may] == old[~may]).all(), f"{what}: it writes what it does not declare to touch"
