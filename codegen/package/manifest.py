"""The manifest: what a bundle holds and what its entry points take and give (docs/package.md, "manifest.json")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from hardtack.codegen.ir.constants import Recipe, View
from hardtack.codegen.ir.expr import Const, Expr, to_text
from hardtack.codegen.ir.types import COMPLEX, DType
from hardtack.codegen.package import canonical
from hardtack.codegen.package.content import (
    BundleContent,
    EntryContent,
    TensorContent,
    Tree,
    UserKernelContent,
    plan_member,
)

FORMATS = (1, 2, 3, 4, 5)
"""Those that are read. A bundle has the lowest that holds its element types, users' kernels, reads of sizes, complex
numbers and inputs that are written."""
USER_KERNELS_SINCE = 3
"""The first format that has users' kernels."""
READS_SINCE = 4
"""The first format whose plans read sizes during a run."""
COMPLEX_SINCE = 4
"""The first format that has complex numbers."""
WRITTEN_SINCE = 5
"""The first format whose entry points say which inputs they write to."""
WEIGHTS = "weights.safetensors"
Dim = int | str
"""A size or stride: a number, or an expression over the entry's symbols as text."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of an entry point; `strides` in elements. complex: elements are complex numbers, and dtype is
    that of their parts. written: of an input, that runs write to the caller's memory."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    complex: bool = False
    written: bool = False

    @property
    def type_name(self) -> str:
        """The element type as the manifest names it."""
        return _type_name(self.dtype, self.complex)

    def stored(self) -> TensorSpec:
        """As plans have it: of complex numbers the parts, as a last dimension of 2."""
        if not self.complex:
            return self
        strides = tuple(2 * s if isinstance(s, int) else f"2*({s})" for s in self.strides)
        return TensorSpec(self.name, self.dtype, (*self.shape, 2), (*strides, 1), written=self.written)


def _type_name(dtype: DType, is_complex: bool) -> str:
    return COMPLEX[dtype] if is_complex else dtype.value


def row_major_problem(output: str, shape: Sequence[int | None], strides: Sequence[int | None]) -> str:
    """What is wrong with the strides of an output, "" if nothing is; None: not known, and left to whoever knows it.

    Whoever takes an output takes numel elements one after the other, whatever its strides say.
    """
    step = 1
    for d in reversed(range(len(shape))):
        stride, size = strides[d], shape[d]
        if stride is not None and stride != step:
            return f"{output} has the stride {stride} in dimension {d}, not {step}: outputs are dense and row-major"
        if size is None:
            break
        step *= size
    return ""


@dataclass(frozen=True)
class SymSpec:
    """A symbol and its inclusive bounds; hi None: no upper bound."""

    name: str
    lo: int
    hi: int | None

    def __str__(self) -> str:
        return f"{self.lo} <= {self.name}" + ("" if self.hi is None else f" <= {self.hi}")


@dataclass(frozen=True)
class EntrySpec:
    """An entry point; `plans` maps target names to members."""

    name: str
    syms: tuple[SymSpec, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    in_tree: Tree
    out_tree: Tree
    plans: Mapping[str, str]


@dataclass(frozen=True)
class TargetSpec:
    """`library`: the member of its native code, None for a target without kernels."""

    name: str
    device: str
    requires: tuple[str, ...]
    library: str | None


@dataclass(frozen=True)
class StateSpec:
    """A state. complex: as of a TensorSpec."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    init: str | None
    complex: bool = False

    @property
    def type_name(self) -> str:
        """The element type as the manifest names it."""
        return _type_name(self.dtype, self.complex)

    def stored(self) -> StateSpec:
        """As plans have it: of complex numbers the parts, as a last dimension of 2."""
        return StateSpec(self.name, self.dtype, (*self.shape, 2), self.init) if self.complex else self


@dataclass(frozen=True)
class ParameterSpec:
    """A tensor of the module that can be replaced; `aliases`: other names that it has there."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class ConstantSpec:
    """A constant: tensor `tensor` of the file `file`, a member or the external one, seen with `shape`.

    recipe: how its parts are made of parameters; empty for a constant that cannot be replaced.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    file: str
    tensor: str
    recipe: tuple[Recipe, ...]


