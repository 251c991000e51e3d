"""Jobs under a call that fails: `python faulty.py FAULTS.so FOLDER`, with LD_PRELOAD=FAULTS.so (see faults.cpp).

Each job runs in a child process of its own for each call that it makes and each way that the call can fail. Prints one
line of JSON an outcome: what became of the process, and whether the files are the old ones or the new ones.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import sample
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import hardtack
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package import signing
from hardtack.codegen.package.bundle import verify_bundle
from hardtack.codegen.package.content import ConstantData
from hardtack.codegen.package.errors import LoadError, OutputError
from hardtack.codegen.package.replace import replace_weights
from hardtack.codegen.package.writer import write_bundle

ERROR, SHORT, KILL = 0, 1, 2
RIGHT, REFUSED, NO_MEMORY, WRONG = 0, 3, 4, 5
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
CONTENT = sample.content(("x86-64-v3",))
VALUES = {"layer.scale": ConstantData(DType.F32, np.array([4.0, 3.0, 2.0, 1.0], np.float32))}

WRITES: tuple[tuple[str, int, int], ...] = (
    *(("write", ERROR, e) for e in (errno.EIO, errno.ENOSPC, errno.EINTR)),
    ("write", SHORT, 0),
    *((call, ERROR, errno.EIO) for call in ("fsync", "fchmod", "rename", "open")),
    *((call, KILL, 0) for call in ("write", "fsync", "fchmod", "rename", "open")),
)
READS: tuple[tuple[str, int, int], ...] = (
    *((call, ERROR, e) for call in ("read", "pread") for e in (errno.EIO, errno.EINTR)),
    *((call, SHORT, 0) for call in ("read", "pread")),
    *((call, ERROR, errno.EIO) for call in ("open", "fstat")),
    *((call, ERROR, errno.ENOMEM) for call in ("mmap", "memfd_create")),
    ("new", ERROR, 0),
)


@dataclass(frozen=True)
class Outcome:
    """One run.

    end: "right", "refused", "no memory", "wrong" or "signal N"; files: "old", "new", "mixed: ..." or "half".
    """

    job: str
    call: str
    kind: int
    number: int
    at: int
    end: str
    text: str
    files: str
    left: tuple[str, ...]


class Faults:
    """The library that makes calls fail."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int]
        self.library.faults_disarm.restype = ctypes.c_long

    def arm(self, folder: Path, call: str, at: int, kind: int, number: int) -> None:
        self.library.faults_arm(str(folder).encode(), call.encode(), at, kind, number)

    def disarm(self) -> int:
        return int(self.library.faults_disarm())


def check(model: hardtack.Model) -> None:
    session = model.session("forward")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    first = session(x)
    assert int(first["calls"]) == 5
    assert np.array_equal(np.asarray(first["y"]), EXPECTED), first


def load(path: Path) -> None:
    check(hardtack.load(path, verify_weights=True))


def load_trusted(path: Path) -> None:
    check(hardtack.load(path, trusted_keys=[signing.public_bytes(KEY)]))


def run(path: Path) -> None:
    """Runs that fail leave the states as they were, or say that they are lost."""
    session = hardtack.load(path).session("forward")
    session.observe(lambda step: None)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for _ in range(3):
        before = int(session.read_state("calls"))
        try:
            session(x)
        except (MemoryError, hardtack.RunError):
            assert state_is_lost(session) or int(session.read_state("calls")) == before
            raise


def state_is_lost(session: hardtack.Session) -> bool:
    try:
        session.read_state("calls")
    except hardtack.RunError as error:
        return "is half written" in str(error)
    return False


