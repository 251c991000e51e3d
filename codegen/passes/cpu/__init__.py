"""Passes of CPUs."""
