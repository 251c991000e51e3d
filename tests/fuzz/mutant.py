"""A fault put in on purpose: a few words of one file changed.

The words must be in the file exactly once, so that a mutant follows the code or is noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"hardtack": "hardtack", "export": "hardtack/exporter", "codegen": "hardtack/codegen"}
"""Folder in the project -> where a package of them has it."""


@dataclass(frozen=True)
class Mutant:
    """what: the fault in words. way: how programs are run. edits: words of the file, and what replaces them.

    calls: of a kernel template, what a kernel has in its text that may run the changed words. captures: the words run
    while a program is captured. sweep: whose programs are drawn, one of SWEEPS; random ones if there is none.
    """

    name: str
    what: str
    way: str
    file: str
    edits: tuple[tuple[str, str], ...]
    calls: str = ""
    captures: bool = False
    sweep: str = ""


def text_of(mutant: Mutant) -> str:
    """The mutant's file as it is."""
    return (ROOT / mutant.file).read_text(encoding="utf-8")


def changed(mutant: Mutant) -> str:
    """The mutant's file with its words. ValueError where those that they replace are not there once."""
    text = text_of(mutant)
    for words, others in mutant.edits:
        if text.count(words) != 1:
            raise ValueError(f"mutant {mutant.name!r}: {mutant.file} has {words!r} {text.count(words)} times, not once")
        text = text.replace(words, others)
    return text


def module_of(mutant: Mutant) -> str | None:
    """The Python module that the mutant changes; None for a kernel template."""
    if not mutant.file.endswith(".py"):
        return None
    room, _, rest = mutant.file.removesuffix(".py").partition("/")
    return f"{ROOMS[room]}/{rest}".replace("/", ".")
