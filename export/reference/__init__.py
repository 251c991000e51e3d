"""From a Graph and inputs to all of its values, op by op in eager torch: what every later stage is compared with, and
what computes the constants that rewrites fold."""

from hardtack.exporter.reference.interpreter import bind_sizes, outputs, results, results_and_states, run, run_op
from hardtack.exporter.reference.step import ReferenceFailure

__all__ = ["ReferenceFailure", "bind_sizes", "outputs", "results", "results_and_states", "run", "run_op"]
