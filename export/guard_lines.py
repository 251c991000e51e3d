"""Source lines for the conditions that torch's operators put on sizes.

When a module is traced without torch's bytecode analysis, torch notes for such a condition only the line of its own
operator. Inside `noted_lines()` the line of the model that called the operator is noted as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch.fx.experimental.symbolic_shapes import ShapeEnv

from hardtack.export.origin import calling_line


@contextlib.contextmanager
def noted_lines() -> Iterator[None]:
    """Complete what torch.fx's ShapeEnv notes of a condition's origin, for the time of a capture."""
    original = ShapeEnv._get_stack_summary

    def complete(self: ShapeEnv, *args: Any, **kwargs: Any) -> Any:
        place, extra = original(self, *args, **kwargs)
        if getattr(place, "maybe_user_loc", None) is None:
            found = calling_line()
            if found is not None:
                text = f"{found.source}  # {found.file}:{found.line} in forward"
                place = replace(place, maybe_user_loc=text)
        return place, extra

    ShapeEnv._get_stack_summary = complete  # type: ignore[method-assign]
    try:
        yield
    finally:
        ShapeEnv._get_stack_summary = original  # type: ignore[method-assign]
