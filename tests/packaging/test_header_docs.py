"""Every function, type and macro of the public headers is documented in a form that Doxygen takes."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "runtime_cpp" / "include" / "hardtack"


def complaints(headers: list[Path], tmp_path: Path) -> list[str]:
    """What Doxygen says with the project's settings; fields whose name says all need no comment."""
    settings = (ROOT / "docs" / "Doxyfile").read_text(encoding="utf-8")
    settings += f"\nINPUT = {' '.join(map(str, headers))}\nOUTPUT_DIRECTORY = {tmp_path}\n"
    result = subprocess.run(["doxygen", "-"], cwd=ROOT, input=settings, capture_output=True, text=True, check=True)
    return [line for line in result.stderr.splitlines() if not re.search(r"Member .* \(variable\) of struct", line)]


def test_the_public_headers_are_documented(tmp_path: Path) -> None:
    assert complaints([HEADERS / "hardtack.h", HEADERS / "hardtack.hpp"], tmp_path) == []
    page = (tmp_path / "html" / "classhardtack_1_1Session.html").read_text(encoding="utf-8")
    assert "one thread at a time" in page


def test_a_function_without_a_comment_is_found(tmp_path: Path) -> None:
    text = (HEADERS / "hardtack.h").read_text(encoding="utf-8")
    header = tmp_path / "hardtack.h"
    header.write_text(text.replace("/** HT_OK for NULL. */\n", ""), encoding="utf-8")
    (complaint,) = complaints([header], tmp_path)
    assert (
        "Member ht_status_code(const ht_status *status) (function) of file hardtack.h is not documented." in complaint
    )
