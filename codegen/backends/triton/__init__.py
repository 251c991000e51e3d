"""The GPU backend: scheduled kernels as Triton source, compiled to machine code. Only worker.py imports triton."""
