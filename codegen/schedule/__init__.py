"""From nests to kernels: which nests share one (fuse.py), and its loops or tiles (tile.py, gpu_tile.py)."""
