"""Progress of an export on a terminal; silence anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_TITLES = {
    "quantise": "quantise weights",
    "capture": "capture and convert",
    "generate": "generate kernels",
    "compile": "compile kernels",
    "write": "write and verify",
    "tune": "time kernels",
}


class Stages:
    """Times the stages of an export and shows them. A stage begins when it is first reported and ends with the next."""

    def __init__(self, shown: Progress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._shown = shown
        self._tasks: dict[str, TaskID] = {}
        self._current = ""
        self._since = 0.0

    def report(self, stage: str, done: int, total: int) -> None:
        """Stage `stage` has finished `done` of `total` parts; total 0: it has no parts to count."""
        if stage != self._current:
            self.finish()
            self._current, self._since = stage, time.perf_counter()
        if self._shown is None:
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._shown.add_task(_TITLES.get(stage, stage), total=total or None)
        self._shown.update(self._tasks[stage], completed=done, total=total or None)

    def finish(self) -> None:
        """Ends the current stage."""
        if not self._current:
            return
        elapsed = time.perf_counter() - self._since
        self.seconds[self._current] = self.seconds.get(self._current, 0.0) + elapsed
        if self._shown is not None:
            task = self._tasks[self._current]
            total = self._shown.tasks[task].total or 1
            self._shown.update(task, completed=total, total=total)
        self._current = ""


@contextmanager
def stages(show: bool | None = None) -> Iterator[Stages]:
    """Stages shown on standard error; show None: when that is a terminal."""
    if show is None:
        show = sys.stderr.isatty()
    if not show:
        made = Stages(None)
        yield made
        made.finish()
        return
    columns = (
        SpinnerColumn(finished_text="[green]ok"),
        TextColumn("{task.description:<20}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        made = Stages(progress)
        yield made
        made.finish()
