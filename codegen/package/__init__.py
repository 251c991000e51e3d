"""The bundle: writing and reading `.pkg` files (docs/package.md)."""
