"""The GPU backend: scheduled kernels as Triton source, compiled to cubins. Only worker.py imports triton."""
