"""Hardtack's benchmarks: speed (python -m bench), cold start (bench.cold), export time (bench.export_time), and where
the time of a model goes (bench.steps)."""
