"""The texts that name how many bits weights and activations have, and which of them go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

METHODS = ("nearest", "hqq", "gptq")
"""What Options.weights_method may be."""
BY_DATA = METHODS[2]
"""The method that takes calibration data."""
CACHES = ("int8", "fp8")
"""What Options.cache may be."""
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


@dataclass(frozen=True)
class ActivationScheme:
    """What activations in front of linear layers are rounded to, of 8 bits each: integers, or floats (e4m3).
    is_static: one scale for each layer, from calibration data; else one for each row, computed as the model runs."""

    is_float: bool
    is_static: bool = False

    def __str__(self) -> str:
        return "fp8" if self.is_float else f"int8:{'static' if self.is_static else 'dynamic'}"


_SCHEMES = {str(s): s for s in (Scheme(8, None), Scheme(8, None, is_float=True), *(Scheme(4, g) for g in GROUPS))}
_SCHEMES["int4"] = _SCHEMES[f"int4:{_USUAL_GROUP}"]
_ACTIVATIONS = {str(s): s for s in (ActivationScheme(True), ActivationScheme(False), ActivationScheme(False, True))}
_PAIRS = 'activations of int8 go with weights of "int8", those of fp8 with "fp8"'


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
        f'"int4" is "int4:{_USUAL_GROUP}"'
    )


def activation_scheme_of(text: str, is_calibrated: bool, option: str = "Options.activations") -> ActivationScheme:
    """The scheme that a text names: "int8" is static with calibration data, and dynamic without. option: who has it,
    for the ValueError of another text."""
    if text == "int8":
        return ActivationScheme(is_float=False, is_static=is_calibrated)
    if text in _ACTIVATIONS:
        return _ACTIVATIONS[text]
    raise ValueError(f'{option} is {text!r}; it may be "int8", "int8:dynamic", "int8:static" or "fp8"')


def check_method(method: str, schemes: Sequence[Scheme], option: str = "Options.weights_method") -> None:
    """ValueError for a way to choose scales or codes that none of the schemes has."""
    if method != METHODS[0] and schemes and all(s.is_float for s in schemes):
        what = "codes" if method == BY_DATA else "scales"
        raise ValueError(f'{option} is {method!r}, which chooses {what} of integers; those of "fp8" are "{METHODS[0]}"')


def check_data(
    weights: str | None,
    embeddings: str | None,
    activations: str | None,
    cache: str | None,
    method: str,
    is_calibrated: bool,
    named: Callable[[str], str],
) -> None:
    """ValueError for activations that do not go with the weights, for what takes calibration data where there are none,
    and for data that nothing takes. The texts of weights and embeddings are known ones. named: how the error spells the
    name of an option."""
    if activations is not None:
        wanted = activation_scheme_of(activations, is_calibrated, named("activations"))
        given = f"{named('activations')} is {activations!r}"
        if weights is None:
            raise ValueError(f"{given}, and {named('weights')} is not there; {_PAIRS}")
        if scheme_of(weights) != Scheme(8, None, wanted.is_float):
            raise ValueError(f"{given} and {named('weights')} {weights!r}; {_PAIRS}")
        if wanted.is_static and not is_calibrated:
            raise ValueError(f"{given}, whose scales come from data; give some by {named('calibration')}")
    if method == BY_DATA and weights is None and embeddings is not None:
        raise ValueError(
            f"{named('weights_method')} is {method!r}, which is for linear layers; give {named('weights')}"
        )
    if method == BY_DATA and weights is not None and not is_calibrated:
        raise ValueError(
            f"{named('weights_method')} is {method!r}, which rounds by data; give some by {named('calibration')}"
        )
    if is_calibrated and weights is None and embeddings is None and cache is None:
        raise ValueError(
            f"{named('calibration')} is there, and nothing to quantise; give {named('weights')}, "
            f"{named('embeddings')} or {named('cache')}"
        )


def check_cache(cache: str | None, keep: tuple[str, ...], compute: str, named: Callable[[str], str]) -> None:
    """ValueError for a word that no cache can be stored as, and for what does not go with it. named: how the error
    spells the name of an option."""
    if cache is None:
        if keep:
            raise ValueError(f"{named('keep_cache')} leaves states out of {named('cache')}, which is not there")
        return
    if cache not in CACHES:
        raise ValueError(f'{named("cache")} is {cache!r}; it may be "int8" or "fp8"')
    if compute != "f32":
        raise ValueError(
            f"{named('cache')} is {cache!r} and {named('compute')} {compute!r}; caches of few bits are there with "
            'compute "f32" only so far'
        )
