"""Choices that depend on the machine: tile sizes from shapes, dtypes and the target, without a device."""
