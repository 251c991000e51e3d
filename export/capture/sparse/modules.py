"""A module around one that has sparse tensors: it takes and holds their parts, and hands them on as sparse tensors.

In eager mode these are torch's own, so that what the wrapped module gives is what the user's gives; while torch.export
traces, they are stand-ins.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export.dynamic_shapes import _DimHint

from hardtack.exporter.capture.sparse.calls import SparseCalls
from hardtack.exporter.capture.sparse.makers import check_compressed, parts_of
from hardtack.exporter.capture.sparse.stand_ins import (
    COMPRESSED,
    PARTS,
    Sparse,
    check,
    is_sparse,
    linear_index,
    refusal,
)
from hardtack.exporter.errors import CaptureError, InputSpecError
from hardtack.exporter.origin import WRAPPED

NNZ = "nnz"
"""By this name dynamic_shapes declares the number of nonzeros of a sparse input."""


@dataclass(frozen=True)
class Form:
    """What is known of a sparse input or buffer beside its parts. size: the example's, a number for each dimension;
    given: those whose size is given beside the parts, as `size_0`: of an input each that has indices, so that a tensor
    of another size is refused where the size does not vary. is_sorted: the example is coalesced, and each run's has to
    be.
    """

    layout: torch.layout
    size: tuple[int, ...]
    is_sorted: bool
    given: tuple[int, ...] = ()

    def parts(self, x: Tensor) -> dict[str, Any]:
        """The inputs that one of this form is."""
        named: dict[str, Any] = dict(zip(PARTS[self.layout], parts_of(x), strict=True))
        return {**named, **{f"size_{d}": int(x.shape[d]) for d in self.given}}

    def sizes(self, parts: Mapping[str, Any]) -> list[Any]:
        """Those of dense dimensions are the values' own."""
        behind = list(parts["values"].shape[1:]) if self.layout is torch.sparse_coo else []
        size = [*self.size[: len(self.size) - len(behind)], *behind]
        return [parts.get(f"size_{d}", n) for d, n in enumerate(size)]

    def torchs(self, parts: Mapping[str, Any]) -> Tensor:
        """torch's sparse tensor of these parts; it raises for parts that make none."""
        first, *rest = (parts[name] for name in PARTS[self.layout])
        size = self.sizes(parts)
        if self.layout is torch.sparse_coo:
            sorted_ = self.is_sorted or None
            return torch.sparse_coo_tensor(first, rest[0], size, check_invariants=True, is_coalesced=sorted_)
        return torch.sparse_compressed_tensor(first, *rest, size, layout=self.layout, check_invariants=True)  # type: ignore[call-arg, arg-type]

    def traced(self, parts: Mapping[str, Any], checked: bool) -> Sparse:
        """The stand-in. checked: a run looks at what torch would have looked at."""
        found = [parts[name] for name in PARTS[self.layout]]
        size = self.sizes(parts)
        if self.layout is torch.sparse_coo:
            found[0] = found[0].long()
        check(found[-2].shape[-1] == found[-1].shape[0], "indices and values are not as many")
        if checked and self.layout is torch.sparse_coo and self.is_sorted:
            flat = linear_index(found[0], size)
            message = "the indices of a sparse input, whose example is coalesced, are in order, and none is twice"
            before = torch.cat([flat.new_full((1,), -1), flat])[: flat.shape[0]]
            torch._assert_async((flat > before).all(), message)
        if self.layout is not torch.sparse_coo:
            count = size[COMPRESSED[self.layout]] + 1
            check(found[0].shape[0] == count, "compressed indices do not fit the size")
            if checked:
                check_compressed(found[0], found[-1])
        return Sparse(self.layout, found, size, self.is_sorted)


def form_of(x: Tensor, what: str, of_input: bool = False) -> Form:
    """InputSpecError for sparse tensors of blocks, and for batches of them."""
    layout = str(x.layout).removeprefix("torch.")
    if x.layout not in PARTS:
        raise InputSpecError(f"{what} is a sparse tensor of blocks, {layout}", fix="convert it, with to_sparse_csr()")
    if x.layout in COMPRESSED and x.dim() != 2:
        raise InputSpecError(f"{what} is a batch of sparse matrices, {layout}", fix="pass one matrix an input")
    is_sorted = x.is_coalesced() if x.layout is torch.sparse_coo else True
    return Form(x.layout, tuple(x.shape), is_sorted, tuple(_dims_of_indices(x)) if of_input else ())


