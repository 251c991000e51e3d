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
    """

    strict: bool = False
    compiler: str | None = None
    jobs: int | None = None
    debug: bool = False

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ValueError(f"Options.jobs is {self.jobs}; it must be at least 1, or None for one a core")
