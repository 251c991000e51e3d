"""Reading a manifest: canonical JSON in, Manifest out, everything else refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from hardtack.codegen.ir.types import COMPLEX, DType
from hardtack.codegen.package import canonical
from hardtack.codegen.package.canonical import INT64_MAX, Fields, check_int, check_text, kind_of
from hardtack.codegen.package.content import Tree, UserKernelContent
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.manifest import (
    COMPLEX_SINCE,
    FORMATS,
    USER_KERNELS_SINCE,
    WRITTEN_SINCE,
    ConstantSpec,
    Dim,
    EntrySpec,
    Manifest,
    MemberSpec,
    ParameterSpec,
    Signature,
    StateSpec,
    SymSpec,
    TargetSpec,
    TensorSpec,
    row_major_problem,
)
from hardtack.codegen.package.recipe_read import check_recipes, fits, read_recipe
from hardtack.codegen.package.trust import is_model_name

WHERE = "manifest.json"
_DTYPES = tuple(d.value for d in DType)
_PARTS = {name: part for part, name in COMPLEX.items()}
"""Complex type -> the type of its parts."""
_MAX_SIZE = 2**48
_MAX_RANK = 64
_NAME = re.compile(r"[A-Za-z0-9._:-]+\Z")
_GPUS = {
    "cuda": (re.compile(r"sm_[0-9]{2,3}\Z"), "sm_<number>"),
    "hip": (re.compile(r"gfx[0-9a-f]{3,4}\Z"), "gfx<number>"),
}
"""Kind of GPU -> its architectures, and the form of their names."""


def parse(data: bytes) -> Manifest:
    """The manifest in `data`. Raises LoadError."""
    document = canonical.loads(data, WHERE)
    top = Fields(document, WHERE)
    version = top.integer("format")
    if version not in FORMATS:
        top.refuse(f"is {version}; this reader knows formats {FORMATS[0]} to {FORMATS[-1]}", "format")
    manifest = Manifest(
        format=version,
        producer=top.text_map("producer"),
        numerics=top.text_map("numerics"),
        targets=tuple(_target(f) for f in top.each("targets")),
        entries=tuple(_entry(f, version) for f in top.each("entries")),
        states=tuple(_state(f) for f in top.each("states")),
        constants=tuple(_constant(f) for f in top.each("constants")),
        parameters=tuple(_parameter(f) for f in top.each("parameters")),
        members=tuple(_member(f) for f in top.each("members")),
        external=_external(top),
        signature=_signature(top),
        user_kernels=_user_kernels(top, version),
    )
    top.done()
    _check_dtypes(manifest)
    _check_references(manifest)
    return manifest


def _user_kernels(top: Fields, version: int) -> tuple[UserKernelContent, ...]:
    """From format 3 on; earlier ones do not know the key."""
    if version < USER_KERNELS_SINCE:
        return ()
    found: list[UserKernelContent] = []
    for f in top.each("user_kernels"):
        found.append(UserKernelContent(f.text("op"), f.text("function"), f.boolean("host")))
        f.done()
        if len(found) > 1 and found[-2].op >= found[-1].op:
            _refuse(f"the kernel of op {found[-1].op!r} is out of order")
    return tuple(found)


def _target(f: Fields) -> TargetSpec:
    target = TargetSpec(_name(f), f.text("device"), f.all("requires", check_text), f.optional_text("library"))
    f.done()
    return target


def _name(f: Fields) -> str:
    """The name of an entry point or a target: it becomes a part of member names."""
    name = f.text("name")
    if not _NAME.match(name):
        f.refuse(f"is {name!r}; it must be of the characters A-Z a-z 0-9 . _ : -", "name")
    return name


def _entry(f: Fields, version: int) -> EntrySpec:
    name = _name(f)
    syms = tuple(_sym(x) for x in f.each("syms"))
    inputs = tuple(_tensor(x, version >= WRITTEN_SINCE) for x in f.each("inputs"))
    outputs = tuple(_tensor(x) for x in f.each("outputs"))
    in_tree = _tree(f, "in_tree", len(inputs))
    out_tree = _tree(f, "out_tree", len(outputs))
    args = in_tree.get("items")
    if in_tree["kind"] != "tuple" or [x["kind"] for x in args or ()] != ["tuple", "dict"]:  # type: ignore[attr-defined]
        f.refuse("is not a tuple of a tuple (args) and a dict (kwargs)", "in_tree")
    entry = EntrySpec(name, syms, inputs, outputs, in_tree, out_tree, f.text_map("plans"))
    f.done()
    return entry


def _sym(f: Fields) -> SymSpec:
    lo = f.integer("lo", 0)
    hi = f.optional_integer("hi", lo)
    sym = SymSpec(f.text("name"), lo, hi)
    f.done()
    return sym


def _tensor(f: Fields, may_be_written: bool = False) -> TensorSpec:
    shape, strides = f.all("shape", _dim), f.all("strides", _dim)
    if len(shape) > _MAX_RANK:
        f.refuse(f"has {len(shape)} dimensions; at most {_MAX_RANK} are known", "shape")
    if len(strides) != len(shape):
        f.refuse(f"has {len(strides)} strides for {len(shape)} dimensions")
    dtype, is_complex = _port_dtype(f)
    written = may_be_written and f.boolean("written")
    tensor = TensorSpec(f.text("name"), dtype, shape, strides, is_complex, written)
    f.done()
    return tensor


def _port_dtype(f: Fields) -> tuple[DType, bool]:
    """The type of an input, output or state: of complex numbers that of their parts, and True."""
    name = f.choice("dtype", (*_DTYPES, *_PARTS))
    return (_PARTS[name], True) if name in _PARTS else (DType(name), False)


def _dim(value: object, where: str, path: str) -> Dim:
    if isinstance(value, str):
        return check_text(value, where, path)
    return check_int(value, where, path, 0, _MAX_SIZE)


def _shape(f: Fields) -> tuple[int, ...]:
    shape = f.all("shape", lambda v, w, p: check_int(v, w, p, 0, _MAX_SIZE))
    if len(shape) > _MAX_RANK:
        f.refuse(f"has {len(shape)} dimensions; at most {_MAX_RANK} are known", "shape")
    return shape


def _state(f: Fields) -> StateSpec:
    dtype, is_complex = _port_dtype(f)
    state = StateSpec(f.text("name"), dtype, _shape(f), f.optional_text("init"), is_complex)
    f.done()
    return state


def _constant(f: Fields) -> ConstantSpec:
    dtype = DType(f.choice("dtype", _DTYPES))
    constant = ConstantSpec(f.text("name"), dtype, _shape(f), f.text("file"), f.text("tensor"), read_recipe(f))
    f.done()
    return constant


def _parameter(f: Fields) -> ParameterSpec:
    dtype = DType(f.choice("dtype", _DTYPES))
    shape, aliases = _shape(f), f.all("aliases", check_text)
    if not fits(shape, dtype):
        f.refuse("is of 2^48 bytes or more", "shape")
    if list(aliases) != sorted(set(aliases)):
        f.refuse("are not in order, or one stands twice", "aliases")
    parameter = ParameterSpec(f.text("name"), dtype, shape, aliases)
    f.done()
    return parameter


def _hex(f: Fields, key: str, nbytes: int) -> str:
    text = f.text(key)
    if not re.fullmatch(f"[0-9a-f]{{{2 * nbytes}}}", text):
        f.refuse(f"is not {2 * nbytes} lower-case hexadecimal digits", key)
    return text


def _member(f: Fields) -> MemberSpec:
    member = MemberSpec(f.text("name"), f.integer("nbytes", 0, INT64_MAX), _hex(f, "sha256", 32))
    f.done()
    return member


def _external(top: Fields) -> MemberSpec | None:
    if top.raw("external") is None:
        return None
    f = Fields(top.raw("external"), WHERE, "external")
    name = f.text("name")
    if not name.endswith(".safetensors") or "/" in name or len(name.encode()) > 255:
        f.refuse(f"is {name!r}; it must be the name of a .safetensors file, without a folder", "name")
    return _member(f)


def _signature(top: Fields) -> Signature | None:
    raw = top.raw("signature")
    if raw is None:
        return None
    f = Fields(raw, WHERE, "signature")
    signature = Signature(f.choice("algorithm", ("ed25519",)), _hex(f, "public_key", 32), _hex(f, "value", 64))
    if f.has("model") or f.has("version"):
        signature = replace(signature, model=f.text("model"), version=f.integer("version", 0))
        if not is_model_name(f.text("model")):
            f.refuse(f"is {signature.model!r}; it must be 1 to 255 of the characters A-Z a-z 0-9 . _ : / -", "model")
    f.done()
    return signature


def _tree(f: Fields, key: str, leaves: int) -> Tree:
    """A tree whose leaves are 0 .. leaves-1, each once."""
    tree = f.raw(key)
    found: list[int] = []
    path = f"{f.path}.{key}"
    _check_tree(Fields(tree, WHERE, path), found)
    if sorted(found) != list(range(leaves)):
        f.refuse(f"has the leaves {sorted(found)}; it must have 0 to {leaves - 1}, each once", key)
    assert isinstance(tree, dict)
    return tree


def _check_tree(f: Fields, leaves: list[int]) -> None:
    kind = f.choice("kind", ("leaf", "none", "const", "float", "tuple", "list", "namedtuple", "dict"))
    if kind == "leaf":
        leaves.append(f.integer("index", 0))
    elif kind == "const":
        value = f.raw("value")
        if not isinstance(value, (bool, int, str)):
            f.refuse(f"is {kind_of(value)}; it must be a number, a string or a bool", "value")
    elif kind == "float":
        _check_float(f)
    elif kind != "none":
        _check_names(f, kind)
        for item in f.each("items"):
            _check_tree(item, leaves)
    f.done()


def _check_float(f: Fields) -> None:
    text = f.text("text")
    try:
        same = repr(float(text)) == text
    except ValueError:
        same = False
    if not same:
        f.refuse(f"is {text!r}, which is not how Python writes a float", "text")


def _check_names(f: Fields, kind: str) -> None:
    key = {"dict": "keys", "namedtuple": "fields"}.get(kind)
    if kind == "namedtuple":
        f.text("name")
    if key is None:
        return
    names = f.all(key, _dict_key if kind == "dict" else check_text)
    if len(set(names)) != len(names):
        f.refuse("names one item twice", key)
    if len(names) != len(f.items("items")):
        f.refuse(f"has {len(names)} {key} for {len(f.items('items'))} items")


def _dict_key(value: object, where: str, path: str) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return check_text(value, where, path)


def _refuse(problem: str) -> NoReturn:
    raise LoadError(problem, WHERE)


def _check_unique(what: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            _refuse(f"two {what} are named {name!r}")
        seen.add(name)


def _check_dtypes(m: Manifest) -> None:
    """Each element type is one of the format's."""
    rows: list[TensorSpec | StateSpec | ConstantSpec | ParameterSpec] = [*m.states, *m.constants, *m.parameters]
    for row in rows + [t for e in m.entries for t in (*e.inputs, *e.outputs)]:
        if row.dtype.since > m.format:
            _refuse(f"{row.name!r} is {row.dtype}, which came with format {row.dtype.since}; its own is {m.format}")
    ports: list[StateSpec | TensorSpec] = [*m.states, *(t for e in m.entries for t in (*e.inputs, *e.outputs))]
    for port in ports:
        if port.complex and m.format < COMPLEX_SINCE:
            _refuse(f"{port.name!r} is {port.type_name}, which came with format {COMPLEX_SINCE}; its own is {m.format}")


