"""The models that no tuning table knows: they build, are captured and get plans, none of them from a shipped table."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import torch

from bench import gpu_models, gpu_others
from hardtack.api import sources_of
from hardtack.codegen.pipeline import compile_entry
from hardtack.codegen.targets import backends_for
from hardtack.codegen.tune.choice import shapes_in_tables
from hardtack.codegen.tune.table import SHIPPED
from hardtack.exporter import to_graphs


def test_names_say_what_is_inside() -> None:
    assert len(gpu_others.names()) >= 12
    assert not set(gpu_others.names()) & set(gpu_models.names())
    for name, model in gpu_others.MODELS.items():
        assert (model.dtype is torch.float32) == name.endswith("_f32")
    assert {m.dtype for m in gpu_others.MODELS.values()} == {torch.float32, torch.float16, torch.bfloat16}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Other tests run at once; more threads than cores wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.sweep(share=6)
@pytest.mark.parametrize("name", gpu_others.names())
def test_no_shipped_table_knows_a_shape(name: str) -> None:
    """Of the model with fewer layers, as they repeat the same shapes, and in bfloat16, of which most of a table is."""
    if not all(map(find_spec, ("transformers", "timm"))):
        pytest.skip("transformers or timm is not there")
    case = gpu_others.build(name, "cpu", torch.bfloat16, depth=1)
    assert {p.dtype for p in case.module.parameters()} == {torch.bfloat16}
    source = sources_of(to_graphs(case.module, case.args), case.module, case.args, None)["forward"]
    for path in SHIPPED.glob("*.json"):
        (backend,) = backends_for([f"cuda:{path.stem}"])
        found = shapes_in_tables(compile_entry(source.graph, source.hints, backend).decisions)
        assert len(found) >= 4
        assert not any(found.values()), [key for key, tabled in found.items() if tabled]


def test_a_decoders_step_changes_its_cache_at_its_place() -> None:
    pytest.importorskip("transformers")
    case = gpu_others.build("qwen3_896_decode", "cpu", depth=1)
    ids, position = case.args
    before = case.module.keys_0.clone()
    first = case.module(ids, position)
    assert torch.equal(first, case.module(ids, position))
    changed = (case.module.keys_0 != before).any(3).any(1)[0]
    assert changed.nonzero().flatten().tolist() == position.tolist()
    case.module.values_0[:, :, int(position) + 1 :] = 1000.0  # masked
    assert torch.equal(first, case.module(ids, position))
