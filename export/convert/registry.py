"""The whole conversion table: importing this module loads every family of convert functions."""

from __future__ import annotations

from hardtack.export import (
    convert_activations,  # noqa: F401
    convert_attention,  # noqa: F401
    convert_complex,  # noqa: F401
    convert_control,  # noqa: F401
    convert_creation,  # noqa: F401
    convert_indexing,  # noqa: F401
    convert_linalg,  # noqa: F401
    convert_norms,  # noqa: F401
    convert_pointwise,  # noqa: F401
    convert_pooling,  # noqa: F401
    convert_powers,  # noqa: F401
    convert_reductions,  # noqa: F401
    convert_rnn,  # noqa: F401
    convert_special,  # noqa: F401
    convert_strided,  # noqa: F401
    convert_sums,  # noqa: F401
    convert_views,  # noqa: F401
)
from hardtack.export.table import CONVERTERS, REFUSED

__all__ = ["CONVERTERS", "REFUSED"]
