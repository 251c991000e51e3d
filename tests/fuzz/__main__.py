"""python -m tests.fuzz: see command.py."""

from __future__ import annotations

import os
import sys

from tests.fuzz.command import main

try:
    code = main()
except BrokenPipeError:  # nobody reads on, as behind `| head`: the exit must not try again to write what is left
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    code = 1
sys.exit(code)
