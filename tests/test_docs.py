"""The documents against the code: sentences of errors, links, files that are named."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_HOLE = "\0"


@cache
def sentences(where: str) -> str:
    """All string literals of a room, adjacent ones joined, with a hole for everything that is filled in."""
    if where == "runtime":
        files = sorted((ROOT / "runtime_cpp" / "src").glob("*.[ch]*"))
    else:
        files = [*sorted((ROOT / "export").rglob("*.py")), ROOT / "codegen" / "notes.py"]
    text = "\n".join(f.read_text(encoding="utf-8") for f in files)
    text = re.sub(r'"\s*\n\s*f?"', "", text)
    text = text.replace('\\"', '"').replace("\\n", "")
    if where == "runtime":
        return re.sub(r"%(?:lld|llu|llx|zu|[dusx])", _HOLE, text)
    return re.sub(r"\{[^{}]*\}", _HOLE, text)


def documented() -> list[tuple[str, str]]:
    """(room, sentence) of every line in an `errors` block of the contract."""
    text = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")
    found: list[tuple[str, str]] = []
    for head, body in re.findall(r"^```errors ([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found += [(head.partition(":")[0], line) for line in body.splitlines()]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_merge_was_left_half_way(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.startswith(("<<<<<<< ", ">>>>>>> ")) or line == "======="]


def test_there_are_sentences() -> None:
    assert {room for room, _ in documented()} == {"runtime", "export"}


@pytest.mark.parametrize(("room", "sentence"), documented(), ids=lambda x: x)
def test_documented_errors_exist(room: str, sentence: str) -> None:
    """A run of holes counts as one: the code may put a sentence's varying part together from several pieces."""
    wanted = re.sub(r"(?:<[^<>]*>)+", _HOLE, sentence)
    known = re.sub(f"{_HOLE}+(?: {_HOLE}+)*", _HOLE, sentences(room))
    assert re.sub(f"{_HOLE}(?: {_HOLE})*", _HOLE, wanted) in known


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_named_files_exist(page: Path) -> None:
    """Every `path/with/a.suffix` in backquotes that starts with a room of the project is a file."""
    rooms = "codegen|export|hardtack|runtime_cpp|tests|docs|examples|bench|tools"
    text = page.read_text(encoding="utf-8")
    for name in re.findall(rf"`((?:{rooms})/[\w./-]+\.\w+)`", text):
        assert (ROOT / name).is_file(), f"{page.name} names {name}"


def test_every_decision_record_has_its_three_parts() -> None:
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [r.name[:4] for r in records] == [f"{k:04d}" for k in range(1, len(records) + 1)]
    for record in records:
        heads = re.findall(r"^## (.*)$", record.read_text(encoding="utf-8"), re.MULTILINE)
        assert heads == ["Context", "Decision", "Consequences"], record.name
