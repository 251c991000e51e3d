"""The one error of reading a bundle."""

from __future__ import annotations


class LoadError(Exception):
    """A bundle that is refused: `where` names the file or member and the field, `problem` says what is wrong there."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(f"{where}: {problem}" if where else problem)
        self.problem = problem
        self.where = where

    def within(self, outer: str) -> LoadError:
        """The same error with `outer` before its place."""
        return LoadError(self.problem, f"{outer}: {self.where}" if self.where else outer)


class OutputError(Exception):
    """A bundle that cannot be written where it was asked for."""
