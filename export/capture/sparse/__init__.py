"""Sparse tensors: while a module is traced each is its parts, and calls that take it are done with those (ADR 0075)."""
