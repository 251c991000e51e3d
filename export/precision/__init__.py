"""From a Graph of float32 to one whose products take operands of 16 bits, where that is safe; and how far apart the
results of the two are. ADR 0031 has the reasons."""

from hardtack.exporter.precision.accuracy import Accuracy, AccuracyMeter, compare_outputs
from hardtack.exporter.precision.choice import DTYPES, Kept, Precision, matching
from hardtack.exporter.precision.conversions import Report, narrow

__all__ = [
    "DTYPES",
    "Accuracy",
    "AccuracyMeter",
    "Kept",
    "Precision",
    "Report",
    "compare_outputs",
    "matching",
    "narrow",
]
