"""How the C++ templates cut products on a CPU, by its caches: numbers that its compiler gets as macros.

They are the cost model of CPUs. Kernels have one text for all CPUs of a layout, so that the numbers of each come with
the flags; a plan from a tuning table stands in the text itself. docs/adr/0033 has the measurements behind the rules.
"""

from __future__ import annotations

from hardtack.codegen.machine.machine import Cpu

FLOAT_NBYTES = 4
GRAIN = 32
"""k of 16-bit numbers that a tile takes at once: depths are multiples of it."""
AHEAD = 64
"""k of the right side that are asked for ahead of their use."""
MOST_DEPTH = 2048
MOST_STAGED_DEPTH = 768
MOST_UNIT_NBYTES = 768 << 10
"""On any CPU: plans ask for workspaces before it is known which of a layout's CPUs runs them."""


def staged_depth(cpu: Cpu) -> int:
    """The longest k block of 16-bit numbers: a tile's rows, staged as float, take three quarters of the first-level
    cache."""
    fitting = cpu.first_level_nbytes * 3 // 4 // (cpu.micro_rows * FLOAT_NBYTES)
    return min(MOST_STAGED_DEPTH, fitting // GRAIN * GRAIN)


def float_depth(cpu: Cpu) -> int:
    """The same of float, whose rows are read where they are: twice the first-level cache."""
    return min(MOST_DEPTH, cpu.first_level_nbytes * 2 // (cpu.micro_rows * FLOAT_NBYTES) // GRAIN * GRAIN)


def unit_nbytes(cpu: Cpu) -> int:
    """Bytes of B that a unit multiplies with: three quarters of the second-level cache; the rest is A's and the
    results'."""
    return min(MOST_UNIT_NBYTES, cpu.second_level_nbytes * 3 // 4)


def macros(cpu: Cpu) -> tuple[str, ...]:
    """The flags that tell templates the CPU's numbers."""
    return (
        f"-DHT_STAGED_DEPTH={staged_depth(cpu)}",
        f"-DHT_FLOAT_DEPTH={float_depth(cpu)}",
        f"-DHT_UNIT_NBYTES={unit_nbytes(cpu)}",
        f"-DHT_SECOND_LEVEL_NBYTES={cpu.second_level_nbytes}",
    )
