"""Writing a bundle, and reading one back with everything checked. Nothing here runs what a bundle holds."""

from __future__ import annotations

import hashlib
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hardtack.codegen.ir.plan import to_json
from hardtack.codegen.package import container, elf, manifest_read, plan_read, weights
from hardtack.codegen.package.container import Entry, Member
from hardtack.codegen.package.content import BundleContent, plan_member
from hardtack.codegen.package.errors import LoadError, OutputError
from hardtack.codegen.package.manifest import WEIGHTS, EntrySpec, Manifest, MemberSpec, from_content
from hardtack.codegen.package.manifest import to_json as manifest_json
from hardtack.codegen.package.plan_read import RawPlan
from hardtack.codegen.package.plan_verify import Proof, verify

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Written:
    """What was written: sizes in bytes."""

    path: Path
    nbytes: int
    weights_nbytes: int
    libraries_nbytes: int
    plans_nbytes: int


def check_output(path: PathLike) -> Path:
    """The path of a bundle to write, refused now rather than after a long build. Raises OutputError."""
    out = Path(path)
    parent = out.parent
    if out.is_dir():
        raise OutputError(f"cannot write {out}: it is a directory; name a file, such as {out / 'model.pkg'}")
    if not parent.is_dir():
        raise OutputError(f"cannot write {out}: the directory {parent} does not exist")
    if out.exists() and not os.access(out, os.W_OK):
        raise OutputError(f"cannot write {out}: no permission to replace it")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {out}: no permission to write in the directory {parent}")
    return out


def members_of(content: BundleContent) -> list[Member]:
    """The members of the bundle in archive order: the same content gives the same bytes."""
    tensors = weights.assign(content.constants)
    by_name = dict(content.constants)
    found = [Member(plan_member(e, t), [to_json(p)]) for (e, t), p in content.plans.items()]
    found += [Member(t.library_member, [t.library]) for t in content.targets if t.library_member and t.library]
    found += [Member(name, [data]) for name, data in content.debug.items()]
    if tensors:
        stored = {name: by_name[name] for name in set(tensors.values())}
        found.append(Member(WEIGHTS, weights.write(stored)))
    found.sort(key=lambda m: container.sort_key(m.name))
    manifest = from_content(content, tensors, [MemberSpec(m.name, m.nbytes, _sha256(m)) for m in found])
    return [Member("manifest.json", [manifest_json(manifest)]), *found]


def _sha256(member: Member) -> str:
    digest = hashlib.sha256()
    for chunk in member.chunks:
        digest.update(chunk)
    return digest.hexdigest()


