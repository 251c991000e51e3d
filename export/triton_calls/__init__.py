"""Calls of users' Triton kernels become calls of ops of torch, which are traced as any: launch_ops.py says how. Triton
itself is not imported: who has a kernel has imported it.

Takes: a kernel with its arguments, while torch traces. Gives: calls of ops. May import: sizes.
"""
