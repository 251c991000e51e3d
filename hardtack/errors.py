"""What the front door raises. LoadError comes from hardtack.codegen.package, ExportError from hardtack.exporter."""

from __future__ import annotations


class HardtackError(Exception):
    """A problem that is neither the bundle's nor the inputs': a bug, or a machine without memory."""


class InputError(ValueError):
    """Inputs that break an entry point's contract. Nothing was run."""


class RunError(RuntimeError):
    """A run that began and failed: an index out of range, a failed assertion of the model, memory that ran out."""
