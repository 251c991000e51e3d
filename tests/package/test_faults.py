"""Full disks, broken ones, signals, killed processes, no memory: the old file or the new, an error or a result."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from faulty import ERROR, JOBS, KILL, SHORT, Outcome

from hardtack.codegen.package.output import write_files
from tests.support.builds import build_faults

SUPPORT = Path(__file__).resolve().parents[1] / "support"
WRITTEN = "the files were written, but a power cut may undo it: cannot sync "


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Outcome]:
    folder = tmp_path_factory.mktemp("faults")
    library = build_faults(folder)
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "faulty.py"), str(library), str(folder / "files")],
        env=os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [Outcome(**{**row, "left": tuple(row["left"])}) for row in rows]


@pytest.mark.parametrize("job", JOBS)
def test_every_call_of_a_job_failed_once(outcomes: Sequence[Outcome], job: str) -> None:
    """So that what follows is about something."""
    called = {o.call for o in outcomes if o.job == job}
    if job.startswith("write") or job in ("sign", "replace weights"):
        assert called == {"write", "fsync", "fchmod", "rename", "open"}
    elif job == "run":
        assert called == {"new"}
    elif job == "verify":
        assert {"open", "mmap"} <= called
    else:
        assert {"open", "fstat", "pread", "mmap", "memfd_create", "new"} <= called


def test_nothing_crashes_and_every_error_is_said(outcomes: Sequence[Outcome]) -> None:
    for o in outcomes:
        assert o.end in (("signal 9",) if o.kind == KILL else ("right", "refused", "no memory")), o
        assert (o.end != "no memory") or o.call == "new", o
        if o.end == "refused":
            reason = "out of memory" if o.call == "new" else os.strerror(o.number)
            assert reason.lower() in o.text.lower(), o


def test_signals_and_short_transfers_do_not_matter(outcomes: Sequence[Outcome]) -> None:
    harmless = [o for o in outcomes if o.kind == SHORT or (o.kind == ERROR and o.number == errno.EINTR)]
    assert len(harmless) > 50
    assert {o.end for o in harmless} == {"right"}


def test_a_file_is_the_old_one_or_the_new_one(outcomes: Sequence[Outcome]) -> None:
    for o in outcomes:
        killed_between = o.files == "mixed: new m.safetensors" and o.kind == KILL and o.call == "rename"
        assert o.files in ("old", "new") or killed_between, o
        if o.end == "refused":
            assert o.files == ("new" if o.text.startswith(WRITTEN) else "old"), o
        if o.end == "right" and o.job in ("sign", "replace weights", "write", "write with weights outside"):
            assert o.files == "new", o


def test_nothing_is_left_beside_it(outcomes: Sequence[Outcome]) -> None:
    for o in outcomes:
        assert not o.left or o.end == f"signal {signal.SIGKILL.value}", o


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("old", [True, False])
def test_an_interrupt_between_two_renames_puts_the_first_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, old: bool
) -> None:
    files = [tmp_path / "m.safetensors", tmp_path / "m.pkg"]
    for file in files if old else ():
        file.write_bytes(b"old")
    calls: list[str] = []

    def interrupted(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == at:
            raise KeyboardInterrupt
        os.rename(source, target)

    monkeypatch.setattr("hardtack.codegen.package.output.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_files([(file, lambda out: out.write(b"new")) for file in files])
    assert sorted(p.name for p in tmp_path.iterdir()) == (["m.pkg", "m.safetensors"] if old else [])
    assert all(file.read_bytes() == b"old" for file in tmp_path.iterdir())
