"""workspace.h: the blocking numbers and formulas of codegen/lower/cpu_workspace.py as C++.

    python -m hardtack.codegen.backends.cpp.workspace_header

writes it. It is checked in, so that an installation writes nothing; a test fails where it is another than `header()`.
"""

from __future__ import annotations

from pathlib import Path

from hardtack.codegen.backends.cpp.cpp_spelling import expr
from hardtack.codegen.lower.cpu_workspace import FORMULAS, NUMBERS, Formula


def function(f: Formula) -> str:
    """A formula as a C++ function."""
    taken = ", ".join(f"int64_t {s.name}" for s in f.sizes)
    value = expr(f.value, {s: s.name for s in f.sizes}).replace("ht::", "")
    value = value[1:-1] if value.startswith("(") else value
    return f"// {f.what}\nconstexpr int64_t {f.name}({taken}) {{\n  return {value};\n}}"


def header() -> str:
    """The text of workspace.h."""
    return "\n".join(
        (
            "// Blocking numbers of the templates, and how many elements the parts of workspaces have: what a plan",
            "// asks the runtime for. Written by codegen/lower/cpu_workspace.py; change them there.",
            "#ifndef HARDTACK_TEMPLATES_WORKSPACE_H",
            "#define HARDTACK_TEMPLATES_WORKSPACE_H",
            "",
            '#include "parallel.h"',
            "",
            "namespace ht {",
            "",
            *(f"constexpr int64_t {f'{n.name} = {n.value};':26s}  // {n.what}" for n in NUMBERS),
            "",
            "// Of the machine, with the compiler's flags: codegen/machine/blocking.py.",
            "constexpr int64_t kStagedDepth = HT_STAGED_DEPTH;               // longest k block of staged rows",
            "constexpr int64_t kFloatDepth = HT_FLOAT_DEPTH;                 // of float rows",
            "constexpr int64_t kUnitNbytes = HT_UNIT_NBYTES;                 // of B that a unit multiplies with",
            "constexpr int64_t kSecondLevelNbytes = HT_SECOND_LEVEL_NBYTES;  // of a core's own cache",
            "",
            "\n\n".join(map(function, FORMULAS)),
            "",
            "}  // namespace ht",
            "",
            "#endif  // HARDTACK_TEMPLATES_WORKSPACE_H",
            "",
        )
    )


def path() -> Path:
    """Where the header lies."""
    return Path(__file__).resolve().parents[2] / "templates" / "cpp" / "workspace.h"


if __name__ == "__main__":
    path().write_text(header(), encoding="utf-8")
