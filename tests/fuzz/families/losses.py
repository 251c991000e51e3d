"""Losses."""

from __future__ import annotations

from tests.fuzz.families.forms import table

LOSSES = table(
    "losses",
    0.9,
    lambda g: g.floats(),
    """
    F.mse_loss({a}, {same} * 0.5)
    F.mse_loss({a}, {same} * 0.5, reduction="none")
    F.l1_loss({a}, {same} * 0.5)
    F.smooth_l1_loss({a}, {same} * 0.9)
    F.smooth_l1_loss({a}, {same} * 0.5, beta=0.3, reduction="none")
    F.huber_loss({a}, {same} * 0.9, delta=0.5)
    F.huber_loss({a}, {same} * 0.5, reduction="none")
    F.soft_margin_loss({a}, {same}.sign())
    F.soft_margin_loss({a}, {same}.sign(), reduction="none")
    F.hinge_embedding_loss({a}, {same}.sign())
    F.margin_ranking_loss({a}, {same} * 0.5, {a}.sign(), 0.1)
    F.binary_cross_entropy_with_logits({a}, {same}.sigmoid())
    F.kl_div({a}.log_softmax({d}), {same}.softmax({d}), reduction="sum")
    F.poisson_nll_loss({a}.clamp(-2, 2), {same}.abs())
    F.cross_entropy({a}, {same}.softmax(1))
    F.cross_entropy({a}, {a}.argmax(1))
    """,
)

FAMILIES = (LOSSES,)