def _dims_of_indices(x: Tensor) -> range:
    """The dimensions that indices count; others are the values' own."""
    return range(x.sparse_dim() if x.layout is torch.sparse_coo else x.dim())


@dataclass(frozen=True)
class Call:
    """A call's arguments with the parts of sparse ones in their place, and their sizes as declared; `tree`: of what the
    user gave, with the form of each leaf, None for those that are no sparse tensors.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    dynamic_shapes: Any
    tree: pytree.TreeSpec
    forms: tuple[Form | None, ...]

    @property
    def is_plain(self) -> bool:
        return not any(self.forms)


def with_parts(forward: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], dynamic_shapes: Any) -> Call:
    """InputSpecError for sparse examples that have no parts, and for declarations that do not fit them."""
    found, tree = pytree.tree_flatten_with_path((args, dict(kwargs)))
    leaves = [x for _, x in found]
    if not any(map(is_sparse, leaves)):
        return Call(args, dict(kwargs), dynamic_shapes, tree, (None,) * len(leaves))
    dynamic_shapes = _declared(forward, args, kwargs, dynamic_shapes)
    forms: list[Form | None] = []
    for path, x in found:
        place = f"{'kwargs' if path[0].idx else 'args'}{pytree.keystr(path[1:])}"  # type: ignore[attr-defined]
        forms.append(form_of(x, place, of_input=True) if is_sparse(x) else None)
    parts = [x if form is None else form.parts(x) for x, form in zip(leaves, forms, strict=True)]
    new_args, new_kwargs = pytree.tree_unflatten(parts, tree)
    return Call(new_args, new_kwargs, dynamic_shapes, tree, tuple(forms))


def _declared(forward: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], spec: Any) -> Any:
    """The declaration as it is of parts."""
    if isinstance(spec, (tuple, list)) and len(spec) == len(args) + len(kwargs):
        return [_spec(x, s) for x, s in zip((*args, *kwargs.values()), spec, strict=True)]
    if isinstance(spec, Mapping):
        try:
            arguments = inspect.signature(forward).bind(*args, **kwargs).arguments
        except TypeError:  # said where arguments are matched
            arguments = {}
        return {name: _spec(arguments.get(name), s) for name, s in spec.items()}
    return spec


def _spec(x: Any, spec: Any) -> Any:
    if is_sparse(x):
        return _spec_of_parts(x, spec)
    if isinstance(x, dict) and isinstance(spec, Mapping):
        return {key: _spec(x.get(key), s) for key, s in spec.items()}
    if isinstance(x, (tuple, list)) and isinstance(spec, (tuple, list)) and len(x) == len(spec):
        return type(spec)(_spec(v, s) for v, s in zip(x, spec, strict=True))
    return spec


def _spec_of_parts(x: Tensor, spec: Any) -> Any:
    """{0: n, 1: m, "nnz": e} as of the parts."""
    if isinstance(spec, (tuple, list)):
        spec = dict(enumerate(spec))
    if not isinstance(spec, Mapping | None) or set(spec or {}) - {NNZ, *range(x.dim())}:
        raise InputSpecError(
            f"dynamic_shapes of a sparse tensor is {spec!r}",
            fix='say its sizes by dimension and the number of nonzeros by "nnz", as in {0: n, 1: n, "nnz": e}',
        )
    dims = {key: d for key, d in (spec or {}).items() if d is not None and not _is_static(d)}
    names, nnz = PARTS[x.layout], dims.pop(NNZ, None)
    out: dict[str, Any] = {name: None if nnz is None else {0: nnz} for name in names}
    if x.layout is torch.sparse_coo:
        out[names[0]] = None if nnz is None else {1: nnz}
        dense = {d - x.sparse_dim() + 1: dims.pop(d) for d in list(dims) if d >= x.sparse_dim()}
        out[names[1]] = {**(out[names[1]] or {}), **dense} or None
    else:
        rows = dims.get(COMPRESSED[x.layout])
        out[names[0]] = None if rows is None else {0: rows if isinstance(rows, _DimHint) else rows + 1}
    return {**out, **{f"size_{d}": dims.get(d) for d in _dims_of_indices(x)}}


def _is_static(dim: Any) -> bool:
    return isinstance(dim, _DimHint) and dim == torch.export.Dim.STATIC


class _Parts(nn.Module):
    """The parts of a sparse buffer or parameter, as buffers; they stand under its name."""

    def __init__(self, form: Form, x: Tensor) -> None:
        super().__init__()
        self.form = form
        for name, part in form.parts(x.detach()).items():
            self.register_buffer(name, part)
        self.eval()


@contextlib.contextmanager
def buffers_apart(module: nn.Module) -> Iterator[tuple[tuple[str, str], ...]]:
    """While it lasts, sparse buffers and parameters of the module are modules of their parts. Gives (the name of the
    module that has it, its own name) of each.
    """
    places: list[tuple[str, str]] = []
    undo: list[tuple[nn.Module, dict[str, Any], dict[str, Any]]] = []
    try:
        for owner, part in list(module.named_modules()):
            for kind in (part._buffers, part._parameters):
                for name in [n for n, t in kind.items() if is_sparse(t)]:
                    path = f"{owner}.{name}" if owner else name
                    held = _Parts(form_of(kind[name], path), kind[name])
                    undo.append((part, kind, dict(kind)))
                    del kind[name]
                    part._modules[name] = held
                    places.append((owner, name))
        yield tuple(places)
    finally:
        for part, kind, before in reversed(undo):
            for name in before.keys() - kind.keys():
                part._modules.pop(name, None)
            kind.clear()
            kind.update(before)


@dataclass
class Trace:
    """`met`: a sparse tensor, while a module was traced. No attribute of that, of which torch takes changes back."""

    met: bool = False


class WithParts(nn.Module):
    """The wrapped module, called with parts in place of sparse tensors."""

    def __init__(self, module: nn.Module, call: Call, places: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        setattr(self, WRAPPED, module)
        self.tree, self.forms, self.places, self.trace = call.tree, call.forms, tuple(places), Trace()
        self.training = module.training

    def call(self, *args: Any, **kwargs: Any) -> Any:
        given = self.tree.flatten_up_to((args, kwargs))
        if not torch.compiler.is_exporting():
            leaves = [x if f is None else f.torchs(x) for x, f in zip(given, self.forms, strict=True)]
            return self._run(leaves, lambda parts: parts.form.torchs(dict(parts.named_buffers())))
        calls = SparseCalls()
        calls.met = bool(self.places) or any(self.forms)
        leaves = [x if f is None else f.traced(x, checked=True) for x, f in zip(given, self.forms, strict=True)]
        try:
            with calls:
                out = self._run(leaves, lambda parts: parts.form.traced(dict(parts.named_buffers()), checked=False))
        finally:
            self.trace.met = self.trace.met or calls.met
        for path, x in pytree.tree_flatten_with_path(out)[0]:
            if is_sparse(x):
                raise CaptureError(
                    f"output{pytree.keystr(path)} is a sparse tensor",
                    fix="return its .to_dense(), or its indices() and values()",
                )
        return out

    def _run(self, leaves: list[Any], made: Callable[[_Parts], Tensor]) -> Any:
        """The wrapped module's result, with sparse tensors where its buffers' parts are."""
        module: nn.Module = getattr(self, WRAPPED)
        args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        set_: list[tuple[nn.Module, str, Tensor]] = []
        try:
            for owner, name in self.places:
                part = module.get_submodule(owner)
                x = made(part._modules[name])  # type: ignore[arg-type]
                part.__dict__[name] = x
                set_.append((part, name, x))
            out = module(*args, **kwargs)
            for part, name, x in set_:
                if part.__dict__.get(name) is not x:
                    raise refusal(f"{name}, a sparse buffer, is replaced in forward", "make its values a buffer")
            return out
        finally:
            for part, name, _ in set_:
                part.__dict__.pop(name, None)


def around(module: nn.Module, call: Call, places: Sequence[tuple[str, str]]) -> WithParts:
    """WithParts whose forward has the signature of the module's, by which torch calls its inputs."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    inner = inspect.signature(module.forward).parameters.values()
    forward.__signature__ = inspect.Signature([own, *inner])  # type: ignore[attr-defined]
    return type("WithParts", (WithParts,), {"forward": forward})(module, call, places)  # type: ignore[no-any-return]
