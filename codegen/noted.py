"""Where the compiler was when something failed that it did not foresee: notes on the exception, for the bug report."""

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
