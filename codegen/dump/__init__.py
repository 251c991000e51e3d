"""The dump of a compilation: folder.py writes it, links.py finds what belongs together, page.py shows it."""
