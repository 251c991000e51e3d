"""An order of groups in which less memory is alive at once, for exports that have a budget.

    groups in the order of the program -> the same groups, each behind all that it must run behind

List scheduling: of the groups that may run next, the one that leaves least memory alive. It is done from the front and,
on the reversed graph, from the back; of the two orders and the program's own the one with the lowest peak is taken.
Whoever made an order, verify_grouping proves that all nests can bear it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hardtack.codegen.ir.group import Group
from hardtack.codegen.ir.nests import ReadNest


@dataclass(frozen=True)
class Job:
    """A group as it counts here. barrier: nothing changes its side. touches: buffers in memory; writes: of these."""

    touches: frozenset[str]
    writes: frozenset[str]
    barrier: bool = False


def lean_order(
    groups: Sequence[Group], nbytes: Mapping[str, int], fixed: frozenset[str], aliases: Mapping[str, str]
) -> tuple[Group, ...]:
    """nbytes: of each buffer. fixed: buffers outside of the arena. aliases: those that share the memory of another."""
    jobs = [_job(g, aliases) for g in groups]
    return tuple(groups[k] for k in order_of(jobs, {b: n for b, n in nbytes.items() if b not in fixed}))


def _job(group: Group, aliases: Mapping[str, str]) -> Job:
    reads, writes = (frozenset(aliases.get(b, b) for b in x) for x in (group.reads(), group.writes()))
    return Job(reads | writes, writes, isinstance(group.control, ReadNest))


def order_of(jobs: Sequence[Job], nbytes: Mapping[str, int]) -> list[int]:
    """The numbers of jobs in the order found. nbytes: of buffers that count."""
    before = _before(jobs)
    behind: list[set[int]] = [set() for _ in jobs]
    for k, others in enumerate(before):
        for other in others:
            behind[other].add(k)
    program = list(range(len(jobs)))
    backwards = _scheduled(jobs, behind, before, nbytes, lambda k: -k)[::-1]
    found = (program, _scheduled(jobs, before, behind, nbytes, lambda k: k), backwards)
    return min(found, key=lambda order: peak(jobs, order, nbytes))


def _before(jobs: Sequence[Job]) -> list[set[int]]:
    """For each job those that must run before it: of two that touch a buffer which one of them writes the first."""
    found: list[set[int]] = []
    for k, job in enumerate(jobs):
        found.append(
            {
                j
                for j, other in enumerate(jobs[:k])
                if job.barrier or other.barrier or other.writes & job.touches or other.touches & job.writes
            }
        )
    return found


def _scheduled(
    jobs: Sequence[Job],
    before: Sequence[set[int]],
    behind: Sequence[set[int]],
    nbytes: Mapping[str, int],
    rank: Callable[[int], int],
) -> list[int]:
    """Each time the ready job that leaves least alive; of several such the first by rank."""
    uses = _uses(jobs)
    left = [len(b) for b in before]
    ready = {k for k, n in enumerate(left) if n == 0}
    begun: set[str] = set()
    order: list[int] = []

    def grows_by(k: int) -> int:
        grown = sum(nbytes.get(b, 0) for b in jobs[k].touches - begun)
        return grown - sum(nbytes.get(b, 0) for b in jobs[k].touches if uses[b] == 1)

    while ready:
        chosen = min(ready, key=lambda k: (grows_by(k), rank(k)))
        ready.remove(chosen)
        order.append(chosen)
        begun |= jobs[chosen].touches
        for b in jobs[chosen].touches:
            uses[b] -= 1
        for other in behind[chosen]:
            left[other] -= 1
            if left[other] == 0:
                ready.add(other)
    return order


def _uses(jobs: Sequence[Job]) -> dict[str, int]:
    """buffer -> how many jobs touch it."""
    found: dict[str, int] = {}
    for job in jobs:
        for b in job.touches:
            found[b] = found.get(b, 0) + 1
    return found


def peak(jobs: Sequence[Job], order: Sequence[int], nbytes: Mapping[str, int]) -> int:
    """The largest sum of what is alive at once: from the first job that touches a buffer to the last."""
    uses, alive, most = _uses(jobs), 0, 0
    begun: set[str] = set()
    for k in order:
        alive += sum(nbytes.get(b, 0) for b in jobs[k].touches - begun)
        begun |= jobs[k].touches
        most = max(most, alive)
        for b in jobs[k].touches:
            uses[b] -= 1
            if uses[b] == 0:
                alive -= nbytes.get(b, 0)
    return most
