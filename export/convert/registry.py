"""The whole conversion table: importing this module loads every family of convert functions."""

from __future__ import annotations

from hardtack.exporter.convert import (
    activations,  # noqa: F401
    attention,  # noqa: F401
    complex,  # noqa: F401
    complex_functions,  # noqa: F401
    complex_values,  # noqa: F401
    control,  # noqa: F401
    creation,  # noqa: F401
    fourier,  # noqa: F401
    indexing,  # noqa: F401
    linalg,  # noqa: F401
    norms,  # noqa: F401
    pointwise,  # noqa: F401
    pooling,  # noqa: F401
    powers,  # noqa: F401
    random_numbers,  # noqa: F401
    reductions,  # noqa: F401
    rnn,  # noqa: F401
    special,  # noqa: F401
    special_bessel,  # noqa: F401
    special_normal,  # noqa: F401
    special_polynomials,  # noqa: F401
    strided_views,  # noqa: F401
    sums,  # noqa: F401
    value_sizes,  # noqa: F401
    views,  # noqa: F401
)
from hardtack.exporter.convert.table import CONVERTERS, REFUSED

__all__ = ["CONVERTERS", "REFUSED"]
