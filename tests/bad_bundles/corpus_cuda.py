"""Bad bundles for CUDA, each made from the good one of sample_cuda.py by one change; a part of corpus.cases()."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import sample_cuda
from cubin import cubin

from hardtack.codegen.package import canonical
from hardtack.codegen.package.content import BundleContent
from hardtack.codegen.package.writer import parts_of

PLAN = "plans/forward.cuda:sm_90.json"
CODE = next(iter(sample_cuda.content().kernels))
Document = dict[str, Any]
Files = dict[str, bytes]


def files_of(content: BundleContent) -> Files:
    """The members of a bundle by name, in archive order."""
    return {m.name: b"".join(bytes(c) for c in m.chunks) for m in parts_of(content).members}


def good_files() -> Files:
    """The members of the good bundle."""
    return files_of(sample_cuda.content())


def with_member(name: str, data: bytes) -> Files:
    """The good bundle with a member replaced or added."""
    return changed_member(good_files(), name, data)


def changed_member(good: Files, name: str, data: bytes) -> Files:
    """A bundle with a member replaced or added, size and hash in the manifest set right."""
    files = {**good, name: data}
    document = json.loads(files["manifest.json"])
    rows = {m["name"]: m for m in document["members"]}
    rows[name] = {"name": name, "nbytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    order = list(files)
    order.sort(key=lambda n: (n != "manifest.json", not n.startswith("plans/"), not n.startswith("kernels/"), n))
    document["members"] = [rows[n] for n in order if n != "manifest.json"]
    files["manifest.json"] = canonical.dumps(document)
    return {n: files[n] for n in order}


def with_plan(edit: Callable[[Document], None]) -> Files:
    """The good bundle with its plan edited."""
    document = json.loads(good_files()[PLAN])
    edit(document)
    return with_member(PLAN, canonical.dumps(document))


def with_manifest(edit: Callable[[Document], None]) -> Files:
    """The good bundle with its manifest edited."""
    files = good_files()
    document = json.loads(files["manifest.json"])
    edit(document)
    files["manifest.json"] = canonical.dumps(document)
    return files


def with_const(value: int, use: Callable[[Document, int], None]) -> Files:
    """The good bundle with one more constant expression; `use` gets its number."""

    def edit(plan: Document) -> None:
        plan["exprs"].append(["const", value])
        use(plan, len(plan["exprs"]) - 1)

    return with_plan(edit)


EDITS: dict[str, tuple[str, object]] = {
    "a kernel without its record": ("kernels/0/gpu", None),
    "code under another name": ("kernels/0/gpu/member", "kernels/x.cubin"),
    "code that is not there": ("kernels/0/gpu/member", f"kernels/{'0' * 32}.cubin"),
    "a function that the code lacks": ("kernels/0/gpu/function", "other"),
    "a function without a name": ("kernels/0/gpu/function", ""),
    "100 threads": ("kernels/0/gpu/threads", 100),
    "2048 threads": ("kernels/0/gpu/threads", 2048),
    "no threads": ("kernels/0/gpu/threads", 0),
    "too much shared memory": ("kernels/0/gpu/shared", 232449),
    "negative shared memory": ("kernels/0/gpu/shared", -1),
    "clusters of 17": ("kernels/0/gpu/cluster", 17),
    "clusters of 0": ("kernels/0/gpu/cluster", 0),
    "a number as a truth value": ("kernels/0/gpu/dependent", 1),
    "scratch aligned to 48": ("kernels/0/gpu/scratch_align", 48),
    "scratch of 2 GiB": ("kernels/0/gpu/scratch", 2**31),
    "an unknown parameter": ("kernels/0/gpu/args/0", ["clock"]),
    "a buffer parameter out of range": ("kernels/0/gpu/args/3", ["buffer", 3]),
    "an int parameter out of range": ("kernels/0/gpu/args/5", ["int", 1, "i32"]),
    "an int of 16 bits": ("kernels/0/gpu/args/5", ["int", 0, "i16"]),
    "a tensor map out of range": ("kernels/0/gpu/args/0", ["map", 1]),
    "a dimension of a tensor map out of range": ("kernels/0/gpu/args/1", ["map_shape", 0, 2]),
    "a parameter with too much": ("kernels/0/gpu/args/6", ["status", 0]),
    "too many parameters": ("kernels/0/gpu/args", [["status"]] * 513),
    "a block of 257": ("kernels/0/gpu/maps/0/block", [257, 4]),
    "a tensor map without dimensions": ("kernels/0/gpu/maps/0/block", []),
    "a tensor map of another dtype": ("kernels/0/gpu/maps/0/dtype", "f16"),
    "a swizzle of 4": ("kernels/0/gpu/maps/0/swizzle", 4),
    "a grid of two extents": ("body/0/grid", [0, 0]),
    "a grid out of range": ("body/0/grid/0", 99),
    "a launch without its tensor map": ("body/0/maps", []),
    "a tensor map of no buffer": ("body/0/maps/0/buffer", 3),
    "a tensor map of one dimension": ("body/0/maps/0/shape", [0]),
    "workspaces beside a grid": ("body/0/shared", 0),
}


def cases() -> Iterator[tuple[str, Files]]:
    """Every bad CUDA bundle by name, as its files."""
    for what, (path, value) in EDITS.items():

        def edit(document: Document, path: str = path, value: object = value) -> None:
            *parents, last = [int(p) if p.isdecimal() else p for p in path.split("/")]
            item: Any = document
            for p in parents:
                item = item[p]
            item[last] = deepcopy(value)

        yield f"cuda: {what}", with_plan(edit)

    def grid(axis: int) -> Callable[[Document, int], None]:
        return lambda plan, e: plan["body"][0]["grid"].__setitem__(axis, e)

    yield "cuda: a grid of -1", with_const(-1, grid(0))
    yield "cuda: a grid too wide for its clusters", with_const(2**30, grid(0))
    yield "cuda: a grid too high", with_const(65536, grid(1))
    yield "cuda: a tensor map that leaves its value", with_const(5, _wide_map)
    yield "cuda: a tensor map off its alignment", with_const(2, _moved_map)
    yield "cuda: a kernel of the CPU", with_plan(lambda p: p["kernels"][0].pop("gpu"))
    yield "cuda: a launch of the CPU", with_plan(_cpu_launch)
    yield "cuda: no requirement", with_manifest(lambda m: m["targets"][0].update(requires=[]))
    yield "cuda: a requirement of the CPU", with_manifest(lambda m: m["targets"][0].update(requires=["avx2"]))
    yield "cuda: a library", with_manifest(lambda m: m["targets"][0].update(library=PLAN))
    yield "cuda: code that is no ELF file", with_member(CODE, b"not an ELF file" * 8)
    yield "cuda: code for another architecture", with_member(CODE, cubin("scale_kernel", (), 80))
    yield "cuda: code that is cut short", with_member(CODE, good_files()[CODE][:-1])
    yield "cuda: code that no plan names", with_member(f"kernels/{'1' * 32}.cubin", good_files()[CODE])
    yield "cuda: code of a CPU", with_member(CODE, b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e" + bytes(60))


def _wide_map(plan: Document, five: int) -> None:
    """One row of 5 of the constant's 4 elements."""
    plan["body"][0]["buffers"][0] = 1
    one = next(i for i, e in enumerate(plan["exprs"]) if e == ["const", 1])
    plan["exprs"].append(["const", 64])
    plan["body"][0]["maps"][0] |= {"shape": [one, five], "strides": [five + 1, one]}


def _moved_map(plan: Document, two: int) -> None:
    """From the constant's third element on."""
    plan["body"][0]["buffers"][0] = 1
    one = next(i for i, e in enumerate(plan["exprs"]) if e == ["const", 1])
    plan["exprs"].append(["const", 64])
    plan["body"][0]["maps"][0] |= {"offset": two, "shape": [one, two], "strides": [two + 1, one]}


def _cpu_launch(plan: Document) -> None:
    launch = plan["body"][0]
    del launch["grid"], launch["maps"]
    launch |= {"shared": 0, "per_worker": 0}
