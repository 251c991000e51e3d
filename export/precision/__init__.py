"""From a Graph of float32 to one whose products take operands of 16 bits, where that is safe; from one with caches of
keys and values to one that stores these as codes; and how far apart the results of the two are. ADR 0031 and 0058 have
the reasons."""

from hardtack.exporter.precision.accuracy import Accuracy, AccuracyMeter, compare_outputs
from hardtack.exporter.precision.cache_codes import Reads, with_codes
from hardtack.exporter.precision.caches import CACHES, Cache, CacheChoice, KeptState, chosen_caches
from hardtack.exporter.precision.choice import DTYPES, Kept, Precision, matching
from hardtack.exporter.precision.conversions import Report, narrow

__all__ = [
    "CACHES",
    "DTYPES",
    "Accuracy",
    "AccuracyMeter",
    "Cache",
    "CacheChoice",
    "Kept",
    "KeptState",
    "Precision",
    "Reads",
    "Report",
    "chosen_caches",
    "compare_outputs",
    "matching",
    "narrow",
    "with_codes",
]