def write_bundle(path: PathLike, content: BundleContent) -> Written:
    """Writes the bundle at once or not at all: a file beside `path`, synced, then renamed over it.

    Raises OutputError (the place cannot be written), ValueError (content that no bundle can hold) and LoadError (the
    content is not sound: a bug in the compiler, found by proving the bundle as a reader would).
    """
    out = check_output(path)
    members = members_of(content)
    sizes = {m.name: m.nbytes for m in members}
    try:
        handle, name = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror or error}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            nbytes = container.write_archive(file, members)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o666 & ~_umask())
        with open_bundle(temporary) as bundle:
            bundle.prove_plans()
        os.replace(temporary, out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OutputError(f"cannot write {out}: {error.strerror or error}") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(out.parent)
    total = _sum_by(sizes)
    return Written(out, nbytes, total(".safetensors", False), total("lib/", True), total("plans/", True))


def _sum_by(sizes: dict[str, int]) -> Callable[[str, bool], int]:
    def total(part: str, is_prefix: bool) -> int:
        return sum(n for m, n in sizes.items() if (m.startswith(part) if is_prefix else m.endswith(part)))

    return total


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _sync_directory(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class VerifyReport:
    """What `verify_bundle` looked at."""

    num_members: int
    num_plans: int
    num_instructions: int
    num_libraries: int
    num_constants: int
    weights_nbytes: int
    nbytes: int
    signed_by: str | None


class Bundle:
    """A bundle whose container and manifest are sound. Other members are checked as they are read."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path = path
        self.data = data
        self.entries = {e.name: e for e in container.read_archive(data)}
        self.manifest: Manifest = manifest_read.parse(self._checked(self.entries["manifest.json"]))
        self._specs = {m.name: m for m in self.manifest.members}
        self._check_members()

    def _checked(self, entry: Entry) -> bytes:
        container.check_crc32(self.data, entry)
        return bytes(self._view(entry))

    def _view(self, entry: Entry) -> memoryview:
        return self.data[entry.offset : entry.offset + entry.nbytes]

    def _check_members(self) -> None:
        """The manifest lists the archive's members, in order, with their sizes."""
        listed = [m.name for m in self.manifest.members]
        found = [name for name in self.entries if name != "manifest.json"]
        if listed != found:
            extra = sorted(set(found) - set(listed)) or sorted(set(listed) - set(found)) or ["the order"]
            raise LoadError(f"lists other members than the container holds: {extra[0]}", "manifest.json")
        for m in self.manifest.members:
            if m.nbytes != self.entries[m.name].nbytes:
                raise LoadError(f"has {self.entries[m.name].nbytes} bytes; the manifest says {m.nbytes}", m.name)

    def view(self, name: str) -> memoryview:
        """The bytes of a member in place, unchecked. KeyError if there is no such member."""
        return self._view(self.entries[name])

    def check(self, name: str) -> memoryview:
        """The bytes of a member, after its CRC-32 and sha256. Raises LoadError."""
        entry = self.entries[name]
        container.check_crc32(self.data, entry)
        view = self._view(entry)
        found = hashlib.sha256(view).hexdigest()
        if found != self._specs[name].sha256:
            raise LoadError(f"sha256 is {found}; the manifest says {self._specs[name].sha256}", name)
        return view

    def entry(self, name: str) -> EntrySpec:
        """The entry point `name`. Raises LoadError, listing those there are."""
        for e in self.manifest.entries:
            if e.name == name:
                return e
        known = ", ".join(e.name for e in self.manifest.entries)
        raise LoadError(f"there is no entry point {name!r}; there are: {known}", "manifest.json")

    def plan(self, entry: str, target: str) -> RawPlan:
        """A plan, its member's hash checked; not proved."""
        member = self.entry(entry).plans[target]
        return plan_read.parse(bytes(self.check(member)), member)

    def prove_plans(self) -> list[Proof]:
        """Proves every plan for every target. Raises LoadError."""
        targets = [t.name for t in self.manifest.targets]
        return [verify(self.plan(e.name, t), self.manifest, e, t) for e in self.manifest.entries for t in targets]

    def tensors(self, member: str) -> dict[str, weights.Tensor]:
        """The tensors of a weights member; its bytes are not hashed."""
        return weights.read(self.view(member), member)

    def constant(self, name: str) -> npt.NDArray[np.generic]:
        """A constant's content, in place; bf16 as its bits. KeyError if there is none of that name."""
        spec = {c.name: c for c in self.manifest.constants}[name]
        tensor = self.tensors(spec.file)[spec.tensor]
        return weights.array_of(self.view(spec.file), tensor).reshape(spec.shape)

    def check_constants(self) -> None:
        """Every constant's tensor exists with its dtype and numel. Raises LoadError."""
        files = {f: self.tensors(f) for f in sorted({c.file for c in self.manifest.constants})}
        for c in self.manifest.constants:
            tensor = files[c.file].get(c.tensor)
            if tensor is None:
                raise LoadError(f"constant {c.name!r} names the tensor {c.tensor!r}, which it lacks", c.file)
            if tensor.dtype is not c.dtype or tensor.numel != weights.numel_of(c.shape):
                found = f"{tensor.dtype}{list(tensor.shape)}"
                raise LoadError(f"constant {c.name!r} is {c.dtype}{list(c.shape)}; its tensor is {found}", c.file)


@contextmanager
def open_bundle(path: PathLike) -> Iterator[Bundle]:
    """Maps a bundle for reading; its views are good inside the `with`. Raises LoadError, which names the path."""
    where = Path(path)
    try:
        with open(where, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None
    except OSError as error:
        raise LoadError(f"cannot open it: {error.strerror or error}", str(where)) from None
    try:
        try:
            yield Bundle(where, memoryview(mapped if mapped is not None else b""))
        except LoadError as error:
            raise error.within(str(where)) from None
    finally:
        _close(mapped)


def _close(mapped: mmap.mmap | None) -> None:
    if mapped is None:
        return
    with suppress(BufferError):  # a view is still held: the mapping goes with it
        mapped.close()


def verify_bundle(path: PathLike) -> VerifyReport:
    """Checks all that can be checked without running anything: form, hashes, weights, and the proof of every plan.

    Raises LoadError.
    """
    with open_bundle(path) as bundle:
        m = bundle.manifest
        for name in bundle.entries:
            if name != "manifest.json":
                bundle.check(name)
        for t in m.targets:
            if t.library is not None:
                elf.check_library(bundle.view(t.library), t.library, t.name)
        bundle.check_constants()
        proofs = bundle.prove_plans()
        return VerifyReport(
            num_members=len(bundle.entries),
            num_plans=len(proofs),
            num_instructions=sum(1 for p in proofs for _ in p.plan.instructions()),
            num_libraries=sum(t.library is not None for t in m.targets),
            num_constants=len(m.constants),
            weights_nbytes=sum(e.nbytes for e in bundle.entries.values() if e.name.endswith(".safetensors")),
            nbytes=len(bundle.data),
            signed_by=m.signature.public_key if m.signature else None,
        )
