"""Simulates how products are shared out over cores that this machine does not have: python -m bench.schedule.

make_grid (codegen/templates/cpp/grid.h) cuts a product into units, some of which are a task; the pool gives each
worker a share of the tasks, and what is left of the others' to whoever is done (runtime_cpp/src/thread_pool.cpp). Both
are pure functions of the shape and of how long things take, so that sixty-four cores, or cores of two speeds, need not
be there. What is left out: the bandwidth that cores share, what lies in which core's cache, clocks that fall when all
cores work, other programs. tests/templates/test_grid.py compares the cut with that of the compiled template.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import click
from rich.console import Console
from rich.table import Table

from hardtack.codegen.lower.cpu_workspace import NUMBERS, PANEL
from hardtack.codegen.machine.blocking import FLOAT_NBYTES, float_depth, staged_depth, unit_nbytes
from hardtack.codegen.machine.data import X86_64_V4
from hardtack.codegen.machine.machine import Cpu

_NUMBERS = {number.name: number.value for number in NUMBERS}
# As in grid.h.
_SHORT_K = 128
_FEW_ROWS = 4


@dataclass(frozen=True)
class Product:
    """C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n]; a convolution's rows are its output's pixels."""

    name: str
    batches: int
    m: int
    n: int
    k: int


PRODUCTS = (
    Product("BERT qkv, 128 tokens", 1, 128, 768, 768),
    Product("BERT up", 1, 128, 3072, 768),
    Product("BERT down", 1, 128, 768, 3072),
    Product("BERT scores", 12, 128, 128, 64),
    Product("ResNet 7x7/2, 3 channels", 1, 12544, 64, 147),
    Product("ResNet 1x1, 56x56, 64 to 256", 1, 3136, 256, 64),
    Product("ResNet 3x3, 56x56, 64", 1, 3136, 64, 576),
    Product("ResNet 3x3, 28x28, 128", 1, 784, 128, 1152),
    Product("ResNet 1x1, 14x14, 1024 to 256", 1, 196, 256, 1024),
    Product("ResNet 3x3, 14x14, 256", 1, 196, 256, 2304),
    Product("ResNet 3x3, 7x7, 512", 1, 49, 512, 4608),
    Product("ResNet 1x1, 7x7, 512 to 2048", 1, 49, 2048, 512),
    Product("ResNet classes", 1, 1, 1000, 2048),
    Product("llama decode, 2048", 1, 1, 2048, 2048),
    Product("llama decode, up", 1, 1, 5632, 2048),
    Product("llama decode, down", 1, 1, 2048, 5632),
    Product("llama prefill 128, up", 1, 128, 5632, 2048),
    Product("MLP, batch 64", 1, 64, 512, 784),
    Product("MiniLM, 16 tokens", 1, 16, 384, 384),
    Product("MiniLM up, 16 tokens", 1, 16, 1536, 384),
    Product("1024^3", 1, 1024, 1024, 1024),
)


@dataclass(frozen=True)
class Grid:
    """How a product is cut, as in grid.h: units and, in order, units to a task."""

    row_blocks: int
    row_chunks: int
    panel_chunks: int
    units: int
    units_per_task: int


@dataclass(frozen=True)
class GridCosts:
    """What else than multiplying a product takes, in multiplications, as in grid.h."""

    serial: int
    unit: int
    hand_out: int
    reload: int


VECTOR_COSTS = GridCosts(1 << 20, 1 << 18, 6600, 16)
TILE_COSTS = GridCosts(1 << 20, 1 << 18, 4 * 6600, 80)


@dataclass(frozen=True)
class Rates:
    """What things take on one core. products: multiply-adds a second. load_rows: rows of arithmetic that reading B for
    a unit takes; 0 where it hides behind the arithmetic. wake_s: until a worker that watches sees a region;
    hand_out_s: for a task, during which no other worker gets one of its share; end_s: until the caller sees that all
    are done.
    """

    products: float = 1.1e11
    load_rows: int = 0
    wake_s: float = X86_64_V4.wake_products / 1e11
    hand_out_s: float = 6e-8
    end_s: float = 5e-7


def _part(total: int, i: int, n: int) -> tuple[int, int]:
    return total * i // n, total * (i + 1) // n


def _even_chunks(chunks: int, others: int, workers: int) -> int:
    """The least number of chunks, from `chunks` on, of which `others` times as many are shared out evenly."""
    step = workers // math.gcd(workers, others)
    return -(-chunks // step) * step


def make_grid(p: Product, workers: int, cpu: Cpu = X86_64_V4, tiles: bool = False) -> Grid:
    """The cut of grid.h: of those between few large units and many small ones, and of those next to them that give
    each worker as many units, the one that is done soonest. tiles: of bfloat16, by a CPU's tile registers.
    """
    cost = TILE_COSTS if tiles else VECTOR_COSTS
    block, operand_nbytes = (_NUMBERS["kBlockRows"], 2) if tiles else (cpu.micro_rows, FLOAT_NBYTES)
    unit_depth = unit_nbytes(cpu) // (PANEL * operand_nbytes)
    all_blocks, all_panels = -(-p.m // block), -(-p.n // PANEL)
    depth = max(1, min(p.k, staged_depth(cpu) if tiles else float_depth(cpu)))
    blocks = min(all_blocks, _NUMBERS["kChunkRows"] // block)
    panels = min(all_panels, max(1, min(_NUMBERS["kUnitRowNbytes"] // (PANEL * operand_nbytes), unit_depth // depth)))
    if p.batches * (p.m + cost.reload) * p.n * p.k < cost.serial:
        workers = 1
    cuts: list[tuple[int, int, Grid]] = []  # how long it takes, a unit's work

    def consider(row_chunks: int, panel_chunks: int) -> int:
        if row_chunks > all_blocks or panel_chunks > all_panels:
            return 0
        units = p.batches * row_chunks * panel_chunks
        rows, columns = -(-all_blocks // row_chunks) * block, -(-all_panels // panel_chunks) * PANEL
        work = (rows + cost.reload) * (columns + cost.reload) * p.k
        time = (-(-units // workers) + 1) * work + units * cost.hand_out
        cuts.append((time, work, Grid(all_blocks, row_chunks, panel_chunks, units, units)))
        return work

    while True:
        row_chunks, panel_chunks = -(-all_blocks // blocks), -(-all_panels // panels)
        work = consider(row_chunks, panel_chunks)
        if workers == 1:
            break
        consider(_even_chunks(row_chunks, p.batches * panel_chunks, workers), panel_chunks)
        consider(row_chunks, _even_chunks(panel_chunks, p.batches * row_chunks, workers))
        units = p.batches * row_chunks * panel_chunks
        if units >= 8 * workers or work < 2 * cost.unit or (blocks == 1 and panels == 1):
            break
        if (panels * PANEL >= blocks * block and panels > 1) or blocks == 1:
            panels = -(-panels // 2)
        else:
            blocks = -(-blocks // 2)
    _, work, grid = min(cuts, key=lambda cut: cut[0])
    if workers == 1:
        return grid
    tasks = min(grid.units, 4 * workers)
    return replace(grid, units_per_task=min(-(-grid.units // tasks), max(1, cost.unit // max(1, work))))


def _first_row(p: Product, grid: Grid, block: int, micro_rows: int) -> int:
    """Where a block of rows begins, or ends for the one before."""
    if p.k > _SHORT_K:
        return block * (p.m // grid.row_blocks) + min(block, p.m % grid.row_blocks)
    return min(block * micro_rows, max(0, p.m - _FEW_ROWS)) if block < grid.row_blocks else p.m


def tasks_of(p: Product, grid: Grid, load_rows: int = 0, micro_rows: int = X86_64_V4.micro_rows) -> Iterator[int]:
    """The multiply-adds of each task, panels filled up, plus those that loading B stands for."""
    panels = -(-p.n // PANEL)
    unit_work = []
    for unit in range(grid.units):
        row_chunk, panel_chunk = unit // grid.panel_chunks % grid.row_chunks, unit % grid.panel_chunks
        first, last = (
            _first_row(p, grid, block, micro_rows) for block in _part(grid.row_blocks, row_chunk, grid.row_chunks)
        )
        begin, end = _part(panels, panel_chunk, grid.panel_chunks)
        unit_work.append((last - first + load_rows) * (end - begin) * PANEL * p.k)
    for i in range(0, grid.units, grid.units_per_task):
        yield sum(unit_work[i : i + grid.units_per_task])


def share_out(num_tasks: int, workers: int) -> list[list[int]]:
    """The tasks of each share, in order: one for each worker that there is a task for."""
    shares = min(num_tasks, workers)
    least, longer = divmod(num_tasks, shares)
    ends = [0, *itertools.accumulate(least + (s < longer) for s in range(shares))]
    return [list(range(begin, end)) for begin, end in itertools.pairwise(ends)]


def region_s(tasks: Sequence[int], speeds: Sequence[float], rates: Rates) -> float:
    """Seconds of a parallel region: worker i has speeds[i] of a core's rate, and worker 0 is the caller's thread."""
    if len(tasks) <= 1 or len(speeds) == 1:
        return sum(tasks) / (rates.products * speeds[0])
    shares = [deque(share) for share in share_out(len(tasks), len(speeds))]
    counters = [0.0] * len(shares)  # when the next task of a share can be handed out
    free = [(0.0 if worker == 0 else rates.wake_s, worker) for worker in range(len(speeds))]
    heapq.heapify(free)
    finished = 0.0
    while any(shares):
        asked, worker = heapq.heappop(free)
        k = next(k % len(shares) for k in range(worker, worker + len(shares)) if shares[k % len(shares)])
        counters[k] = max(counters[k], asked) + rates.hand_out_s
        done = counters[k] + tasks[shares[k].popleft()] / (rates.products * speeds[worker])
        finished = max(finished, done)
        heapq.heappush(free, (done, worker))
    return finished + rates.end_s


def efficiency(p: Product, speeds: Sequence[float], rates: Rates) -> float:
    """The share of all cores' rate that a product gets, where one core that runs it alone gets 1."""
    alone = region_s(list(tasks_of(p, make_grid(p, 1), rates.load_rows)), [1.0], rates)
    grid = make_grid(p, len(speeds))
    return alone / (region_s(list(tasks_of(p, grid, rates.load_rows)), speeds, rates) * sum(speeds))


