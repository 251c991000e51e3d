"""The simulated schedule: a share of the tasks for each worker, and the rest of the others' for whoever is done."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from bench.schedule import (
    HYBRIDS,
    PRODUCTS,
    Product,
    Rates,
    efficiency,
    gain,
    main,
    make_grid,
    region_s,
    share_out,
    tasks_of,
)

FREE = Rates(products=1.0, wake_s=0.0, hand_out_s=0.0, end_s=0.0)


def test_shares_are_as_long_as_whole_tasks_allow() -> None:
    assert share_out(10, 4) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert share_out(2, 64) == [[0], [1]]


def test_tasks_go_to_whoever_is_free() -> None:
    assert region_s([4, 4, 4, 4, 4, 4], [1.0, 0.25], FREE) == 20  # the fast one takes all but the slow one's first
    assert region_s([4, 4, 4, 4], [1.0, 1.0], FREE) == 8
    assert region_s([4, 4, 4], [1.0, 1.0], FREE) == 8
    assert region_s([4, 4, 4], [1.0, 0.5], FREE) == 8
    assert region_s([4, 4], [1.0, 0.25], FREE) == 16  # a slow core holds up the run


def test_waking_handing_out_and_ending_take_their_time() -> None:
    rates = Rates(products=1.0, wake_s=3.0, hand_out_s=0.5, end_s=0.25)
    assert region_s([10, 10], [1.0, 1.0], rates) == 3.0 + 0.5 + 10 + 0.25
    assert region_s([1, 1], [1.0, 1.0], rates) == 2 * 1.5 + 0.25  # both done before the worker is awake
    assert region_s([10], [1.0, 1.0], rates) == 10  # one task stays on the caller's thread
    assert region_s([10, 10], [1.0], rates) == 20


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda p: p.name)
@pytest.mark.parametrize("workers", [1, 2, 16, 64])
def test_all_of_a_product_is_in_its_tasks(product: Product, workers: int) -> None:
    tasks = list(tasks_of(product, make_grid(product, workers)))
    assert sum(tasks) == product.batches * product.m * -(-product.n // 32) * 32 * product.k
    assert len(tasks) == 1 or workers > 1


def test_a_core_alone_is_busy_and_four_times_the_cores_hold_nothing_up() -> None:
    rates = Rates(load_rows=16)
    for product in PRODUCTS:
        assert efficiency(product, [1.0], rates) == 1.0
        assert efficiency(product, [1.0] * 64, rates) * 64 > efficiency(product, [1.0] * 16, rates) * 16 * 0.99


def test_without_delays_cores_are_busy() -> None:
    ideal = replace(FREE, products=1e11)
    assert efficiency(Product("", 1, 1024, 1024, 1024), [1.0] * 16, ideal) > 0.95


def test_slow_cores_gain_where_the_runtime_takes_them() -> None:
    """What worthwhile_cores of runtime_cpp/src/cpus.cpp decides by a bound; test_cpus.cpp has the same CPUs."""
    left_out = {"8 and 4 at 0.4", "4 and 4 at 0.25"}
    for name, (fast, slow) in HYBRIDS.items():
        gains = [gain(fast, slow, Rates(load_rows=rows)) for rows in (0, 16)]
        assert (sum(gains) / 2 > 1.05) == (name not in left_out), (name, gains)


def test_it_prints_a_row_for_each_product() -> None:
    result = CliRunner().invoke(main, ["--load-rows", "16"])
    assert result.exit_code == 0, result.output
    for product in PRODUCTS:
        assert product.name in result.output
    for name in HYBRIDS:
        assert name in result.output
