"""Bad bundles for AMD GPUs, each made from the good one of sample_hip.py by one change; a part of corpus.cases()."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import sample_cuda
import sample_hip
from corpus_cuda import Document, Files, changed_member, files_of
from hsaco import hsaco

from hardtack.codegen.package import canonical

PLAN = "plans/forward.hip:gfx942.json"
CODE = next(iter(sample_hip.content().kernels))


def good_files() -> Files:
    """The members of the good bundle by name, in archive order."""
    return files_of(sample_hip.content())


def with_member(name: str, data: bytes) -> Files:
    """The good bundle with a member replaced or added."""
    return changed_member(good_files(), name, data)


def with_plan(edit: Callable[[Document], Any]) -> Files:
    """The good bundle with its plan edited."""
    document = json.loads(good_files()[PLAN])
    edit(document)
    return with_member(PLAN, canonical.dumps(document))


def with_kernel(**changes: object) -> Files:
    """The good bundle with other values in its kernel's record."""
    return with_plan(lambda plan: plan["kernels"][0]["gpu"].update(changes))


def with_target(edit: Callable[[Document], Any]) -> Files:
    """The good bundle with its target edited in the manifest."""
    files = good_files()
    document = json.loads(files["manifest.json"])
    edit(document["targets"][0])
    files["manifest.json"] = canonical.dumps(document)
    return files


def with_grid(value: int) -> Files:
    """The good bundle with that many programs in x."""

    def edit(plan: Document) -> None:
        plan["exprs"].append(["const", value])
        plan["body"][0]["grid"][0] = len(plan["exprs"]) - 1

    return with_plan(edit)


def with_symbol_tables(code: bytes, n: int) -> bytes:
    """A code object whose table of symbols has n section headers."""
    (table,) = struct.unpack_from("<Q", code, 40)
    (count,) = struct.unpack_from("<H", code, 60)
    headers = code[table : table + 64 * count] + code[table + 64 : table + 128] * (n - 1)
    made = bytearray(code + bytes(-len(code) % 8) + headers)
    struct.pack_into("<Q", made, 40, len(made) - len(headers))
    struct.pack_into("<H", made, 60, count + n - 1)
    return bytes(made)


def cases() -> Iterator[tuple[str, Files]]:
    """Every bad bundle by name, as its files."""
    cubin = next(iter(sample_cuda.content().kernels))
    tensor_map = {"block": [8, 4], "swizzle": 0, "dtype": "f32"}
    yield "hip: threads of half a wave", with_kernel(threads=96)
    yield "hip: 2048 threads", with_kernel(threads=2048)
    yield "hip: too much shared memory", with_kernel(shared=65537)
    yield "hip: clusters of 2", with_kernel(cluster=2)
    yield "hip: a dependent launch", with_kernel(dependent=True)
    yield "hip: a tensor map", with_kernel(maps=[tensor_map])
    yield "hip: code for CUDA by its name", with_kernel(member=cubin)
    yield "hip: a function that the code lacks", with_kernel(function="other")
    yield "hip: more threads in x than there are", with_grid(2**24)
    yield "hip: no requirement", with_target(lambda t: t.update(requires=[]))
    yield "hip: a requirement of CUDA", with_target(lambda t: t.update(requires=["sm_90"]))
    yield "hip: a library", with_target(lambda t: t.update(library=PLAN))
    yield "hip: an architecture that no reader knows", with_target(lambda t: t.update(requires=["gfx1100"]))
    yield "hip: code that is no ELF file", with_member(CODE, b"not an ELF file" * 8)
    yield "hip: code of CUDA", with_member(CODE, sample_cuda.CODE)
    yield "hip: code for another processor", with_member(CODE, hsaco("scale_kernel", 0x3F))
    yield "hip: a function without a descriptor", with_member(CODE, hsaco("scale_kernel", descriptor_nbytes=32))
    yield "hip: code with two tables of symbols", with_member(CODE, with_symbol_tables(good_files()[CODE], 2))
    yield "hip: code that is cut short", with_member(CODE, good_files()[CODE][:-1])
    yield "hip: code that no plan names", with_member(f"kernels/{'1' * 32}.hsaco", good_files()[CODE])
    yield "hip: code of CUDA beside it", with_member(f"kernels/{'1' * 32}.cubin", sample_cuda.CODE)
