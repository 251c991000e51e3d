"""From a Graph and inputs to all of its values, op by op in eager torch: what every later stage is compared with, and
what computes the constants that rewrites fold."""
