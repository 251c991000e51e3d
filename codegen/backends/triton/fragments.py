"""Whether Triton laid out values as kernels with instructions of tensor cores in their text need it.

`mma.sync` takes what each lane of a warp holds. A kernel's text says it by tensors of a number for each thread; that
Triton gives number 32 w + k to lane k of a warp is its choice, and another one would be wrong numbers in silence. So
the layout is read in what it made: in its intermediate representation each operand's type names it.

This file is read by worker.py, which has nothing of Hardtack on its path.
"""

from __future__ import annotations

import re

_USE = re.compile(r'elementwise_inline_asm "mma\.sync[^"]*" \{.*?\} .*?: (?P<types>.*?) loc\(', re.DOTALL)
_TENSOR = re.compile(r"tensor<(?P<sizes>[0-9x]+)x[a-z]+[0-9]+, (?P<layout>#.*?)>(?=,| ->|$|\))")
_NAMED = re.compile(r"^(#\w+) = (#ttg\.\w+<.*>)$", re.MULTILINE)
_BLOCKED = re.compile(
    r"sizePerThread = \[1(?:, \d+)*\], threadsPerWarp = \[32(?:, 1)*\], warpsPerCTA = \[\d+(?:, 1)*\]"
)
_LINEAR = re.compile(r"lane = \[\[1\], \[2\], \[4\], \[8\], \[16\]\]")


def count_fragments(ttgir: str) -> int:
    """How many instructions of tensor cores the text has. Raises ValueError where an operand is not [threads], of each
    32 numbers the k-th in lane k."""
    layouts = dict(_NAMED.findall(ttgir))
    count = 0
    for use in _USE.finditer(ttgir):
        count += 1
        tensors = list(_TENSOR.finditer(use["types"]))
        if not tensors:
            raise ValueError(f"no layout is known for an instruction of tensor cores: {use[0]}")
        for tensor in tensors:
            layout = _resolved(tensor["layout"], layouts)
            threads = tensor["sizes"].isdecimal() and int(tensor["sizes"]) % 32 == 0
            if not threads or not (_BLOCKED.search(layout) or _LINEAR.search(layout)):
                raise ValueError(f"Triton gave what tensor cores take to other lanes: {tensor[0]}, {layout}")
    if count != ttgir.count("mma.sync"):
        raise ValueError(f"{ttgir.count('mma.sync')} instructions of tensor cores in the text, {count} were read")
    return count


def _resolved(layout: str, layouts: dict[str, str]) -> str:
    """A layout's definition; of a slice its parent's, if what is sliced off is not the first dimension."""
    while layout in layouts or layout.startswith("#ttg.slice"):
        if layout in layouts:
            layout = layouts[layout]
            continue
        found = re.fullmatch(r"#ttg\.slice<\{dim = ([1-9]\d*), parent = (#.*)\}>", layout)
        if found is None:
            break
        layout = found[2]
    return layout