@dataclass(frozen=True)
class MemberSpec:
    """A member, or the external weights file; `sha256` in hex."""

    name: str
    nbytes: int
    sha256: str


@dataclass(frozen=True)
class Signature:
    """`public_key` and `value` in hex. `model` and `version`: what is signed, None for an older signature, which names
    neither.
    """

    algorithm: str
    public_key: str
    value: str
    model: str | None = None
    version: int | None = None


@dataclass(frozen=True)
class Manifest:
    """See docs/package.md."""

    format: int
    producer: Mapping[str, str]
    numerics: Mapping[str, str]
    targets: tuple[TargetSpec, ...]
    entries: tuple[EntrySpec, ...]
    states: tuple[StateSpec, ...]
    constants: tuple[ConstantSpec, ...]
    parameters: tuple[ParameterSpec, ...]
    members: tuple[MemberSpec, ...]
    external: MemberSpec | None = None
    signature: Signature | None = None
    user_kernels: tuple[UserKernelContent, ...] = ()

    @cached_property
    def constants_by_name(self) -> Mapping[str, ConstantSpec]:
        return {c.name: c for c in self.constants}

    @cached_property
    def states_by_name(self) -> Mapping[str, StateSpec]:
        return {s.name: s for s in self.states}

    @cached_property
    def entries_by_name(self) -> Mapping[str, EntrySpec]:
        return {e.name: e for e in self.entries}


def from_content(
    content: BundleContent,
    tensors: Mapping[str, str],
    members: Sequence[MemberSpec],
    external: MemberSpec | None = None,
) -> Manifest:
    """The manifest of `content`. `tensors`: constant name -> tensor name in the weights, a member or `external`."""
    file = external.name if external is not None else WEIGHTS
    names = [t.name for t in content.targets]
    constants = dict(content.constants)
    return Manifest(
        format=_format(content),
        producer=dict(content.producer),
        numerics=dict(content.numerics),
        targets=tuple(TargetSpec(t.name, t.device, t.requires, t.library_member) for t in content.targets),
        entries=tuple(_entry_spec(e, names) for e in content.entries),
        states=tuple(StateSpec(s.name, s.dtype, s.shape, s.init, s.complex) for s in content.states),
        constants=tuple(
            ConstantSpec(name, c.dtype, c.array.shape, file, tensors[name], content.recipes.get(name, ()))
            for name, c in sorted(constants.items())
        ),
        parameters=tuple(
            ParameterSpec(name, p.dtype, p.shape, p.aliases) for name, p in sorted(content.parameters.items())
        ),
        members=tuple(members),
        external=external,
        user_kernels=content.user_kernels,
    )


def _format(content: BundleContent) -> int:
    """The lowest format that has every element type of `content`: each that a session meets is that of a plan's value.
    A tensor of the module that nothing reads any more has its own. Users' kernels, reads of sizes, complex numbers and
    inputs that are written have one, too.
    """
    if any(t.written for e in content.entries for t in e.inputs):
        return WRITTEN_SINCE
    if any(s.input is None for plan in content.plans.values() for s in plan.syms):
        return READS_SINCE
    if any(t.complex for e in content.entries for t in (*e.inputs, *e.outputs)) or any(
        s.complex for s in content.states
    ):
        return COMPLEX_SINCE
    if content.user_kernels:
        return USER_KERNELS_SINCE
    found = {v.dtype for plan in content.plans.values() for v in plan.values}
    found |= {p.dtype for p in content.parameters.values()} | {c.dtype for _, c in content.constants}
    found |= {t.dtype for e in content.entries for t in (*e.inputs, *e.outputs)} | {s.dtype for s in content.states}
    return max((d.since for d in found), default=FORMATS[0])


def _entry_spec(entry: EntryContent, targets: Sequence[str]) -> EntrySpec:
    return EntrySpec(
        name=entry.name,
        syms=tuple(SymSpec(s.name, s.lo, s.hi) for s in entry.syms),
        inputs=tuple(_tensor_spec(t) for t in entry.inputs),
        outputs=tuple(_tensor_spec(t) for t in entry.outputs),
        in_tree=_plain_tree(entry.in_tree),
        out_tree=_plain_tree(entry.out_tree),
        plans={t: plan_member(entry.name, t) for t in targets},
    )