def _check_references(m: Manifest) -> None:
    """Names are unique and what is named exists; docs/package.md says what names what."""
    named: tuple[tuple[str, Sequence[str]], ...] = (
        ("targets", [t.name for t in m.targets]),
        ("entry points", [e.name for e in m.entries]),
        ("states", [s.name for s in m.states]),
        ("constants", [c.name for c in m.constants]),
        ("parameters", [p.name for p in m.parameters]),
        ("members", [x.name for x in m.members]),
    )
    for what, names in named:
        _check_unique(what, names)
    if not m.entries:
        _refuse("there is no entry point")
    if not m.targets:
        _refuse("there is no target")
    for what, rows in (("constants", m.constants), ("parameters", m.parameters)):
        listed = [row.name for row in rows]
        if listed != sorted(listed):
            _refuse(f"{what} are not in the order of their names")
    _check_links(m, {x.name for x in m.members})


def _check_links(m: Manifest, members: set[str]) -> None:
    targets = {t.name for t in m.targets}
    by_name = {c.name: c for c in m.constants}
    for e in m.entries:
        for what, names in (
            ("symbols", [s.name for s in e.syms]),
            ("inputs", [t.name for t in e.inputs]),
        ):
            _check_unique(f"{what} of entry point {e.name!r}", names)
        for output in e.outputs:
            what = f"output {output.name!r} of entry point {e.name!r}"
            if problem := row_major_problem(what, _known(output.shape), _known(output.strides)):
                _refuse(problem)
        if set(e.plans) != targets:
            _refuse(f"entry point {e.name!r} has plans for {sorted(e.plans)}; the targets are {sorted(targets)}")
    for t in m.targets:
        arch, form = _GPUS.get(t.device, (None, ""))
        if arch is not None and (t.library is not None or len(t.requires) != 1 or not arch.match(t.requires[0])):
            _refuse(f"target {t.name!r} is for {t.device}: it requires one {form} and has no library")
    for s in m.states:
        init = by_name.get(s.init) if s.init is not None else None
        if s.init is not None and init is None:
            _refuse(f"state {s.name!r} starts from constant {s.init!r}, which does not exist")
        if init is not None and (init.dtype, init.shape) != (s.dtype, s.stored().shape):
            _refuse(f"state {s.name!r} and its constant {s.init!r} differ in dtype or shape")
    check_recipes(m.constants, m.parameters)
    _check_members(m, members, lambda problem: _refuse(problem))


