"""The lines of a kernel that begins beside the one in front of it: programmatic dependent launch."""

from __future__ import annotations

from dataclasses import replace

from hardtack.codegen.backend import NAME
from hardtack.codegen.backends.triton.kernel import TritonKernel
from hardtack.codegen.ir.schedule import Overlap

WAIT_HERE = "@WAIT@"
"""A line of a kernel's text from where on it may read what others wrote. Without one that is its first line."""
_WAIT = "tl.extra.cuda.gdc_wait()"
_LET_NEXT = "tl.extra.cuda.gdc_launch_dependents()"


def with_waits(kernel: TritonKernel, overlap: Overlap) -> TritonKernel:
    """The kernel with the lines that its overlap takes, and launched accordingly."""
    if kernel.cuda is not None:
        assert not overlap.waits, f"{kernel.name} has no place to wait"
        return kernel
    lines = kernel.text.splitlines()
    found = [k for k, line in enumerate(lines) if line.strip() == WAIT_HERE]
    if found:
        (at,) = found
        indent = lines.pop(at).removesuffix(WAIT_HERE)
    else:
        at = next(k for k, line in enumerate(lines) if line.startswith(f"def {NAME}(")) + 1
        indent = "    "
        at += lines[at].startswith(f'{indent}"""')
    if overlap.waits:
        # the next one asks for its weights while this one still waits
        lines[at:at] = [indent + line for line in (*((_LET_NEXT,) if overlap.lets_next else ()), _WAIT)]
    return replace(kernel, text="\n".join(lines) + "\n", dependent=overlap.waits)
