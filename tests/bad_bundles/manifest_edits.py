"""One change to the good manifest each: what it is -> (the path of an item, its new value)."""

from __future__ import annotations

from typing import Any

DELETE = object()
DEEP: Any = 0
for _ in range(40):
    DEEP = [DEEP]

Document = dict[str, Any]
PLAN = "plans/forward.cpu:x86-64-v3.json"
EXTERNAL: Document = {"name": "b.safetensors", "nbytes": 0, "sha256": "00" * 32}
MANIFEST_EDITS: dict[str, tuple[str, object]] = {
    "format 2": ("format", 2),
    "format as text": ("format", "1"),
    "a key missing": ("numerics", DELETE),
    "an unknown key": ("surprise", 1),
    "an unknown key in an entry": ("entries/0/surprise", 1),
    "too deep": ("producer", {"a": DEEP}),
    "a name with NUL": ("producer", {"a": "b\0c"}),
    "no entry": ("entries", []),
    "no target": ("targets", []),
    "a library outside lib": ("targets/0/library", "debug/note.txt"),
    "a library that is not listed": ("targets/0/library", "lib/other.so"),
    "an unknown dtype": ("entries/1/inputs/0/dtype", "f31"),
    "a negative size": ("entries/1/inputs/0/shape/0", -3),
    "a stride missing": ("entries/1/inputs/0/strides", []),
    "a symbol with an empty range": ("entries/0/syms/0/hi", -1),
    "a leaf that does not exist": ("entries/0/in_tree/items/0/items/0/index", 1),
    "an unknown tree kind": ("entries/0/in_tree/items/0/items/0/kind", "twig"),
    "a plan for another target": ("entries/0/plans", {"cpu:none": PLAN}),
    "a plan that is not listed": ("entries/0/plans/cpu:x86-64-v3", "plans/none.json"),
    "a state from nothing": ("states/0/init", "nothing"),
    "a state of another type than its constant": ("states/0/dtype", "f64"),
    "a constant of another size than its recipe": ("constants/0/shape", [5]),
    "a constant of another dtype than its recipe": ("constants/0/dtype", "i32"),
    "a constant in no file": ("constants/0/file", "other.safetensors"),
    "a constant in no tensor": ("constants/0/tensor", "other"),
    "constants out of order": ("constants/0/name", "zzz"),
    "a member of another size": ("members/0/nbytes", 1),
    "a hash of the wrong length": ("members/2/sha256", "00"),
    "a hash in upper case": ("members/2/sha256", "A" * 64),
    "no external": ("external", DELETE),
    "an external file in a folder": ("external", EXTERNAL | {"name": "a/b.safetensors"}),
    "an external file of another kind": ("external", EXTERNAL | {"name": "b.bin"}),
    "an external file with a long name": ("external", EXTERNAL | {"name": "b" * 244 + ".safetensors"}),
    "an external file without a hash": ("external", EXTERNAL | {"sha256": "00"}),
    "an external file of -1 bytes": ("external", EXTERNAL | {"nbytes": -1}),
    "an external file named as a member": ("external", EXTERNAL | {"name": "weights.safetensors"}),
    "an external file that holds nothing": ("external", EXTERNAL),
    "no parameters": ("parameters", DELETE),
    "a parameter of too many bytes": ("parameters/0/shape", [2**24, 2**24]),
    "a parameter with no size after too many bytes": ("parameters/0/shape", [2**48, 0]),
    "a parameter of an unknown dtype": ("parameters/0/dtype", "f31"),
    "aliases out of order": ("parameters/1/aliases", ["b", "a"]),
    "an alias twice": ("parameters/1/aliases", ["a", "a"]),
    "parameters out of order": ("parameters/0/name", "zzz"),
    "a recipe missing": ("constants/0/recipe", DELETE),
    "a recipe from nothing": ("constants/0/recipe/source", "nothing"),
    "a recipe from another dtype": ("parameters/0/dtype", "i32"),
    "a recipe that makes too much": ("constants/1/recipe/views", []),
    "a recipe that makes too little": ("constants/1/recipe/views/1/shape", [2, 1]),
    "a recipe with an unknown key": ("constants/0/recipe/surprise", 1),
    "a packing without numbers": ("constants/1/recipe/packing", {"kind": "panels"}),
    "a packing of a number": ("constants/1/recipe/packing", {"kind": 1, "params": []}),
    "a view that leaves its tensor": ("constants/1/recipe/views/0/offset", 1),
    "a view that leaves the view before": ("constants/1/recipe/views/1/offset", 5),
    "a view before its tensor": ("constants/1/recipe/views/0/strides", [-1, 2]),
    "a view with strides that wrap": ("constants/1/recipe/views/0/strides", [2**62, 2**62]),
    "a view with an offset that wraps": ("constants/1/recipe/views/0/offset", 2**63 - 1),
    "a view with an offset of -1": ("constants/1/recipe/views/0/offset", -1),
    "a view of too many elements": ("constants/1/recipe/views/0", {"offset": 0, "shape": [2**46], "strides": [0]}),
    "a view with a stride too few": ("constants/1/recipe/views/0/strides", [1]),
    "an unknown signature": ("signature", {"algorithm": "rot13", "public_key": "00" * 32, "value": "00" * 64}),
    "a short signature": ("signature", {"algorithm": "ed25519", "public_key": "00" * 32, "value": "00"}),
}
