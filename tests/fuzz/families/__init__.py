"""What programs are drawn from: one file for each group of ops."""

from __future__ import annotations

from tests.fuzz.draw import Family
from tests.fuzz.families import attention, control, indexing, layers, pointwise, products, reductions, views, writes

FAMILIES: tuple[Family, ...] = (
    *pointwise.FAMILIES,
    *reductions.FAMILIES,
    *views.FAMILIES,
    *indexing.FAMILIES,
    *products.FAMILIES,
    *layers.FAMILIES,
    *attention.FAMILIES,
    *writes.FAMILIES,
    *control.FAMILIES,
)
