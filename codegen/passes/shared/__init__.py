"""Passes of every device."""
