"""What `./dev test` leaves to `./dev test --sweep`."""

from __future__ import annotations

import sys

import pytest
import sweep

pytest_plugins = ["pytester"]


def of(mark: str) -> str:
    return f"""
        import pytest

        @pytest.mark.parametrize("target", "xyz")
        @pytest.mark.parametrize("row", range(40))
        @pytest.mark.sweep({mark})
        def test_product(row, target): pass

        def test_alone(): pass
    """


def parameters(items: list[pytest.Item]) -> list[tuple[int, str]]:
    calls = [item.callspec.params for item in items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    return [(params["row"], params["target"]) for params in calls]


def test_every_row_has_one_value_of_what_is_thinned_over(pytester: pytest.Pytester) -> None:
    chosen, left_out = sweep.thin(pytester.getitems(of("over='target'")))
    assert [row for row, _ in parameters(chosen)] == list(range(40))
    assert {target for _, target in parameters(chosen)} == set("xyz")
    assert chosen[-1].name == "test_alone"
    assert len(left_out) == 80


def test_the_same_is_chosen_where_rows_are_functions(pytester: pytest.Pytester) -> None:
    """Workers must agree, and each has the functions elsewhere in memory."""
    functions = of("over='target'").replace("range(40)", "[lambda: k for k in range(40)]")
    chosen = []
    for _ in range(2):
        chosen.append(sweep.thin(pytester.getitems(functions))[0])
        sys.modules.pop("test_the_same_is_chosen_where_rows_are_functions")
    assert len(chosen[0]) == 41
    assert [item.name for item in chosen[0]] == [item.name for item in chosen[1]]


def test_a_share_of_all_combinations(pytester: pytest.Pytester) -> None:
    chosen, left_out = sweep.thin(pytester.getitems(of("share=4")))
    assert 15 < len(parameters(chosen)) < 45
    assert len(chosen) + len(left_out) == 121
    assert chosen[-1].name == "test_alone"


def test_a_value_that_only_a_sweep_runs(pytester: pytest.Pytester) -> None:
    rare = of("over='target'").replace('"xyz"', '[*"xyz", pytest.param("w", marks=pytest.mark.sweep(only=True))]')
    chosen, left_out = sweep.thin(pytester.getitems(rare))
    assert [row for row, _ in parameters(chosen)] == list(range(40))
    assert {target for _, target in parameters(chosen)} == set("xyz")
    assert len(left_out) == 120


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("4", "a sweep mark takes share=N, over=NAMES or only=True, not (4,) {}"),
        ("over='device'", "is to be thinned over 'device', which is none of its parameters"),
    ],
)
def test_a_mark_that_says_something_else(mark: str, message: str, pytester: pytest.Pytester) -> None:
    with pytest.raises(pytest.UsageError) as caught:
        sweep.thin(pytester.getitems(of(mark)))
    assert message in str(caught.value)


def test_random_examples_are_half_of_a_sweeps(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    assert sweep.runs_all == request.config.getoption("--sweep")
    for runs_all, wanted in ((False, [1, 6, 13]), (True, [1, 12, 25])):
        monkeypatch.setattr(sweep, "runs_all", runs_all)
        assert [sweep.num_examples(count) for count in (1, 12, 25)] == wanted
