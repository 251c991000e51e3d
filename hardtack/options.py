"""What can be chosen when a model is exported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Choices of an export; the defaults are right for most models.

    strict: capture with torch.export's strict mode, which follows Python bytecode, instead of running the module.
    compiler: the path of a system C++ compiler; None: the clang of the `ziglang` package, which builds for all targets.
    jobs: how many compilers run at once; None: one a core.
    debug: keep a listing of every stage in the bundle, under debug/.
    weights: "embedded" in the bundle; "external", in the file <its stem>.safetensors beside it, which goes with it.
    tuning: the path of a tuning table, as `hardtack tune` writes it: its plans come before the shipped table's. "none":
    no table at all, not even the shipped one; the cost model chooses every plan.
    """

    strict: bool = False
    compiler: str | None = None
    jobs: int | None = None
    debug: bool = False
    weights: str = "embedded"
    tuning: str | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"Options.jobs is {self.jobs}; it must be at least 1, or None for one a core")
        if self.weights not in ("embedded", "external"):
            raise ValueError(f'Options.weights is {self.weights!r}; it must be "embedded" or "external"')
