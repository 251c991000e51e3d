"""Writing a bundle: its members from its content, and the files at once or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hardtack.codegen.ir.plan import to_json
from hardtack.codegen.package import container, weights
from hardtack.codegen.package.bundle import open_bundle
from hardtack.codegen.package.container import Member
from hardtack.codegen.package.content import BundleContent, plan_member
from hardtack.codegen.package.errors import OutputError
from hardtack.codegen.package.manifest import WEIGHTS, MemberSpec, from_content
from hardtack.codegen.package.manifest import to_json as manifest_json
from hardtack.codegen.package.output import PathLike, check_output, write_files


@dataclass(frozen=True)
class Written:
    """What was written: sizes in bytes. `weights_path`: the weights file beside the bundle, None for weights inside."""

    path: Path
    nbytes: int
    weights_nbytes: int
    code_nbytes: int
    plans_nbytes: int
    weights_path: Path | None


@dataclass(frozen=True)
class Parts:
    """A bundle's members in archive order, and the weights to write beside it."""

    members: Sequence[Member]
    external: Member | None = None


def parts_of(content: BundleContent, external: str | None = None) -> Parts:
    """The bundle of a content: the same content gives the same bytes. external: the file name of weights outside."""
    tensors = weights.assign(content.constants)
    by_name = dict(content.constants)
    found = [Member(plan_member(e, t), [to_json(p)]) for (e, t), p in content.plans.items()]
    found += [Member(t.library_member, [t.library]) for t in content.targets if t.library_member and t.library]
    found += [Member(name, [data]) for name, data in (*content.kernels.items(), *content.debug.items())]
    outside: Member | None = None
    if tensors:
        stored = Member(external or WEIGHTS, weights.write({name: by_name[name] for name in set(tensors.values())}))
        if external is None:
            found.append(stored)
        else:
            outside = stored
    found.sort(key=lambda m: container.sort_key(m.name))
    specs = [spec_of(m) for m in found]
    manifest = from_content(content, tensors, specs, None if outside is None else spec_of(outside))
    return Parts([Member("manifest.json", [manifest_json(manifest)]), *found], outside)


def spec_of(member: Member) -> MemberSpec:
    """What the manifest says of a member."""
    digest = hashlib.sha256()
    for chunk in member.chunks:
        digest.update(chunk)
    return MemberSpec(member.name, member.nbytes, digest.hexdigest())


def external_name(path: PathLike) -> str:
    """The file name of external weights of a bundle at `path`."""
    return f"{Path(path).stem}.safetensors"


def write_bundle(path: PathLike, content: BundleContent, *, external: bool = False) -> Written:
    """Writes the bundle at once or not at all; with `external`, its weights in a file of their own beside it.

    Raises OutputError (the place cannot be written), ValueError (content that no bundle can hold) and LoadError (the
    content is not sound: a bug in the compiler, found by proving the bundle as a reader would).
    """
    out = check_output(path)
    return write_parts(out, parts_of(content, external_name(out) if external else None))


def write_parts(path: PathLike, parts: Parts) -> Written:
    """Writes a bundle and its external weights, proved as a reader would. Raises OutputError and LoadError."""
    out = check_output(path)
    beside = out.parent / parts.external.name if parts.external is not None else None
    if beside == out:
        raise OutputError(f"cannot write {out}: its external weights would have the same name; name it .pkg")

    def write_weights(file: BinaryIO) -> None:
        assert parts.external is not None
        for chunk in parts.external.chunks:
            file.write(chunk)

    def check(temporary: Sequence[Path]) -> None:
        with open_bundle(temporary[-1], temporary[0] if beside is not None else None) as bundle:
            bundle.prove_plans()
            if beside is not None or bundle.manifest.external is None:
                bundle.check_constants()

    files = [] if beside is None else [(check_output(beside), write_weights)]
    write_files([*files, (out, lambda file: container.write_archive(file, parts.members))], check)
    sizes = {m.name: m.nbytes for m in parts.members}
    inside = sum(n for name, n in sizes.items() if name.endswith(".safetensors"))
    return Written(
        path=out,
        nbytes=out.stat().st_size,
        weights_nbytes=inside if parts.external is None else parts.external.nbytes,
        code_nbytes=sum(n for name, n in sizes.items() if name.startswith(("lib/", "kernels/"))),
        plans_nbytes=sum(n for name, n in sizes.items() if name.startswith("plans/")),
        weights_path=beside,
    )
