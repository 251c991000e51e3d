"""From kernels to a plan: lifetimes and memory, launches, and the constants that kernels read."""