def gain(fast: int, slow: Sequence[float], rates: Rates) -> float:
    """How many times as fast all cores of a hybrid CPU are as its fast ones alone: the geometric mean over PRODUCTS."""
    everyone, chosen = [1.0] * fast + list(slow), [1.0] * fast
    ratios = [
        efficiency(p, everyone, rates) * sum(everyone) / (efficiency(p, chosen, rates) * sum(chosen)) for p in PRODUCTS
    ]
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


MACHINES: dict[str, tuple[float, ...]] = {
    "2": (1.0,) * 2,
    "16": (1.0,) * 16,
    "64": (1.0,) * 64,
    "8P+8E": (1.0,) * 8 + (0.4,) * 8,
    "15 and a busy one": (1.0,) * 15 + (0.5,),
}
"""Cores by their speeds; the caller is on the fastest."""

HYBRIDS: dict[str, tuple[int, tuple[float, ...]]] = {
    "8 and 16 at 0.4": (8, (0.4,) * 16),
    "8 and 8 at 0.4": (8, (0.4,) * 8),
    "8 and 4 at 0.4": (8, (0.4,) * 4),
    "6 and 8 at 0.4": (6, (0.4,) * 8),
    "2 and 8 at 0.4": (2, (0.4,) * 8),
    "4 and 4 at 0.5": (4, (0.5,) * 4),
    "4 and 4 at 0.25": (4, (0.25,) * 4),
}
"""CPUs with cores of two kinds: how many fast ones, and the speeds of the others."""


