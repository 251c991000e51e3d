"""The soak itself, for a few seconds: that it runs, and that it would say so if something were wrong."""

from __future__ import annotations

import random

import numpy as np
import pytest
import served
import soak
from soak import Report, Tally


def test_nothing_is_wrong_or_lost_in_a_few_seconds() -> None:
    report = soak.soak(6, 1 << 30)
    assert report.exit_code == 0
    assert not report.faults
    assert min(report.counts[what] for what in ("right", "broken off", "nonsense refused", "reloaded")) > 0


class Double:
    """A server that answers, and wrongly."""

    def infer(self, model: str, *arrays: np.ndarray, **more: object) -> served.Answer:  # type: ignore[type-arg]
        text = b'{"outputs": [{"name": "y", "data": %s}]}' % str([1.0] * arrays[0].size).encode()
        return served.Answer(200, {}, text)


def test_a_wrong_answer_is_told() -> None:
    tally = Tally()
    soak.honest(Double(), tally, random.Random(1))  # type: ignore[arg-type]
    assert tally.counts == {"wrong": 1}
    assert tally.faults[0].startswith("wrong: [[1.0, 1.0")


@pytest.mark.parametrize(
    ("counts", "late", "code", "good"),
    [
        ({"right": 9}, 109.0, 0, True),
        ({"right": 9, "wrong": 1}, 100.0, 0, False),
        ({"right": 9, "lost": 1}, 100.0, 0, False),
        ({"right": 9}, 111.0, 0, False),
        ({"right": 9}, 100.0, -9, False),
        ({}, 100.0, 0, False),
    ],
)
def test_what_is_good(counts: dict[str, int], late: float, code: int, good: bool) -> None:
    assert Report(1.0, counts, [], 100.0, late, 0.0, code).good == good
