"""What can be chosen when a model is exported."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hardtack.plugins import GraphPass, Plugin
from hardtack.schemes import (
    METHODS,
    ActivationScheme,
    Scheme,
    activation_scheme_of,
    check_cache,
    check_data,
    check_method,
    scheme_of,
)

COMPUTES = ("f32", "bf16", "f16")
"""What Options.compute may be."""
CALIBRATION_SUFFIXES = (".npz", ".safetensors", ".pt")
"""The files that Options.calibration may name."""


@dataclass(frozen=True)
class Options:
    """Choices of an export; the defaults are right for most models.

    strict: capture with torch.export's strict mode, which follows Python bytecode, instead of running the module.
    compiler: the path of a system C++ compiler; None: the clang of the `ziglang` package, which builds for all targets.
    jobs: how many compilers run at once; None: one a core.
    debug: keep a listing of every stage in the bundle, under debug/.
    external_weights: keep the weights not in the bundle but in the file <its stem>.safetensors beside it, which goes
    with it.
    weights: of how many bits the weights of linear layers are: "int8" or "fp8" (float8_e4m3fn), a scale a row, or
    "int4:32" to "int4:256", a scale for so many of a row ("int4" is "int4:128"); None: as they are. The report of the
    export says how accurate the outputs are (docs/quantisation.md).
    embeddings: the same for embeddings (nn.Embedding), whose rows are made float as they are picked.
    keep_weights: modules whose weights stay as they are, as keep_f32 names them.
    weights_method: how integers are chosen: "nearest", with scales by the largest weight; "hqq", with scales that make
    the error of the weights small; or "gptq", of linear layers, which makes that of their results small on calibration.
    activations: what linear layers round their inputs to: "int8", with weights of "int8", or "fp8", with "fp8"; None:
    as they are. Each row has a scale, computed as the model runs; of "int8" each layer has one scale where there is
    calibration. "int8:dynamic" and "int8:static" say which.
    keep_activations: linear layers whose weights alone have few bits beside activations, as keep_f32 names modules.
    cache: what caches of keys and values are stored as: "int8" or "fp8" (float8_e4m3fn), with a scale for each row
    along the last dimension, such as each token's of each head; None: as they are. Caches are states to which whole
    rows are written in place, and that attention or another product reads (docs/quantisation.md).
    keep_cache: states that stay as they are beside cache: the names of buffers, or of modules that have them; * stands
    for any part of a name.
    calibration: inputs that are like those the model will see: an iterable of tensors, tuples of args and dicts of
    kwargs; of several entry points a dict of these; or the path of a file of them (docs/quantisation.md). The report is
    made with them in place of the example inputs.
    compute: in which type products, convolutions and attention of float32 models take their operands: "f32", "bf16" or
    "f16". Results, sums, norms and softmax stay f32, and so do products for which 16 bits are not safe
    (docs/precision.md); the report of the export says how accurate the outputs are.
    keep_f32: modules whose products stay f32, as paths of named_modules(), with all that lies inside of them. * stands
    for any part of a path.
    tuning: the path of a tuning table, as `hardtack tune` writes it: its plans come before the shipped table's. "none":
    no table at all, not even the shipped one; the cost model chooses every plan.
    memory_budget: how many bytes the arena of an entry point, the memory of its intermediate values, may take at the
    largest declared sizes; kernels are put in another order where that keeps it. An export that cannot says which
    values are in the way. None: no limit.
    written_inputs: the inputs that forward may write to in place, by the names that torch.export gives them (`hardtack
    inspect` lists these). A run leaves in the caller's memory what eager leaves there; without a declaration, a model
    that writes to an input is refused (docs/contract.md).
    passes: the user's own passes over the Graph, behind those of plug-ins. plugins: what may bring functions for ops,
    and passes: Plugins, or names of those that installed packages offer; None: all of these (docs/extending.md).
    """

    strict: bool = False
    compiler: str | None = None
    jobs: int | None = None
    debug: bool = False
    external_weights: bool = False
    tuning: str | None = None
    compute: str = "f32"
    keep_f32: tuple[str, ...] = ()
    weights: str | None = None
    embeddings: str | None = None
    keep_weights: tuple[str, ...] = ()
    weights_method: str = "nearest"
    activations: str | None = None
    keep_activations: tuple[str, ...] = ()
    cache: str | None = None
    keep_cache: tuple[str, ...] = ()
    calibration: Any = None
    memory_budget: int | None = None
    written_inputs: tuple[str, ...] = ()
    passes: tuple[GraphPass, ...] = ()
    plugins: tuple[Plugin | str, ...] | None = None

    def __post_init__(self) -> None:
        self._check_plugins()
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"Options.jobs is {self.jobs}; it must be at least 1, or None for one a core")
        if self.memory_budget is not None and self.memory_budget < 0:
            raise ValueError(f"Options.memory_budget is {self.memory_budget}; it is a number of bytes, or None")
        if self.compute not in COMPUTES:
            raise ValueError(f'Options.compute is {self.compute!r}; it must be "f32", "bf16" or "f16"')
        for name in ("keep_f32", "keep_weights", "keep_activations", "keep_cache"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"Options.{name} is {getattr(self, name)!r}; it must be a tuple of patterns")
        if isinstance(self.written_inputs, str):
            raise ValueError(
                f"Options.written_inputs is {self.written_inputs!r}; it must be a tuple of names: "
                f"({self.written_inputs!r},)"
            )
        if self.weights_method not in METHODS:
            raise ValueError(
                f'Options.weights_method is {self.weights_method!r}; it must be "nearest", "hqq" or "gptq"'
            )
        for name in ("weights", "embeddings"):
            chosen = getattr(self, name)
            if chosen is not None:
                scheme_of(chosen, f"Options.{name}")
                if self.compute != "f32":
                    raise ValueError(
                        f"Options.{name} is {chosen!r} and Options.compute {self.compute!r}; weights of few bits are "
                        'there with compute "f32" only so far'
                    )
        check_method(self.weights_method, [s for s in (self.scheme, self.embeddings_scheme) if s is not None])
        check_cache(self.cache, self.keep_cache, self.compute, lambda name: f"Options.{name}")
        self._check_calibration()

    def _check_plugins(self) -> None:
        """ValueError for what is no pass or no plug-in."""
        for name, given, kinds in (("passes", self.passes, (GraphPass,)), ("plugins", self.plugins, (Plugin, str))):
            if given is not None and not (isinstance(given, tuple) and all(isinstance(x, kinds) for x in given)):
                one = "GraphPasses" if name == "passes" else "Plugins and names of installed ones"
                raise ValueError(f"Options.{name} is {given!r}; it must be a tuple of {one}")

    def _check_calibration(self) -> None:
        """ValueError for data of another type, and for what does not go with activations or data."""
        if not isinstance(self.calibration, (Iterable, os.PathLike, type(None))):
            raise ValueError(
                f"Options.calibration is of type {type(self.calibration).__name__}; it must be an iterable of inputs, "
                "a dict of these by entry point, or the path of a file"
            )
        if self.keep_activations and self.activations is None:
            raise ValueError("Options.keep_activations leaves layers out of Options.activations, which is not there")
        asked = (self.weights, self.embeddings, self.activations, self.cache, self.weights_method)
        check_data(*asked, self.calibration is not None, lambda name: f"Options.{name}")

    @property
    def scheme(self) -> Scheme | None:
        """What `weights` names."""
        return None if self.weights is None else scheme_of(self.weights)

    @property
    def embeddings_scheme(self) -> Scheme | None:
        """What `embeddings` names."""
        return None if self.embeddings is None else scheme_of(self.embeddings, "Options.embeddings")

    @property
    def activation_scheme(self) -> ActivationScheme | None:
        """What `activations` names, with this calibration or without."""
        return (
            None if self.activations is None else activation_scheme_of(self.activations, self.calibration is not None)
        )
