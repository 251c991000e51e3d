"""Reading a bundle with everything checked. Nothing here runs what a bundle holds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hardtack.codegen.package import container, elf, library, manifest_read, plan_read, weights
from hardtack.codegen.package.container import Entry
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.file_map import MappedFile
from hardtack.codegen.package.manifest import EntrySpec, Manifest
from hardtack.codegen.package.output import PathLike
from hardtack.codegen.package.plan_gpu import LIMITS
from hardtack.codegen.package.plan_read import RawPlan
from hardtack.codegen.package.plan_verify import Proof, verify


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
    signed_model: str | None
    signed_version: int | None


_MAX_TEXT_NBYTES = 2**28
_MAX_CODE_HOLE_NBYTES = 2**24
_MAX_HOLE_NBYTES = 2**30


def _sparse(holes: int, where: str, limit: int) -> str:
    return (
        f"{holes} bytes {where} are holes of a sparse file; at most {limit} may be: "
        "copy the whole file (cp --sparse=never)"
    )


class Bundle:
    """A bundle whose container and manifest are sound. Other members are checked as they are read.

    An external weights file is opened when it is first asked for: at `weights_path`, else beside the bundle.
    """

    def __init__(self, path: Path, mapped: MappedFile, weights_path: Path | None = None) -> None:
        self.path = path
        self.data = mapped.data
        self._mapped = mapped
        self._external: MappedFile | None = None
        self._tensors: dict[str, dict[str, weights.Tensor]] = {}
        self.entries = {e.name: e for e in container.read_archive(self.data)}
        self._check_sizes()
        self.manifest_text = self._checked(self.entries["manifest.json"])
        self.manifest: Manifest = manifest_read.parse(self.manifest_text)
        self._specs = {m.name: m for m in self.manifest.members}
        self._check_members()
        external = self.manifest.external
        if weights_path is not None and external is None:
            raise LoadError(f"holds its weights itself; the file {weights_path} is not needed")
        self.weights_path = weights_path or (path.parent / external.name if external is not None else None)

    def close(self) -> None:
        """Closes the external weights."""
        if self._external is not None:
            self._external.close()

    def _check_sizes(self) -> None:
        """Texts and code are read into memory: they have limits, and must be there, not holes of a sparse file."""
        for name, entry in self.entries.items():
            if name.startswith(("manifest.json", "plans/")) and entry.nbytes > _MAX_TEXT_NBYTES:
                raise LoadError(f"has {entry.nbytes} bytes; at most {_MAX_TEXT_NBYTES} are read", name)
        read = [e.offset + e.nbytes for e in self.entries.values() if not e.name.endswith(".safetensors")]
        holes = self._mapped.hole_nbytes(0, max(read))
        if holes > _MAX_CODE_HOLE_NBYTES:
            raise LoadError(_sparse(holes, "before the weights", _MAX_CODE_HOLE_NBYTES))

    def _checked(self, entry: Entry) -> bytes:
        data = bytes(self._view(entry))  # a copy first: what is checked is what is used
        container.check_crc32(data, entry)
        return data

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

    def weights_file(self, name: str) -> memoryview:
        """The bytes of a weights file, a member or the external one, in place; only its size is checked.

        Raises LoadError.
        """
        external = self.manifest.external
        if external is None or name != external.name:
            return self.view(name)
        if self._external is None:
            assert self.weights_path is not None
            try:
                self._external = MappedFile(self.weights_path)
            except OSError as error:
                why = error.strerror or error
                problem = f"cannot open the weights: {why}; the bundle keeps {external.nbytes} bytes of them outside"
                raise LoadError(problem, str(self.weights_path)) from None
        data = self._external.data
        if len(data) != external.nbytes:
            problem = f"has {len(data)} bytes; the bundle's weights have {external.nbytes}"
            raise LoadError(problem, str(self.weights_path))
        return data

    @property
    def weights_nbytes(self) -> int:
        """The bytes of all weights files."""
        members = sum(e.nbytes for e in self.entries.values() if e.name.endswith(".safetensors"))
        return members + (self.manifest.external.nbytes if self.manifest.external is not None else 0)

    def check_weights_are_there(self) -> None:
        """What is hashed is no more than the files hold, but for a limit. Raises LoadError."""
        for file in {c.file for c in self.manifest.constants}:
            self._check_header(file)
        holes = self._mapped.hole_nbytes(0, len(self.data))
        if self.manifest.external is not None:
            self.weights_file(self.manifest.external.name)
            assert self._external is not None
            holes += self._external.hole_nbytes(0, len(self._external.data))
        if holes > _MAX_HOLE_NBYTES:
            raise LoadError(_sparse(holes, "of the weights", _MAX_HOLE_NBYTES))

    def check_external(self) -> None:
        """The external weights, if there are, have the manifest's sha256. Raises LoadError."""
        external = self.manifest.external
        if external is None:
            return
        found = hashlib.sha256(self.weights_file(external.name)).hexdigest()
        if found != external.sha256:
            raise LoadError(f"sha256 is {found}; the manifest says {external.sha256}", str(self.weights_path))

    def check(self, name: str) -> None:
        """Checks a member's CRC-32 and sha256, in place. Raises LoadError."""
        self._check_hash(name, self.view(name))

    def read(self, name: str) -> bytes:
        """A copy of a member, after its CRC-32 and sha256: what is checked is what is used. Raises LoadError."""
        data = bytes(self.view(name))
        self._check_hash(name, data)
        return data

    def _check_hash(self, name: str, data: container.Buffer) -> None:
        container.check_crc32(data, self.entries[name])
        found = hashlib.sha256(data).hexdigest()
        if found != self._specs[name].sha256:
            raise LoadError(f"sha256 is {found}; the manifest says {self._specs[name].sha256}", name)

    def entry(self, name: str) -> EntrySpec:
        """The entry point `name`. Raises LoadError, listing those there are."""
        found = self.manifest.entries_by_name.get(name)
        if found is not None:
            return found
        known = ", ".join(e.name for e in self.manifest.entries)
        raise LoadError(f"there is no entry point {name!r}; there are: {known}", "manifest.json")

    def plan(self, entry: str, target: str) -> RawPlan:
        """A plan, its member's hash checked; not proved."""
        member = self.entry(entry).plans[target]
        return plan_read.parse(self.read(member), member)

    def prove_plans(self) -> list[Proof]:
        """Proves every plan for every target. Raises LoadError."""
        targets = [t.name for t in self.manifest.targets]
        return [verify(self.plan(e.name, t), self.manifest, e, t) for e in self.manifest.entries for t in targets]

    def check_kernels(self, proofs: Sequence[Proof]) -> None:
        """Every member under kernels/ is code for the targets that use it, with the functions they use. LoadError."""
        arch = {t.name: t.requires[0] for t in self.manifest.targets if t.device in LIMITS}
        used: dict[tuple[str, str], set[str]] = {}
        for proof in proofs:
            for k in proof.plan.kernels:
                if k.gpu is not None:
                    used.setdefault((k.gpu.member, arch[proof.plan.target]), set()).add(k.gpu.function)
        for (member, wanted), functions in sorted(used.items()):
            elf.check_kernels(memoryview(self.read(member)), member, wanted, sorted(functions))
        named = {member for member, _ in used}
        for name in self.entries:
            if name.startswith("kernels/") and name not in named:
                raise LoadError("belongs to nothing", name)

    def _check_header(self, file: str) -> None:
        """The header of a weights file is there: text has no zeros."""
        data = self.weights_file(file)
        entry = self.entries.get(file)
        mapped, start = (self._external, 0) if entry is None else (self._mapped, entry.offset)
        assert mapped is not None
        if mapped.hole_nbytes(start, start + weights.header_nbytes(data, file)) > 0:
            raise LoadError("a part of its header is a hole of a sparse file", file)

    def tensors(self, file: str) -> dict[str, weights.Tensor]:
        """The tensors of a weights file; its bytes are not hashed."""
        if file not in self._tensors:
            self._check_header(file)
            self._tensors[file] = weights.read(self.weights_file(file), file)
        return self._tensors[file]

    def constant(self, name: str) -> npt.NDArray[np.generic]:
        """A constant's content, in place; bf16 as its bits. KeyError if there is none of that name."""
        spec = self.manifest.constants_by_name[name]
        tensor = self.tensors(spec.file)[spec.tensor]
        return weights.array_of(self.weights_file(spec.file), tensor).reshape(spec.shape)

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
def open_bundle(path: PathLike, weights_path: PathLike | None = None) -> Iterator[Bundle]:
    """Maps a bundle for reading; its views are good inside the `with`. Raises LoadError, which names the path.

    weights_path: where the external weights are, if not beside the bundle.
    """
    where = Path(path)
    try:
        mapped = MappedFile(where)
    except OSError as error:
        raise LoadError(f"cannot open it: {error.strerror or error}", str(where)) from None
    bundle: Bundle | None = None
    try:
        bundle = Bundle(where, mapped, None if weights_path is None else Path(weights_path))
        yield bundle
    except LoadError as error:
        raise error.within(str(where)) from None
    finally:
        if bundle is not None:
            bundle.close()
        mapped.close()


