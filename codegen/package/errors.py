"""The errors of reading, writing, signing and changing bundles."""

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
    """A file that cannot be written where it was asked for."""


class ReplaceError(Exception):
    """Values that cannot stand in for a bundle's: an unknown name, another dtype or shape, one name of two."""


class KeyFileError(Exception):
    """A file or text that is not the key that it should be."""
