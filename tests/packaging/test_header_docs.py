"""Every function, type and macro of the public headers is documented in a form that Doxygen takes, errors included."""

from __future__ import annotations

import re
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "runtime_cpp" / "include" / "hardtack"
PUBLIC = ("hardtack.h", "hardtack.hpp", "kernel.h", "tensor.h")


def complaints(headers: list[Path], tmp_path: Path, more: str = "") -> list[str]:
    """What Doxygen says with the project's settings; fields whose name says all need no comment."""
    settings = (ROOT / "docs" / "Doxyfile").read_text(encoding="utf-8")
    settings += (
        f"\nINPUT = {' '.join(map(str, headers))}\nOUTPUT_DIRECTORY = {tmp_path}\nWARN_IF_UNDOCUMENTED = YES\n{more}\n"
    )
    result = subprocess.run(["doxygen", "-"], cwd=ROOT, input=settings, capture_output=True, text=True, check=True)
    return [line for line in result.stderr.splitlines() if not re.search(r"Member .* \(variable\) of struct", line)]


def test_the_public_headers_are_documented(tmp_path: Path) -> None:
    assert complaints([HEADERS / name for name in PUBLIC], tmp_path) == []
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


def functions(header: Path, tmp_path: Path) -> list[tuple[str, str, str]]:
    """The type, name and whole comment of each function of a header, as Doxygen has them."""
    assert complaints([header], tmp_path, "GENERATE_XML = YES\nGENERATE_HTML = NO") == []
    found = []
    for page in (tmp_path / "xml").glob("*.xml"):
        for member in ElementTree.parse(page).iterfind(".//memberdef[@kind='function']"):
            parts = [member.find(part) for part in ("type", "briefdescription", "detaileddescription")]
            kind, *comment = ("" if part is None else " ".join("".join(part.itertext()).split()) for part in parts)
            found.append((kind, member.findtext("name", ""), " ".join(comment)))
    return found


def test_each_function_that_can_fail_says_how(tmp_path: Path) -> None:
    """With the codes that it gives, or with the function whose codes they are."""
    text = (HEADERS / "hardtack.h").read_text(encoding="utf-8")
    codes = re.findall(r"^  (HT_\w+) = \d", text.partition("typedef enum ht_code {")[2].partition("}")[0], re.MULTILINE)
    assert len(codes) == 13
    says = re.compile(rf"\b({'|'.join(codes)})\b|Otherwise as ht_\w+")
    failing = [f for f in functions(HEADERS / "hardtack.h", tmp_path) if f[0].endswith("ht_status *")]
    assert len(failing) == len(re.findall(r"^HT_API ht_status\*", text, re.MULTILINE))
    assert [name for _, name, comment in failing if not says.search(comment)] == []


def test_each_method_that_can_fail_names_the_function_that_says_how(tmp_path: Path) -> None:
    found = functions(HEADERS / "hardtack.hpp", tmp_path)
    failing = [f for f in found if re.match(r"(Status|Result ?<)", f[0])]
    assert len(failing) == 15
    assert [name for _, name, comment in failing if not re.search(r"\bht_\w+", comment)] == []