def verify_bundle(path: PathLike, weights_path: PathLike | None = None) -> VerifyReport:
    """Checks all that can be checked without running anything: form, hashes, weights, and the proof of every plan.

    Raises LoadError.
    """
    with open_bundle(path, weights_path) as bundle:
        return verify_opened(bundle)


def verify_opened(bundle: Bundle) -> VerifyReport:
    """The same for a bundle that is open. Raises LoadError."""
    m = bundle.manifest
    bundle.check_weights_are_there()
    for name in bundle.entries:
        if name != "manifest.json":
            bundle.check(name)
    bundle.check_external()
    checked: set[tuple[str, str | None]] = set()  # targets may share a library
    for t in m.targets:
        if t.library is not None and (t.library, library.machine_of(t.name)) not in checked:
            checked.add((t.library, library.machine_of(t.name)))
            library.check_library(memoryview(bundle.read(t.library)), t.library, t.name)
    bundle.check_constants()
    proofs = bundle.prove_plans()
    bundle.check_kernels(proofs)
    return VerifyReport(
        num_members=len(bundle.entries),
        num_plans=len(proofs),
        num_instructions=sum(1 for p in proofs for _ in p.plan.instructions()),
        num_libraries=sum(t.library is not None for t in m.targets),
        num_constants=len(m.constants),
        weights_nbytes=bundle.weights_nbytes,
        nbytes=len(bundle.data),
        signed_by=m.signature.public_key if m.signature else None,
        signed_model=m.signature.model if m.signature else None,
        signed_version=m.signature.version if m.signature else None,
    )
