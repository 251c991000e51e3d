"""Passes that only GPUs gain by."""
