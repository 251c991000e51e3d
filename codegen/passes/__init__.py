"""Passes: what changes one IR and gives the same IR. shared/ has those of every device, gpu/ those of GPUs alone.

passes.py says what a pass is. A backend lists its passes by name in `passes()`; pipeline.py runs them, verifies after
each, and records its text.
"""
