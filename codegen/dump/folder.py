"""The dump of a compilation: every stage as a numbered text file, and one page that shows them side by side.

    <folder>/<entry>/01-graph.txt ... 07-plan.txt    in the order of the pipeline
                     decisions.txt                   every fusion taken or refused, with its reason
                     kernels/<name>.cpp              the C++ of each kernel; for a GPU target kernels/<name>.py
                     index.html                      all of it in columns, lines linked by where they come from

What is compiled for a GPU target lies below <folder>/cuda_sm_90 and so on. The same compilation writes the same bytes.
HARDTACK_DUMP names the folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hardtack.codegen.dump.links import link
from hardtack.codegen.dump.page import page
from hardtack.codegen.ir.graph import Graph, Origin
from hardtack.codegen.ir.group import Decision

VARIABLE = "HARDTACK_DUMP"


def dump_folder() -> Path | None:
    """The folder that HARDTACK_DUMP names, or None where it is unset or empty."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen) if chosen else None


def write_dump(
    folder: Path,
    entry_name: str,
    texts: Mapping[str, str],
    decisions: Sequence[Decision],
    sources: Mapping[str, str],
    origins: Sequence[Origin],
    suffix: str = "cpp",
) -> Path:
    """Write the dump of one entry point below `folder`; the path of its page.

    texts: stage -> its text, in the order of the stages. sources: kernel name -> C++, or Triton, whose files end with
    `suffix` "py". origins: as origins_of gives them. What an earlier dump of the same entry point left is replaced.
    Raises OSError where the folder can't be written.
    """
    out = folder / (re.sub(r"[^\w.-]", "_", entry_name).strip(".") or "entry")
    kernels = out / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("[0-9][0-9]-*.txt"), *kernels.glob(f"*.{suffix}")):
        old.unlink()
    for k, (stage, text) in enumerate(texts.items(), start=1):
        _write(out / f"{k:02d}-{stage}.txt", text)
    _write(out / "decisions.txt", "".join(f"{d}\n" for d in decisions))
    for name, text in sources.items():
        _write(kernels / f"{name}.{suffix}", text)
    index = out / "index.html"
    _write(index, page(entry_name, link(texts, decisions, origins)))
    return index


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def origins_of(graph: Graph) -> tuple[Origin, ...]:
    """The origins of a graph's ops, those in branches included, each once, in order."""
    return tuple(dict.fromkeys(o for o in _origins(graph) if o.op or o.file))


def _origins(graph: Graph) -> Iterator[Origin]:
    for op in graph.ops:
        yield op.origin
        for _, value in op.attrs:
            if isinstance(value, Graph):
                yield from _origins(value)