JOBS: dict[str, tuple[tuple[tuple[str, int, int], ...], Callable[[Path], object]]] = {
    "write": (WRITES, lambda path: write_bundle(path, CONTENT)),
    "write with weights outside": (WRITES, lambda path: write_bundle(path, CONTENT, external=True)),
    "sign": (WRITES, lambda path: signing.sign_bundle(path, KEY)),
    "replace weights": (WRITES, lambda path: replace_weights(path, VALUES, path)),
    "load": (READS, load),
    "load a signed bundle": (READS, load_trusted),
    "load with weights outside": (READS, load),
    "verify": (READS, verify_bundle),
    "run": ((("new", ERROR, 0),), run),
}
"""What is done to the bundle m.pkg of a folder, and the calls that fail meanwhile."""


def prepare(job: str, folder: Path) -> None:
    """The files as they are before the job."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    outside = "outside" in job
    write_bundle(folder / "m.pkg", CONTENT, external=outside)
    if job.startswith("write"):
        replace_weights(folder / "m.pkg", VALUES, folder / "m.pkg")  # so that old and new differ
    elif "signed" in job:
        signing.sign_bundle(folder / "m.pkg", KEY)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if not p.name.startswith(".")}


def run_once(faults: Faults, job: str, folder: Path, at: int, fault: tuple[str, int, int]) -> tuple[str, str, int]:
    """How a child ends that does the job while call number `at` fails; its sentence; how many such calls it made."""
    call, kind, number = fault
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(readable)
        text, code = "", RIGHT
        faults.arm(folder, call, at, kind, number)
        try:
            JOBS[job][1](folder / "m.pkg")
        except MemoryError:
            code = NO_MEMORY
        except (LoadError, OutputError, hardtack.RunError) as error:
            code, text = REFUSED, str(error)
        except AssertionError:
            code, text = WRONG, traceback.format_exc()
        except BaseException as error:  # whatever else comes out is a bug
            code, text = WRONG, f"{type(error).__name__}: {error}"
        seen = faults.disarm()
        os.write(writable, json.dumps([text, seen]).encode())
        os._exit(code)
    os.close(writable)
    with open(readable, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    text, seen = json.loads(said) if said else ("", at)
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}", text, seen
    names = {RIGHT: "right", REFUSED: "refused", NO_MEMORY: "no memory"}
    return names.get(os.WEXITSTATUS(status), "wrong"), text, seen


def files_are(now: dict[str, bytes], old: dict[str, bytes], new: dict[str, bytes]) -> str:
    if now == old:
        return "old"
    if now == new:
        return "new"
    whole = all(data in (old.get(name), new.get(name)) for name, data in now.items())
    return ("mixed: new " + " ".join(n for n, data in now.items() if data == new.get(n))) if whole else "half"


def numbers(total: int) -> Iterator[int]:
    """Which calls fail, of so many: all of the first, then fewer and fewer."""
    at = 1
    while at <= total:
        yield at
        at += 1 + at // 40


def outcomes(faults: Faults, job: str, folder: Path) -> Iterator[Outcome]:
    prepare(job, folder)
    old = contents(folder)
    ended, text, _ = run_once(faults, job, folder, 0, ("", ERROR, 0))
    assert ended == "right", text
    new = contents(folder)
    for fault in JOBS[job][0]:
        prepare(job, folder)
        total = run_once(faults, job, folder, 0, fault)[2]
        for at in numbers(total):
            prepare(job, folder)
            end, text, _ = run_once(faults, job, folder, at, fault)
            left = tuple(p.name for p in folder.iterdir() if p.name.startswith("."))
            yield Outcome(job, *fault, at, end, text, files_are(contents(folder), old, new), left)


def main(library: str, folder: str) -> None:
    faults = Faults(library)
    global EXPECTED
    prepare("load", Path(folder))
    loaded = hardtack.load(Path(folder) / "m.pkg").session("forward")(np.arange(8, dtype=np.float32).reshape(2, 4))
    EXPECTED = np.asarray(loaded["y"])
    for job in JOBS:
        for outcome in outcomes(faults, job, Path(folder)):
            print(json.dumps(asdict(outcome)), flush=True)


EXPECTED = np.zeros(0, np.float32)

if __name__ == "__main__":
    main(*sys.argv[1:])
