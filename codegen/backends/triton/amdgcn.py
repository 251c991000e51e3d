"""The parameter list of a kernel for AMD GPUs, read from the metadata in its assembly.

amdhsa.kernels:
  - .agpr_count:     0
    .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .offset:         8
        .size:           4
        .value_kind:     by_value
    .group_segment_fixed_size: 0
    .symbol:         add_1f.kd
"""

from __future__ import annotations

import re

from hardtack.codegen.backends.triton.ptx import AbiError, Param

_ARGS = re.compile(r"^    \.args:\n((?:      .*\n)+)", re.MULTILINE)
_FIELD = re.compile(r"\.(\w+):\s*(\S+)")
_KINDS = ("global_buffer", "by_value")
_HIDDEN = re.compile(r"hidden_((block_count|group_size|remainder|global_offset)_[xyz]|grid_dims|dynamic_lds_size)")
"""What whoever launches a kernel knows of the launch; a kernel that asks for its grid has all of them."""
_WANTED = {"group_segment_fixed_size": "0", "wavefront_size": "64"}


def params(metadata: str) -> tuple[Param, ...]:
    """The parameters of the one kernel, in order, but for those behind them that describe the launch.

    AbiError for a text not understood, for parameters that are not one behind the other at multiples of their sizes,
    for others that are not declared (buffers for printing, a heap), and for shared memory beside that of the launch.
    """
    fields = dict(_FIELD.findall(_ARGS.sub("", metadata)))
    found = _ARGS.findall(metadata)
    if len(found) != 1 or metadata.count(".symbol:") != 1:
        raise AbiError(f"the parameters of a kernel cannot be read from its metadata:\n{metadata.strip()}")
    for name, wanted in _WANTED.items():
        if fields.get(name) != wanted:
            raise AbiError(f"a kernel's metadata says {name} {fields.get(name)}, expected {wanted}")
    out: list[Param] = []
    end, hidden = 0, False
    for number, row in enumerate(found[0].split("      - ")[1:]):
        given = dict(_FIELD.findall(row))
        kind = given.get("value_kind", "")
        hidden = hidden or kind.startswith("hidden_")
        if _HIDDEN.fullmatch(kind):
            continue
        if hidden or kind not in _KINDS:
            raise AbiError(f"parameter {number} of a kernel is {kind}, which no launch gives")
        nbytes = int(given["size"])
        begin = -(-end // nbytes) * nbytes
        if int(given["offset"]) != begin:
            raise AbiError(f"parameter {number} of a kernel is at byte {given['offset']}, expected {begin}")
        out.append(Param(nbytes))
        end = begin + nbytes
    return tuple(out)