def _known(dims: Sequence[Dim]) -> list[int | None]:
    return [n if isinstance(n, int) else None for n in dims]


def _check_members(m: Manifest, members: set[str], refuse: Callable[[str], NoReturn]) -> None:
    """Every member is referred to, but for debug/, and every reference has a member of the right group.

    What lies under kernels/ is referred to by plans.
    """
    used: set[str] = set()
    references = [(f"target {t.name!r}", t.library, "lib/") for t in m.targets if t.library is not None]
    references += [(f"entry point {e.name!r}", p, "plans/") for e in m.entries for _, p in sorted(e.plans.items())]
    for who, member, prefix in references:
        if not member.startswith(prefix):
            refuse(f"{who} names the member {member!r}, which is not under {prefix}")
        if member not in members:
            refuse(f"{who} names the member {member!r}, which is not listed")
        used.add(member)
    external = {m.external.name} if m.external is not None else set()
    if external & members:
        refuse(f"the external file {min(external)!r} has the name of a member")
    for c in m.constants:
        if not c.file.endswith(".safetensors") or c.file not in members | external:
            refuse(f"constant {c.name!r} names the file {c.file!r}, which is not a listed .safetensors member")
        used.add(c.file)
    if not external <= used:
        refuse(f"the external file {min(external)!r} holds no constant")
    for member in sorted(members - used):
        if not member.startswith(("debug/", "kernels/")):
            refuse(f"member {member!r} belongs to nothing")
