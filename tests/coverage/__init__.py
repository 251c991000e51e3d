"""How much of what torch.export captures has a bundle: suites of others and a list of features, each against eager.

    python -m tests.coverage [opinfo|exportdb|features ...] [--dtype float32] [--only TEXT] [--jobs 2] [--write]

torch's own op suite (OpInfo, its first three samples of each entry, in every dtype that eager takes on a CPU),
PyTorch's examples of torch.export (exportdb), and features that models use. `cases.py` has what a case is, `check.py`
compiles many of them into one file, runs and judges them, `report.py` writes docs/coverage.md.
"""
