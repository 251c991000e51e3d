"""The rules of launches: what others read of a group's results is in memory, and the launch says what it touches there.

The planner orders launches and shares memory among values by what each launch says of itself.
"""

from __future__ import annotations

from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.loops import LoopError
from hardtack.codegen.plan.planner import KernelLaunch


def verify_launch(launch: KernelLaunch, group: Group, kept: frozenset[str]) -> None:
    """Raise LoopError unless a group's launch does with memory what the group does. kept: buffers that something
    outside of the group touches."""
    memory, writes, reads = frozenset(launch.buffers), group.writes(), group.reads_from_outside()
    for needed, what in ((writes & kept, "written"), (reads, "read")):
        if needed - memory:
            raise LoopError(f"kernel {launch.kernel}: {min(needed - memory)} is {what} outside, and not in memory")
    for given, touched, what in (
        (launch.writes, writes & memory, "writes"),
        (launch.reads, reads, "reads"),
    ):
        if given != touched:
            name = min(given ^ touched)
            says = f"says that it {what}" if name in given else f"does not say that it {what}"
            raise LoopError(f"kernel {launch.kernel}: the launch {says} {name}")
