"""Kernels of ours for ops that are no nests: C++ text that is called as users' kernels are (ADR 0068).

Takes: an op's name in torch. Gives: its UserKernel, or None. May import: no other stage.
"""
