"""When a kernel begins beside the one in front of it: programmatic dependent launch, where the architecture has it.

Every kernel is launched before the one in front has ended, and waits for its end where it first needs what others
wrote: that hides most of a launch. A kernel may also let the next one start before it ends itself. That fills the
machine with programs that wait in the places of those that work (ResNet-50 with one image took 0.32 ms instead of
0.28 on an H200), so it is done only where the next one has something to do meanwhile: a one-row product
fetches weights.
"""

from __future__ import annotations

from dataclasses import replace

from hardtack.codegen.backends.triton.kernel import NAME, TritonKernel
from hardtack.codegen.ir.group import Group
from hardtack.codegen.tune.gemm import GemmPlan
from hardtack.codegen.tune.machine import machine_of

WAIT_HERE = "@WAIT@"
"""A line of a kernel's text from where on it may read what others wrote. Without one that is its first line."""
_WAIT = "tl.extra.cuda.gdc_wait()"
_LET_NEXT = "tl.extra.cuda.gdc_launch_dependents()"


def begun_early(kernel: TritonKernel, arch: str, following: Group | None) -> TritonKernel:
    """The kernel with its wait, and launched accordingly. following: what is launched behind it, None if unknown."""
    lines = kernel.text.splitlines()
    found = [k for k, line in enumerate(lines) if line.strip() == WAIT_HERE]
    if found:
        (at,) = found
        indent = lines.pop(at).removesuffix(WAIT_HERE)
    else:
        at = next(k for k, line in enumerate(lines) if line.startswith(f"def {NAME}(")) + 1
        indent = "    "
        at += lines[at].startswith(f'{indent}"""')
    dependent = machine_of(arch).dependent_launch
    if dependent:
        lines[at:at] = [indent + line for line in (_WAIT, *((_LET_NEXT,) if fetches_ahead(following) else ()))]
    return replace(kernel, text="\n".join(lines) + "\n", dependent=dependent)


def fetches_ahead(group: Group | None) -> bool:
    """True for a kernel that can do useful work before what is in front of it has ended."""
    if group is None or group.anchor is None or group.anchor.kind != "gemm":
        return False
    plan = group.anchor.attr("plan")
    return isinstance(plan, GemmPlan) and plan.variant == "vector" and bool(group.anchor.attr("constant"))
