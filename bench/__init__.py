"""Hardtack's benchmarks: speed, cold start and export time beside other ways to run a PyTorch model on a CPU."""
