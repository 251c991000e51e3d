"""What can be chosen when a model is exported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

COMPUTES = ("f32", "bf16", "f16")
"""What Options.compute may be."""
METHODS = ("nearest", "hqq")
"""What Options.weights_method may be."""
GROUPS = (32, 64, 128, 256)
"""How many int4 weights of a row may share a scale."""
_USUAL_GROUP = 128


@dataclass(frozen=True)
class Scheme:
    """How many bits a weight has, of an integer or of a float, and how many of a row share a scale; None: the row."""

    bits: int
    group: int | None
    is_float: bool = False

    def __str__(self) -> str:
        return (
            ("fp" if self.is_float else "int") + str(self.bits) + (f":{self.group}" if self.group is not None else "")
        )


_SCHEMES = {str(s): s for s in (Scheme(8, None), Scheme(8, None, is_float=True), *(Scheme(4, g) for g in GROUPS))}
_SCHEMES["int4"] = _SCHEMES[f"int4:{_USUAL_GROUP}"]


def scheme_of(text: str, option: str = "Options.weights", outside: str = "Options.external_weights=True") -> Scheme:
    """The scheme that a text names. option: who has it, for the ValueError of another text; outside: what keeps weights
    in a file beside the bundle."""
    if text in _SCHEMES:
        return _SCHEMES[text]
    if text in ("embedded", "external"):
        where = "weights are in the bundle" if text == "embedded" else "weights go to a file beside the bundle"
        unless = "without" if text == "embedded" else "with"
        raise ValueError(f"{option} is {text!r}; {where} {unless} {outside}")
    raise ValueError(
        f'{option} is {text!r}; it may be "int8", "fp8" or "int4:GROUP", GROUP one of {", ".join(map(str, GROUPS))}; '
        f'"int4" is "int4:{_USUAL_GROUP}". Quantised activations are not there yet'
    )


def check_method(method: str, schemes: Sequence[Scheme], option: str = "Options.weights_method") -> None:
    """ValueError for a way to choose scales that none of the schemes has."""
    if method != METHODS[0] and schemes and all(s.is_float for s in schemes):
        raise ValueError(f'{option} is {method!r}, which chooses scales of integers; those of "fp8" are "{METHODS[0]}"')


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
    weights_method: how scales of integers are chosen: "nearest", by the largest weight, or "hqq", so that the error is
    small.
    compute: in which type products, convolutions and attention of float32 models take their operands: "f32", "bf16" or
    "f16". Results, sums, norms and softmax stay f32, and so do products for which 16 bits are not safe
    (docs/precision.md); the report of the export says how accurate the outputs are.
    keep_f32: modules whose products stay f32, as paths of named_modules(), with all that lies inside of them. * stands
    for any part of a path.
    tuning: the path of a tuning table, as `hardtack tune` writes it: its plans come before the shipped table's. "none":
    no table at all, not even the shipped one; the cost model chooses every plan.
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

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"Options.jobs is {self.jobs}; it must be at least 1, or None for one a core")
        if self.compute not in COMPUTES:
            raise ValueError(f'Options.compute is {self.compute!r}; it must be "f32", "bf16" or "f16"')
        for name in ("keep_f32", "keep_weights"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"Options.{name} is {getattr(self, name)!r}; it must be a tuple of patterns")
        if self.weights_method not in METHODS:
            raise ValueError(f'Options.weights_method is {self.weights_method!r}; it must be "nearest" or "hqq"')
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

    @property
    def scheme(self) -> Scheme | None:
        """What `weights` names."""
        return None if self.weights is None else scheme_of(self.weights)

    @property
    def embeddings_scheme(self) -> Scheme | None:
        """What `embeddings` names."""
        return None if self.embeddings is None else scheme_of(self.embeddings, "Options.embeddings")
