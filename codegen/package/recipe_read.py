"""Recipes of the manifest: which constant is made of which parameters, and that no view leaves its tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from hardtack.codegen.ir.constants import Packing, Recipe, View
from hardtack.codegen.ir.types import DType
from hardtack.codegen.package.canonical import Fields, check_int
from hardtack.codegen.package.errors import LoadError
from hardtack.codegen.package.manifest import ConstantSpec, ParameterSpec
from hardtack.codegen.package.weights import numel_of

_MAX_NBYTES = 2**48
_MAX_RANK = 64


def read_recipe(f: Fields) -> tuple[Recipe, ...]:
    """The recipe of a constant: one of each part. Raises LoadError."""
    if f.raw("recipe") is None:
        return ()
    parts = tuple(_part(r) for r in f.each("recipe"))
    if not parts:
        f.refuse("is a list of nothing", "recipe")
    return parts


def _part(r: Fields) -> Recipe:
    into = None if r.raw("into") is None else _view(Fields(r.raw("into"), r.where, f"{r.path}.into"))
    part = Recipe(r.text("source"), tuple(_view(v) for v in r.each("views")), _packing(r), into)
    r.done()
    return part


def _view(f: Fields) -> View:
    shape = f.all("shape", lambda v, w, p: check_int(v, w, p, 0, _MAX_NBYTES))
    strides = f.all("strides", check_int)
    if len(shape) > _MAX_RANK:
        f.refuse(f"has {len(shape)} dimensions; at most {_MAX_RANK} are known", "shape")
    if len(strides) != len(shape):
        f.refuse(f"has {len(strides)} strides for {len(shape)} dimensions")
    view = View(f.integer("offset", 0), shape, strides)
    f.done()
    return view


def _packing(r: Fields) -> Packing | None:
    if r.raw("packing") is None:
        return None
    f = Fields(r.raw("packing"), r.where, f"{r.path}.packing")
    packing = Packing(f.text("kind"), f.all("params", check_int))
    f.done()
    return packing


def check_recipes(constants: Sequence[ConstantSpec], parameters: Sequence[ParameterSpec]) -> None:
    """Sources exist, dtypes are equal, and every view lies inside what it is a view of. Raises LoadError."""
    by_name = {p.name: p for p in parameters}
    for c in constants:
        for part in c.recipe:
            _check(c, part, by_name.get(part.source))


def _check(c: ConstantSpec, recipe: Recipe, source: ParameterSpec | None) -> None:
    if source is None:
        _refuse(f"constant {c.name!r} is made of the parameter {recipe.source!r}, which is not listed")
    if source.dtype is not c.dtype:
        _refuse(f"constant {c.name!r} is {c.dtype}; it is made of {source.name!r}, which is {source.dtype}")
    numel = numel_of(source.shape)
    for index, view in enumerate(recipe.views):
        if not _inside(view, numel) or not fits(view.shape, c.dtype):
            _refuse(f"constant {c.name!r}: view {index} of its recipe leaves the {numel} elements that it is of")
        numel = numel_of(view.shape)
    wanted = numel_of(c.shape)
    if recipe.into is not None:
        if not _inside(recipe.into, wanted) or not fits(recipe.into.shape, c.dtype):
            _refuse(f"constant {c.name!r}: what is made of {source.name!r} goes beyond its {wanted} elements")
        wanted = numel_of(recipe.into.shape)
    if recipe.packing is None and numel != wanted:
        _refuse(f"constant {c.name!r} has {wanted} elements, its recipe makes {numel}")


def fits(shape: Sequence[int], dtype: DType) -> bool:
    """Whether a tensor, and what its first dimensions would take, has less than 2^48 bytes."""
    nbytes = dtype.nbytes
    for n in shape:
        nbytes *= n
        if nbytes >= _MAX_NBYTES:
            return False
    return True


def _inside(view: View, numel: int) -> bool:
    if 0 in view.shape:
        return True
    steps = [(n - 1) * s for n, s in zip(view.shape, view.strides, strict=True)]
    lowest = view.offset + sum(x for x in steps if x < 0)
    highest = view.offset + sum(x for x in steps if x > 0)
    return lowest >= 0 and highest < numel


def _refuse(problem: str) -> NoReturn:
    raise LoadError(problem, "manifest.json")