def _tensor_spec(t: TensorContent) -> TensorSpec:
    return TensorSpec(t.name, t.dtype, tuple(map(_dim, t.shape)), tuple(map(_dim, t.strides)), t.complex, t.written)


def _dim(e: Expr) -> Dim:
    return e.value if isinstance(e, Const) else to_text(e)


def _plain_tree(tree: Tree) -> dict[str, object]:
    """The tree without floating-point numbers: those are kept as their shortest exact text."""
    if tree["kind"] == "const" and isinstance(tree["value"], float):
        return {"kind": "float", "text": repr(tree["value"])}
    out = dict(tree)
    if "items" in out:
        items = out["items"]
        assert isinstance(items, (list, tuple))
        out["items"] = [_plain_tree(item) for item in items]
    return out


def to_json(manifest: Manifest) -> bytes:
    """The manifest as canonical JSON."""
    return canonical.dumps(document(manifest))


def document(m: Manifest) -> dict[str, object]:
    """The manifest as what `json.dumps` takes."""
    users = [{"op": k.op, "function": k.function, "host": k.host} for k in m.user_kernels]
    return {
        **({"user_kernels": users} if m.format >= USER_KERNELS_SINCE else {}),
        "format": m.format,
        "producer": dict(m.producer),
        "numerics": dict(m.numerics),
        "targets": [
            {"name": t.name, "device": t.device, "requires": list(t.requires), "library": t.library} for t in m.targets
        ],
        "entries": [_entry_document(e, m.format) for e in m.entries],
        "states": [{"name": s.name, "dtype": s.type_name, "shape": list(s.shape), "init": s.init} for s in m.states],
        "constants": [
            {
                "name": c.name,
                "dtype": c.dtype.value,
                "shape": list(c.shape),
                "file": c.file,
                "tensor": c.tensor,
                "recipe": [_recipe_document(r) for r in c.recipe] or None,
            }
            for c in m.constants
        ],
        "parameters": [
            {"name": p.name, "dtype": p.dtype.value, "shape": list(p.shape), "aliases": list(p.aliases)}
            for p in m.parameters
        ],
        "members": [_member_document(x) for x in m.members],
        "external": m.external and _member_document(m.external),
        "signature": m.signature and signature_document(m.signature),
    }


def signature_document(s: Signature) -> dict[str, object]:
    """A signature as it stands in the manifest."""
    named = {} if s.model is None else {"model": s.model, "version": s.version}
    return {"algorithm": s.algorithm, "public_key": s.public_key, "value": s.value, **named}


def _member_document(m: MemberSpec) -> dict[str, object]:
    return {"name": m.name, "nbytes": m.nbytes, "sha256": m.sha256}


def _recipe_document(r: Recipe) -> dict[str, object]:
    return {
        "source": r.source,
        "views": [_view_document(v) for v in r.views],
        "packing": r.packing and {"kind": r.packing.kind, "params": list(r.packing.params)},
        "into": r.into and _view_document(r.into),
    }


def _view_document(v: View) -> dict[str, object]:
    return {"offset": v.offset, "shape": list(v.shape), "strides": list(v.strides)}


def _entry_document(e: EntrySpec, version: int) -> dict[str, object]:
    def tensors(specs: Sequence[TensorSpec]) -> list[dict[str, object]]:
        return [
            {"name": t.name, "dtype": t.type_name, "shape": list(t.shape), "strides": list(t.strides)} for t in specs
        ]

    inputs = tensors(e.inputs)
    if version >= WRITTEN_SINCE:
        inputs = [{**row, "written": t.written} for row, t in zip(inputs, e.inputs, strict=True)]
    return {
        "name": e.name,
        "syms": [{"name": s.name, "lo": s.lo, "hi": s.hi} for s in e.syms],
        "inputs": inputs,
        "outputs": tensors(e.outputs),
        "in_tree": e.in_tree,
        "out_tree": e.out_tree,
        "plans": dict(e.plans),
    }
