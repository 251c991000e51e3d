"""New values for the tensors of a module in a bundle that exists: no model, no torch, no compiler is needed.

What a constant is made of stands in the manifest as its recipe; here the recipe is followed again, with new values. A
tensor whose values were folded into others is no parameter of the bundle and is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hardtack.codegen.ir.constants import NUMPY_DTYPE, ConstantData, Recipe, View
from hardtack.codegen.lower.builder import Prepack
from hardtack.codegen.package import container, weights
from hardtack.codegen.package.bundle import Bundle, open_bundle
from hardtack.codegen.package.container import Member
from hardtack.codegen.package.errors import LoadError, ReplaceError
from hardtack.codegen.package.manifest import WEIGHTS, ConstantSpec, Manifest, ParameterSpec, to_json
from hardtack.codegen.package.output import PathLike, check_output
from hardtack.codegen.package.writer import Parts, Written, external_name, spec_of, write_parts
from hardtack.codegen.plan.prepack import PACKINGS, CodesError, pack, place, viewed

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Replaced:
    """What `replace_weights` wrote. `names`: the parameters with new values; `dropped_signature`: the old bundle was
    signed, the new one is not.
    """

    written: Written
    names: tuple[str, ...]
    dropped_signature: bool


def replace_weights(
    path: PathLike, values: Mapping[str, ConstantData], out: PathLike, weights_path: PathLike | None = None
) -> Replaced:
    """Writes the bundle at `path` with new values as `out`, which may be the same file; other weights stay.

    values: name -> content, of the parameter's dtype and shape. A tensor that has several names in the module takes
    all of them, with equal values. External weights stay external, in a new file beside `out`. A signature is dropped.
    Raises ReplaceError, LoadError and OutputError.
    """
    target = check_output(out)
    with open_bundle(path, weights_path) as bundle:
        m = bundle.manifest
        given = chosen(m.parameters, values)
        constants = {c.name: _content(bundle, c, given) for c in m.constants}
        parts = _parts(bundle, constants, target)
        written = write_parts(target, parts)
    return Replaced(written, tuple(sorted(given)), m.signature is not None)


def chosen(parameters: Sequence[ParameterSpec], values: Mapping[str, ConstantData]) -> dict[str, Array]:
    """Parameter -> new content. Raises ReplaceError."""
    known = {name for p in parameters for name in (p.name, *p.aliases)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ReplaceError(_unknown(unknown, parameters))
    found: dict[str, Array] = {}
    for p in parameters:
        names = sorted((p.name, *p.aliases))
        given = [n for n in names if n in values]
        if not given:
            continue
        for n in given:
            _check(p, n, values[n])
        missing = [n for n in names if n not in values]
        if missing:
            raise ReplaceError(f"{given[0]} and {missing[0]} are one tensor in the module: give values for both")
        first = values[given[0]]
        for n in given[1:]:
            if values[n].key() != first.key():
                raise ReplaceError(f"{given[0]} and {n} are one tensor in the module, but the values given differ")
        found[p.name] = first.array
    return found


def _unknown(names: Sequence[str], parameters: Sequence[ParameterSpec]) -> str:
    listed = ", ".join(p.name for p in parameters) or "nothing"
    one = len(names) == 1
    return (
        f"{', '.join(names)} cannot be replaced: {'it is' if one else 'they are'} unknown to the bundle, unused, or "
        f"folded into other weights when it was exported; what can be replaced is: {listed}"
    )


def _check(p: ParameterSpec, name: str, value: ConstantData) -> None:
    if (value.dtype, value.array.shape) != (p.dtype, p.shape):
        given, wanted = f"{value.dtype}{list(value.array.shape)}", f"{p.dtype}{list(p.shape)}"
        raise ReplaceError(f"{name} is {given}, the bundle has {wanted}")


def _content(bundle: Bundle, c: ConstantSpec, given: Mapping[str, Array]) -> ConstantData:
    parts = [r for r in c.recipe if r.source in given]
    if not parts:
        return ConstantData(c.dtype, bundle.constant(c.name))
    joined = any(r.into is not None for r in parts)  # what no new value goes into stays as it is
    array = bundle.constant(c.name).copy() if joined else np.empty(c.shape, NUMPY_DTYPE[c.dtype])
    for recipe in parts:
        made = follow(recipe, np.asarray(given[recipe.source], NUMPY_DTYPE[c.dtype]), c.name)
        into = recipe.into or View(0, c.shape, _row_major(c.shape))
        if made.size != weights.numel_of(into.shape):
            raise LoadError(f"constant {c.name!r} takes {list(into.shape)}; its recipe makes {list(made.shape)}")
        place(array, into, made)
    return ConstantData(c.dtype, array)


def follow(recipe: Recipe, source: Array, name: str) -> Array:
    """What the recipe makes of the source. Raises LoadError for a packing that this version does not know, or that
    does not fit the view it is of.
    """
    *moves, last = recipe.views or (View(0, source.shape, _row_major(source.shape)),)
    array = source
    for view in moves:
        array = _moved(view, array)
    if recipe.packing is None:
        return _moved(last, array)
    kind, params = recipe.packing.kind, recipe.packing.params
    if kind not in PACKINGS:
        raise LoadError(f"constant {name!r} has the packing {kind!r}; known are: {', '.join(sorted(PACKINGS))}")
    try:
        return pack(Prepack(kind, recipe.source, last.offset, last.shape, last.strides, params), array)
    except CodesError as error:
        raise ReplaceError(f"{recipe.source} has {error}, in which the bundle holds it") from None
    except (ValueError, IndexError, ZeroDivisionError, TypeError) as error:
        raise LoadError(f"constant {name!r} cannot be packed as its recipe says: {error}") from None


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(weights.numel_of(shape[d + 1 :]) for d in range(len(shape)))


def _moved(view: View, source: Array) -> Array:
    """A new row-major array; the reader has checked that the view lies inside its source."""
    return np.ascontiguousarray(viewed(source, view)).reshape(view.shape)


def _parts(bundle: Bundle, constants: Mapping[str, ConstantData], target: Path) -> Parts:
    """The bundle with these constants, in one weights file where the old one had its own."""
    m = bundle.manifest
    outside = m.external is not None
    tensors = weights.assign(tuple(constants.items()))
    stored = {name: constants[name] for name in sorted(set(tensors.values()))}
    file = Member(external_name(target) if outside else WEIGHTS, weights.write(stored))
    members = [Member(n, [bundle.view(n)]) for n in bundle.entries if n != "manifest.json" and not _is_weights(n)]
    if stored and not outside:
        members.append(file)
    members.sort(key=lambda member: container.sort_key(member.name))
    kept = {x.name: x for x in m.members}
    specs = [spec_of(x) if _is_weights(x.name) else kept[x.name] for x in members]
    changed: Manifest = replace(
        m,
        constants=tuple(replace(c, file=file.name, tensor=tensors[c.name]) for c in m.constants),
        members=tuple(specs),
        external=spec_of(file) if outside else None,
        signature=None,
    )
    return Parts([Member("manifest.json", [to_json(changed)]), *members], file if outside else None)


def _is_weights(name: str) -> bool:
    return name.endswith(".safetensors")
