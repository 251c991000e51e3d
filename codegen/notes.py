"""What nobody foresaw: where the compiler was, as notes on the exception, and the error that says that it is a bug."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def noted(task: str, subject: object) -> Iterator[None]:
    """Inside, an exception gets the note `<task> <subject>`; the innermost comes first."""
    try:
        yield
    except Exception as error:
        error.add_note(f"{task} {subject}")
        raise


class InternalError(Exception):
    """A bug of Hardtack, not of the model or its inputs. The cause is chained, and its notes are
    shown; `where` is the user's line, if known. `what` is all that without the request to report it.
    """

    def __init__(self, task: str, error: Exception, where: object = None) -> None:
        self.where = where
        text = " ".join(str(error).split())[:400]
        lines = [f"{task} failed with {type(error).__name__}: {text}"]
        if where is not None:
            lines.append(f"  at {where}")
        lines += [f"  {note}" for note in getattr(error, "__notes__", ())]
        self.what = "\n".join(lines)
        super().__init__(f"{self.what}\n  This is a bug of Hardtack: please report it with the traceback above")


@contextlib.contextmanager
def ours(task: str, *known: type[Exception]) -> Iterator[None]:
    """Inside, an exception that no part of Hardtack has made for the user becomes an InternalError; `known` are those
    that have been.
    """
    said: tuple[type[Exception], ...] = (InternalError, OSError, MemoryError, *known)
    try:
        yield
    except said:
        raise
    except Exception as error:
        raise InternalError(task, error) from error
