"""Cases of PyTorch's own examples of torch.export, those that it says are supported."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from tests.coverage.cases import Case, Made


def cases() -> Iterator[Case]:
    from torch._export.db.case import SupportLevel
    from torch._export.db.examples import all_examples

    for name, example in sorted(all_examples().items()):
        if example.support_level is SupportLevel.SUPPORTED:
            yield Case("exportdb", name, functools.partial(_made, example))


def _made(example: Any) -> Made:
    others = (example.extra_args,) if example.extra_args else ()
    return Made(example.model.eval(), example.example_args, example.example_kwargs, example.dynamic_shapes, others)