def shares(rates: Rates) -> Table:
    """For each product and machine: the share of all cores' rate that it gets, and its tasks."""
    table = Table(title=f"share of all cores' rate, and tasks; loading B takes {rates.load_rows} rows")
    table.add_column("product")
    for name in MACHINES:
        table.add_column(name, justify="right")
    for p in PRODUCTS:
        cells = []
        for speeds in MACHINES.values():
            grid = make_grid(p, len(speeds))
            cells.append(f"{efficiency(p, speeds, rates):.0%} {-(-grid.units // grid.units_per_task):4d}")
        table.add_row(f"{p.name}  {p.batches}x{p.m}x{p.n}x{p.k}", *cells)
    return table


def gains(rates: Rates) -> Table:
    """For each hybrid CPU: how many times as fast all cores are as the fast ones."""
    table = Table(title="all cores, times as fast as the fast ones alone")
    table.add_column("cores")
    table.add_column("gain", justify="right")
    for name, (fast, slow) in HYBRIDS.items():
        table.add_row(name, f"{gain(fast, slow, rates):.2f}")
    return table


@click.command()
@click.option("--load-rows", default=0, show_default=True, help="Rows of arithmetic that reading weights takes.")
def main(load_rows: int) -> None:
    """Prints how products fare on machines with more cores than this one, and what slow cores of hybrid CPUs gain."""
    rates = Rates(load_rows=load_rows)
    console = Console(width=160)
    console.print(shares(rates))
    console.print(gains(rates))


if __name__ == "__main__":
    main()
