"""Work in child processes: what dies or hangs there ends alone, and is told from what fails.

The child is a fork of this process, so that torch is imported once. It sends what it finds through a pipe.
"""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

_FORK = multiprocessing.get_context("fork")

Send = Callable[[Any], None]
Work = Callable[[Any, Send], None]


@dataclass(frozen=True)
class Ended:
    """How a child ended: "" for well, "hang", "signal 11", "exit code 3"; what it sent."""

    task: Any
    how: str
    sent: tuple[Any, ...]
    seconds: float


@dataclass
class _Child:
    task: Any
    process: Any
    pipe: Connection
    started: float
    heard: float
    sent: list[Any] = field(default_factory=list)


def _body(work: Work, task: Any, pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    work(task, pipe.send)
    pipe.close()


class Pool:
    """Runs work(task, send) for tasks, at most `jobs` at once; one that sends nothing for `seconds` hangs.

    More tasks may be added while it runs; `on_end` is called for each that has ended.
    """

    def __init__(self, work: Work, jobs: int, seconds: float) -> None:
        self._work, self._jobs, self._seconds = work, jobs, seconds
        self._waiting: deque[Any] = deque()
        self._running: list[_Child] = []

    def add(self, tasks: Iterable[Any], *, first: bool = False) -> None:
        if first:
            self._waiting.extendleft(reversed(list(tasks)))
        else:
            self._waiting.extend(tasks)

    def stop(self) -> None:
        """Begins nothing more."""
        self._waiting.clear()

    def run(
        self,
        on_end: Callable[[Ended], None],
        until: float | None = None,
        on_sent: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """Until nothing is left, or `until` has come (of time.monotonic). On an interrupt the children are ended.

        on_sent takes what children send as it comes, on_end all of one when it has ended.
        """
        try:
            while self._waiting or self._running:
                if until is not None and time.monotonic() > until:
                    self._waiting.clear()
                    if not self._running:
                        break
                while self._waiting and len(self._running) < self._jobs:
                    self._start(self._waiting.popleft())
                for child in self._ended(on_sent):
                    on_end(child)
        finally:
            for left in self._running:
                left.process.kill()

    def _start(self, task: Any) -> None:
        here, there = _FORK.Pipe(duplex=False)
        process = _FORK.Process(target=_body, args=(self._work, task, there))
        process.start()
        there.close()
        self._running.append(_Child(task, process, here, time.monotonic(), time.monotonic()))

    def _ended(self, on_sent: Callable[[Any], None]) -> list[Ended]:
        soonest = min(c.heard for c in self._running) + self._seconds
        ready = wait([c.pipe for c in self._running], max(0.0, min(1.0, soonest - time.monotonic())))
        found: list[Ended] = []
        for child in list(self._running):
            over = time.monotonic() - child.heard > self._seconds
            if child.pipe in ready and self._receive(child):
                on_sent(child.sent[-1])
                continue
            if child.pipe in ready or over:
                found.append(self._finish(child, hang=child.pipe not in ready))
        return found

    @staticmethod
    def _receive(child: _Child) -> bool:
        """Takes one thing that the child has sent; False at the end of its pipe."""
        try:
            child.sent.append(child.pipe.recv())
            child.heard = time.monotonic()
        except (EOFError, OSError):
            return False
        return True

    def _finish(self, child: _Child, *, hang: bool) -> Ended:
        if hang:
            child.process.kill()
        child.process.join(10)
        code = child.process.exitcode
        how = (
            "hang"
            if hang
            else ""
            if code == 0
            else f"signal {-code}"
            if code is not None and code < 0
            else f"exit code {code}"
        )
        self._running.remove(child)
        child.pipe.close()
        return Ended(child.task, how, tuple(child.sent), time.monotonic() - child.started)
