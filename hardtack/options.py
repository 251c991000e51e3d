"""What can be chosen when a model is exported."""

from __future__ import annotations

from dataclasses import dataclass

COMPUTES = ("f32", "bf16", "f16")
"""What Options.compute may be."""


@dataclass(frozen=True)
class Options:
    """Choices of an export; the defaults are right for most models.

    strict: capture with torch.export's strict mode, which follows Python bytecode, instead of running the module.
    compiler: the path of a system C++ compiler; None: the clang of the `ziglang` package, which builds for all targets.
    jobs: how many compilers run at once; None: one a core.
    debug: keep a listing of every stage in the bundle, under debug/.
    weights: "embedded" in the bundle; "external", in the file <its stem>.safetensors beside it, which goes with it.
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
    weights: str = "embedded"
    tuning: str | None = None
    compute: str = "f32"
    keep_f32: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"Options.jobs is {self.jobs}; it must be at least 1, or None for one a core")
        if self.weights not in ("embedded", "external"):
            raise ValueError(f'Options.weights is {self.weights!r}; it must be "embedded" or "external"')
        if self.compute not in COMPUTES:
            raise ValueError(f'Options.compute is {self.compute!r}; it must be "f32", "bf16" or "f16"')
        if isinstance(self.keep_f32, str):
            raise ValueError(f"Options.keep_f32 is {self.keep_f32!r}; it must be a tuple of patterns")
