"""What programs are drawn from: one file for each group of ops."""

from __future__ import annotations

from tests.fuzz.draw import Family
from tests.fuzz.families import (
    attention,
    behind,
    control,
    indexing,
    layers,
    losses,
    numbers,
    pointwise,
    products,
    reductions,
    sizes,
    views,
    writes,
)

FAMILIES: tuple[Family, ...] = (
    *pointwise.FAMILIES,
    *losses.FAMILIES,
    *reductions.FAMILIES,
    *views.FAMILIES,
    *sizes.FAMILIES,
    *indexing.FAMILIES,
    *products.FAMILIES,
    *behind.FAMILIES,
    *layers.FAMILIES,
    *attention.FAMILIES,
    *writes.FAMILIES,
    *control.FAMILIES,
    *numbers.FAMILIES,
)
