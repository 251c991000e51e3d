"""Models that the tests, benchmarks and demos share: trained ones from PyPI packages, and small seeded transformers."""
