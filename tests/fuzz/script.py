"""A failing program as a file of its own: needs torch and hardtack, prints eager's results beside ours."""

from __future__ import annotations

from tests.fuzz.outcome import Outcome
from tests.fuzz.program import Program, source
from tests.fuzz.tensors import Sizes, TensorSpec, sources
from tests.fuzz.ways import sizes_of

_HEAD = '''"""{title}"""

import math
from math import inf, nan

import torch
import torch.ao.quantization.fx._decomposed
import torch.nn.functional as F
from torch import nn

import hardtack
'''

_RUN = """

def show(way, found, want):
    for k, (ours, eager) in enumerate(zip(found, want)):
        ours = torch.as_tensor(ours).cpu()
        same = ours.dtype == eager.dtype and ours.shape == eager.shape
        if same and torch.equal(ours.nan_to_num(), eager.nan_to_num()):
            continue
        print(f"{way}, output {k}")
        print("  eager", eager)
        print("  ours ", ours)
        if same and ours.dtype != torch.bool:
            print("  largest difference", (ours.double() - eager.double()).abs().max().item())

"""

_GRAPH = """from hardtack.exporter import to_graphs
from hardtack.exporter.reference import outputs, run
from hardtack.trees import flattener

exported = to_graphs(Model().eval(), CALLS[0], None, {dynamic}, strict={strict}){narrowed}
entry = exported.entries["forward"]
graph, leaves = entry.graph, flattener(entry.in_tree, "forward")
for k, given in enumerate(CALLS):
    inputs = {{i.name: torch.as_tensor(x) for i, x in zip(graph.inputs, leaves(given, {{}}))}}
    values = run(graph, exported.store, inputs)
    with torch.no_grad():
        show(f"the graph, call {{k}}", outputs(graph, values), Model().eval()(*given))
"""

_NARROWED = """
from hardtack.exporter import narrowed
from hardtack.exporter.precision import DTYPES, Precision

exported, _ = narrowed(exported, Precision(DTYPES[{compute!r}], fewest=0))"""

_SMALL = """import functools

import hardtack.narrowing

hardtack.narrowing.Precision = functools.partial(hardtack.narrowing.Precision, fewest=0)
"""

_FILE = """{small}options = hardtack.Options(strict={strict}, compute={compute!r})
hardtack.export(
    Model().eval(), CALLS[0], path="program.pkg", dynamic_shapes={dynamic}, targets={targets}, options=options
)
for target, threads in {ways}:
    session = hardtack.load("program.pkg", device="{device}", target=target, threads=threads).session()
    model = Model().eval()
    for k, given in enumerate(CALLS):
        with torch.no_grad():
            show(f"{{target}}, {{threads}} threads, call {{k}}", session(*given), model(*given))
"""


def script(program: Program, outcome: Outcome, way: str) -> str:
    """The text of the file. way: "cpu", "cuda", "graph" or "interpreter"."""
    body, calls = source(program), [_arguments(program, sizes, salt) for sizes, salt in _calls(program, outcome)]
    told = " ".join(outcome.text.split())[:400].replace('"', "'")
    parts = [_HEAD.format(title=f"Seed {program.seed}: {outcome.kind}, {outcome.way}. {told}"), ""]
    parts += [sources(body + "".join(calls)), ""]
    if "cond(" in body or "while_loop(" in body:
        parts += ["cond, while_loop = torch.cond, torch._higher_order_ops.while_loop", ""]
    parts += ["", body, "", "CALLS = [", *(f"    {call}," for call in calls), "]"]
    return "\n".join(parts) + _RUN + _running(program, way)


def _calls(program: Program, outcome: Outcome) -> list[tuple[Sizes, int]]:
    """The example three times, as a session gets it, and the sizes at which it failed."""
    found: list[tuple[Sizes, int]] = [(program.example_sizes(), salt) for salt in (0, 1, 0)]
    if program.dynamic_shapes() is not None:
        rows = map(dict, sizes_of(program))
        found += [(row, 0) for row in rows if all(f"{s} = {n}" in outcome.text for s, n in row.items())]
    return found


def _arguments(program: Program, sizes: Sizes, salt: int) -> str:
    tensors = "".join(f"{i.expression(sizes, salt)}, " for i in program.inputs)
    return f"({tensors}{program.numbers_text([k.expression(sizes) for k in program.numbers])})".replace(", )", ",)")


def _running(program: Program, way: str) -> str:
    dynamic = "None"
    if program.dynamic_shapes() is not None:
        tensors = "".join(f"{_dims(program, i)}, " for i in program.inputs)
        dynamic = f"({tensors}{program.numbers_text([k.dim_text() for k in program.numbers])})"
    if way == "graph":
        narrowed = "" if program.compute == "f32" else _NARROWED.format(compute=program.compute)
        return _GRAPH.format(dynamic=dynamic, strict=program.strict, narrowed=narrowed)
    if way == "cpu":
        ways = [(t, n) for t in ("cpu:x86-64-v3", "cpu:x86-64-v4") for n in (1, 2)]
        targets, device = ("cpu",), "cpu"
    else:
        ways, targets, device = [("cuda:sm_90", 1)], ("cuda:sm_90",), "cuda"
    return _FILE.format(
        small="" if program.compute == "f32" else _SMALL,
        dynamic=dynamic,
        targets=targets,
        strict=program.strict,
        compute=program.compute,
        ways=ways,
        device=device,
    )


def _dims(program: Program, spec: TensorSpec) -> str:
    return f"{{{', '.join(f'{d}: {program.dim_text(s)}' for d, s in spec.symbols().items())}}}"
