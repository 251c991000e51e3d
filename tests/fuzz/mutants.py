"""All faults that are put in on purpose. mutant_hunt.py counts the programs until the fuzzer finds each."""

from __future__ import annotations

from tests.fuzz.mutants_codegen import CODEGEN
from tests.fuzz.mutants_export import EXPORT
from tests.fuzz.mutants_precision import PRECISION

MUTANTS = (*CODEGEN, *EXPORT, *PRECISION)
