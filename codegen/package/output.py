"""Writing files at once or not at all: each beside its place, synced, then renamed over it."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
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
    files: Sequence[tuple[Path, Write]],
    check: Callable[[Sequence[Path]], None] = lambda paths: None,
    private: Collection[Path] = (),
) -> None:
    """Writes every file, has `check` look at the temporary ones, and only then renames them, in order.

    private: those of the files that only their owner may read and write; others have 0666, less the process's umask.
    Raises OutputError, and what `check` raises: then nothing has changed, unless the sentence says that the files were
    written. A process that dies between two renames leaves the first renamed.
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
                os.fchmod(file.fileno(), (0o600 if out in private else 0o666) & ~_umask())
        check(temporary)
        _rename([(written, out) for (out, _), written in zip(files, temporary, strict=True)])
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        for left in temporary:
            left.unlink(missing_ok=True)
    for folder in {out.parent for out, _ in files}:
        _sync_directory(folder)


def _rename(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Renames each file over the other, in order; where one fails, or is interrupted, those before are put back."""
    before: list[Path | None] = []  # another name of what was there, for all but the last
    try:
        for _, out in pairs[:-1]:
            before.append(_link(out))
        for source, out in pairs:
            os.replace(source, out)
    except BaseException:
        if pairs[-1][0].exists():  # else all are renamed
            _put_back(pairs, before)
        _unlink(before)
        raise
    _unlink(before)


def _put_back(pairs: Sequence[tuple[Path, Path]], before: Sequence[Path | None]) -> None:
    """Undoes what was renamed. Where that fails, old contents keep their other names: they have no more than these."""
    for (source, out), old in zip(pairs, before, strict=False):
        if not source.exists():
            out.unlink() if old is None else os.replace(old, out)


def _unlink(paths: Sequence[Path | None]) -> None:
    for path in paths:
        if path is not None:
            path.unlink(missing_ok=True)


def _link(path: Path) -> Path | None:
    """Another name for a file, beside it, or a copy where the file system has no links; None where there is no file."""
    if not path.exists():
        return None
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:200]}.", dir=path.parent)
    os.close(handle)
    os.unlink(name)
    try:
        os.link(path, name)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        try:
            shutil.copy2(path, name)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    return Path(name)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_directory(folder: Path) -> None:
    """Makes renames last. Raises OutputError."""
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise OutputError(
            f"the files were written, but a power cut may undo it: cannot sync {folder}: {error.strerror or error}"
        ) from error
