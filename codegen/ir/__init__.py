"""The intermediate representations, one file each: grammar, classes, verifier, text."""
