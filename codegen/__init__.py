"""Hardtack's code generator: Graph -> loop nests -> groups -> loop trees -> kernels + plan -> bundle. No torch here."""
