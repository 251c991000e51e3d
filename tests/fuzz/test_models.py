"""A fixed sample of programs in each way that needs no GPU, and how programs are made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import hardtack
from tests.fuzz.capture import captured, graph_inputs
from tests.fuzz.children import Ended, Pool, Send
from tests.fuzz.command import parser
from tests.fuzz.draw import Drawer, Family, draw
from tests.fuzz.families import FAMILIES, control, numbers
from tests.fuzz.hunt import Hunt, outcomes, way_named
from tests.fuzz.numbers import Number, NumberSpec
from tests.fuzz.outcome import Outcome
from tests.fuzz.program import Line, Program, from_json, source, to_json
from tests.fuzz.script import script
from tests.fuzz.shrink import shrink
from tests.fuzz.sweeps import SWEEPS
from tests.fuzz.ways import Failed, Report, first_calls, guarded, oracle, refused_calls, sized_calls

ROOT = Path(__file__).resolve().parents[2]
GRAPHS = range(7000, 7012)
BUNDLE = range(7100, 7108)
INTERPRETED = range(7151, 7155)
SECONDS = 300.0
PARTS = 3
in_parts = pytest.mark.parametrize("part", range(PARTS))
"""Every third program of a sample: one part runs, and a sweep runs all."""


def check(way: str, seeds: Sequence[int], compute: str = "f32") -> None:
    found = outcomes(way_named(way), [replace(draw(s), compute=compute) for s in seeds], seconds=SECONDS)
    failed = [f"{o.seed} {o.kind}, {o.way}: {o.text}" for o in found if o.failed]
    assert not failed, "\n".join(failed)
    assert sum(o.kind == "right" for o in found) >= len(seeds) * 0.6


@pytest.mark.sweep(over="part")
@in_parts
def test_graphs_of_a_fixed_sample(part: int) -> None:
    check("graph", GRAPHS[part::PARTS])


@pytest.mark.sweep(over=("part", "compute"))
@in_parts
@pytest.mark.parametrize("compute", ["bf16", "f16"])
def test_graphs_whose_products_take_16_bits(compute: str, part: int) -> None:
    check("graph", GRAPHS[part::PARTS], compute)


@pytest.mark.sweep(over="part")
@in_parts
def test_a_file_whose_products_take_16_bits(part: int) -> None:
    check("cpu", BUNDLE[part::PARTS], "bf16")


@pytest.mark.sweep(over="part")
@pytest.mark.parametrize("part", range(2 * PARTS))
@pytest.mark.parametrize(
    ("sweep", "count"),
    [
        ("sizes", 25),
        ("writes", 15),
        ("strides", 25),
        ("indices", 30),
        ("dtypes", 40),
        ("reductions", 40),
        ("functions", 40),
        ("mends", 40),
        ("numbers", 15),
        ("quantised", 20),
        ("blocks", 9),
        ("caches", 6),
    ],
)
def test_a_sample_of_each_sweep(sweep: str, count: int, part: int) -> None:
    """Of the tables that sweeps.py has."""
    programs = [SWEEPS[sweep].program(seed) for seed in SWEEPS[sweep].sample(count, 40)[part :: 2 * PARTS]]
    found = outcomes(way_named("graph"), programs, seconds=SECONDS)
    failed = [f"{o.seed} {o.kind}, {o.way}: {o.text}" for o in found if o.failed]
    assert not failed, "\n".join(failed)
    assert sum(o.kind == "right" for o in found) >= len(programs) * 2 // 5


@pytest.mark.sweep(over="part")
@in_parts
def test_a_fixed_sample_in_one_file_on_the_cpu(part: int) -> None:
    check("cpu", BUNDLE[part::PARTS])


@pytest.mark.sweep(over="part")
@pytest.mark.parametrize("part", range(2))
def test_a_fixed_sample_through_tritons_interpreter(part: int) -> None:
    """In a process of its own: the interpreter is chosen when Triton is imported."""
    seeds = ",".join(map(str, INTERPRETED[part::2]))
    command = [sys.executable, "-m", "tests.fuzz", "models", "--interpreter", "--seeds", seeds]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert " right " in ran.stdout


@pytest.mark.parametrize("option", ["--jobs", "--count", "--together"])
@pytest.mark.parametrize(
    ("given", "message"), [("0", "0 is too few, give 1 or more"), ("many", "'many' is no whole number")]
)
def test_what_is_no_number_of_programs_is_refused(
    option: str, given: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["models", option, given])
    assert capsys.readouterr().err.endswith(f"error: argument {option}: {message}\n")


def test_the_fixed_samples_have_python_numbers() -> None:
    """As constants and as dynamic ints, also in tuples and dicts, on the graph and in a file."""
    assert any(k.dynamic for s in BUNDLE for k in draw(s).numbers)
    given = [draw(s) for s in GRAPHS if draw(s).numbers]
    assert len(given) >= 2
    assert any(k.dynamic for p in given for k in p.numbers)
    assert {p.packed for p in map(draw, range(100)) if p.numbers} == {"", "tuple", "dict"}
    constants = {type(k.value) for s in range(30) for k in draw(s, numbers.FAMILIES).numbers if not k.dynamic}
    assert constants == {int, float, bool}


def test_dynamic_ints_are_given_other_values() -> None:
    program = Program(
        1, (), (), (), (Line("torch.arange(4) * k0", ("v0",)),), ("v0",), numbers=(NumberSpec("k0", 3, "open"),)
    )
    given = {dict(plan.calls[0].sizes or ())["k0"] for plan in sized_calls(program)}
    assert len(given) >= 5
    assert all(n >= 0 for n in given)
    assert [o.kind for o in outcomes(way_named("graph"), [program], seconds=SECONDS)] == ["right"]


def test_programs_without_numbers_are_what_they_were() -> None:
    """What is drawn for numbers has its own stream: the seeds of docs/trust.md mean the same programs."""
    plain = [f for f in FAMILIES if not f.numbers]
    seeds = [s for s in range(20) if not Drawer(s, FAMILIES).numbered]
    assert len(seeds) > 10
    assert [source(draw(s)) for s in seeds] == [source(draw(s, plain)) for s in seeds]


@pytest.mark.parametrize("value", [3, -2, True, 0.5, 0.0, float("nan")])
def test_a_constant_must_be_given_as_it_was(value: Number) -> None:
    """Whatever refused() has is refused when a call is flattened; the constant itself is taken."""
    program = Program(
        2, (), (), (), (Line("torch.arange(3) * k0", ("v0",)),), ("v0",), numbers=(NumberSpec("k0", value),)
    )
    (entry,) = captured(program).entries.values()
    assert graph_inputs(entry, program.arguments()) == {}
    for what, arguments in refused_calls(program):
        with pytest.raises(hardtack.InputError) as caught:
            graph_inputs(entry, arguments)
        assert "when the model was exported" in str(caught.value), what


def test_a_seed_is_one_program() -> None:
    assert source(draw(7)) == source(draw(7))
    assert source(draw(7)) != source(draw(8))


def test_a_program_can_be_written_down() -> None:
    for seed in range(20):
        p = draw(seed)
        assert from_json(to_json(p)) == p
    numbered = [draw(s, numbers.FAMILIES) for s in range(30)]
    assert [repr(from_json(to_json(p))) for p in numbered] == [repr(p) for p in numbered]  # a NaN is not itself


def test_sizes_and_dtypes_are_drawn() -> None:
    """No kind of program is left out by a mistake in drawing."""
    programs = [draw(s) for s in range(60)]
    families = {f for p in programs for f in p.families}
    assert len(families) > 30
    assert {i.dtype for p in programs for i in p.inputs} >= {
        "float32",
        "float16",
        "bfloat16",
        "float64",
        "int64",
        "bool",
    }
    assert any(p.dynamic == "named" for p in programs)
    assert any(p.dynamic == "auto" for p in programs)
    assert any(p.writes() for p in programs)
    assert any(0 in i.shape for p in programs for i in p.inputs)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_every_family_has_lines_that_eager_takes(family: Family) -> None:
    """Alone, too: a family that needs what others make would be rare."""
    assert any(family.name in draw(s, [family]).families for s in range(8))


def test_conditionals_and_loops_are_exported() -> None:
    """Spelled as torch.export does not know it, a family would be refused whole, which is no failure."""
    programs = [p for p in (draw(s, control.FAMILIES) for s in range(20)) if len(p.lines) < 3][:3]
    assert {f for p in programs for f in p.families} == {"conditionals", "loops"}
    assert [o.kind for o in outcomes(way_named("graph"), programs, seconds=SECONDS)] == ["right"] * 3


def test_what_dies_is_told_from_what_hangs() -> None:
    def work(task: str, send: Send) -> None:
        send("begun")
        if task == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "hangs":
            time.sleep(60)
        if task == "raises":
            os._exit(3)

    ends: list[Ended] = []
    pool = Pool(work, 2, 3.0)
    pool.add(["dies", "hangs", "raises", "ends"])
    pool.run(ends.append)
    assert {e.task: e.how for e in ends} == {"dies": "signal 9", "hangs": "hang", "raises": "exit code 3", "ends": ""}
    assert all(e.sent == ("begun",) for e in ends)


def _dying(fatal: int) -> Callable[[Sequence[Program], Report], None]:
    def way(programs: Sequence[Program], report: Report) -> None:
        for p in programs:
            if p.seed == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            report(Outcome(p.seed, "right"))

    return way


def test_a_program_that_dies_is_found_among_the_others() -> None:
    found: list[Outcome] = []
    Hunt(_dying(3), lambda seed: Program(seed, (), (), (), (), ()), jobs=2, seconds=30, on_outcome=found.append).run(
        range(7), 4
    )
    assert sorted((o.seed, o.kind) for o in found) == [(s, "crash" if s == 3 else "right") for s in range(7)]


def test_a_file_that_dies_of_no_program_alone_is_a_crash() -> None:
    def way(programs: Sequence[Program], report: Report) -> None:
        if len(programs) > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        report(Outcome(programs[0].seed, "right"))

    found: list[Outcome] = []
    Hunt(way, lambda seed: Program(seed, (), (), (), (), ()), jobs=2, seconds=30, on_outcome=found.append).run(
        range(3), 3
    )
    assert [o.kind for o in found].count("crash") == 1
    assert next(o for o in found if o.failed).bundle == (0, 1, 2)


def _without_relu(programs: Sequence[Program], report: Report) -> None:
    """A way in which whatever calls relu fails."""

    def run(p: Program) -> None:
        if oracle(p, first_calls(p)) is None:
            raise Failed("skipped", "eager refuses it")
        if any("relu" in line.text for line in p.lines):
            raise ZeroDivisionError("relu")

    for p in programs:
        report(guarded(p, "without relu", lambda notes, p=p: run(p)))  # type: ignore[misc]


def test_what_fails_is_shrunk_to_a_script_that_runs(tmp_path: Path) -> None:
    programs = (p for p in map(draw, range(200)) if not p.dynamic and all(line.targets for line in p.lines))
    program = next(p for p in programs if "torch.relu(" in source(p))
    found = shrink(program, _without_relu, seconds=30)
    assert found.outcome.kind == "internal"
    assert len(found.program.lines) == 1
    path = tmp_path / "script.py"
    path.write_text(script(found.program, found.outcome, "graph"), encoding="utf-8")
    subprocess.run([sys.executable, path], check=True, timeout=SECONDS)


def test_a_way_must_be_known() -> None:
    assert way_named("graph") is not way_named("cpu")


@pytest.mark.parametrize("seed", [1, 2])
def test_inputs_do_not_change_from_call_to_call(seed: int) -> None:
    p = draw(seed)
    for a, b in zip(p.arguments(), p.arguments(), strict=True):
        assert torch.equal(a.nan_to_num(), b.nan_to_num())
