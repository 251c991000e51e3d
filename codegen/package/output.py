"""Writing files at once or not at all: each beside its place, synced, then renamed over it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from hardtack.codegen.package.errors import OutputError

PathLike = str | os.PathLike[str]
Write = Callable[[BinaryIO], object]


def check_output(path: PathLike) -> Path:
    """The path of a file to write, refused now rather than after a long build. Raises OutputError."""
    out = Path(path)
    parent = out.parent
    if out.is_dir():
        raise OutputError(f"cannot write {out}: it is a directory; name a file, such as {out / 'model.pkg'}")
    if not parent.is_dir():
        raise OutputError(f"cannot write {out}: the directory {parent} does not exist")
    if out.exists() and not os.access(out, os.W_OK):
        raise OutputError(f"cannot write {out}: no permission to replace it")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {out}: no permission to write in the directory {parent}")
    return out


def write_files(
    files: Sequence[tuple[Path, Write]], check: Callable[[Sequence[Path]], None] = lambda paths: None, mode: int = 0o666
) -> None:
    """Writes every file, has `check` look at the temporary ones, and only then renames them, in order.

    mode: the permissions, less the process's umask. Raises OutputError, and what `check` raises: then nothing has
    changed. A process that dies between two renames leaves the first renamed.
    """
    temporary: list[Path] = []
    out = files[0][0]
    try:
        for out, write in files:
            handle, name = tempfile.mkstemp(prefix=f".{out.name[:200]}.", dir=out.parent)
            temporary.append(Path(name))
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
                os.fchmod(file.fileno(), mode & ~_umask())
        check(temporary)
        for (out, _), written in zip(files, temporary, strict=True):
            os.replace(written, out)
        for folder in {out.parent for out, _ in files}:
            _sync_directory(folder)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        for left in temporary:
            left.unlink(missing_ok=True)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_directory(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
