"""Options.cache: caches of keys and values as codes, and how accurate the result is at the calibration data or the
example inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hardtack.calibration import Calibration, Example
from hardtack.codegen.notes import ours
from hardtack.errors import InputError
from hardtack.exporter import EntryGraph, Exported, ExportError, with_caches
from hardtack.exporter.precision import Accuracy, AccuracyMeter, CacheChoice, KeptState, Reads
from hardtack.exporter.reference import results_and_states
from hardtack.model_copies import outputs_of_copy
from hardtack.narrowing import example, input_tensors
from hardtack.options import Options
from hardtack.perplexity import Perplexity, PerplexityMeter, perplexity_meter

States = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Found:
    """Which states are stored as codes, as what, and what reads them."""

    scheme: str
    choice: CacheChoice
    reads: Reads


@dataclass(frozen=True)
class CachedState:
    """A state whose rows, along the last dimension, are stored as codes, with a scale for each in the state `scales`.
    dtype: as it was; nbytes, stored_nbytes: of one session, as it was and of codes and scales."""

    name: str
    scales: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    stored_nbytes: int


@dataclass(frozen=True)
class Cached:
    """What Options.cache did. scheme: "int8" or "fp8"; kept: states that stay as they are, and why. nbytes,
    stored_nbytes: of all states that do not. num_attentions: that read codes; widened: the other ops that read caches,
    by where they stand, for which numbers are made first. num_examples: of calibration data; 0 without. accuracy: of
    each output at these, else at the example inputs, by entry point, in one session: each run goes on with the states
    of the one before. perplexity: of language models, by entry point."""

    scheme: str
    states: tuple[CachedState, ...]
    kept: tuple[KeptState, ...]
    nbytes: int
    stored_nbytes: int
    num_attentions: int
    widened: tuple[str, ...]
    num_examples: int
    accuracy: Mapping[str, tuple[Accuracy, ...]]
    perplexity: Mapping[str, Perplexity]


def cache_states(exported: Exported, options: Options) -> tuple[Exported, Found | None]:
    """The model as Options.cache has it: itself for None. Raises InputSpecError for one without caches, and for a
    pattern that names none."""
    if options.cache is None:
        return exported, None
    made, choice, reads = with_caches(exported, options.cache, options.keep_cache)
    return made, Found(options.cache, choice, reads)


def cache_report(
    wide: Exported,
    chosen: Exported,
    found: Found,
    model: Any,
    args: Any,
    kwargs: Any,
    calibration: Calibration | None,
) -> Cached:
    """The report of an export: the graphs with caches as they were, and as codes, are both run by their reference.
    model: what the graphs were captured of. Raises InternalError for what is a bug of Hardtack."""
    choice, reads = found.choice, found.reads
    states = tuple(
        CachedState(c.name, c.scales, str(c.dtype), c.shape, c.nbytes, c.stored_nbytes) for c in choice.caches
    )
    accuracy: dict[str, tuple[Accuracy, ...]] = {}
    perplexity: dict[str, Perplexity] = {}
    with ours("the measurement of the accuracy", ExportError, InputError), torch.no_grad():
        exact, coded = _Session(wide), _Session(chosen)
        for name, entry in wide.entries.items():
            one, given, named = example(model, args, kwargs, name)
            examples = calibration.of(name) if calibration is not None else ()
            examples = examples or ((Example(given, named),) if given or named else ())
            if examples:
                accuracy[name], language = _measured(one, entry, exact, coded, examples)
                perplexity |= {} if language is None else {name: language}
    return Cached(
        scheme=found.scheme,
        states=states,
        kept=choice.kept,
        nbytes=sum(s.nbytes for s in states),
        stored_nbytes=sum(s.stored_nbytes for s in states),
        num_attentions=reads.num_attentions,
        widened=tuple(reads.widened),
        num_examples=0 if calibration is None else calibration.count,
        accuracy=accuracy,
        perplexity=perplexity,
    )


class _Session:
    """A model's entry points on states of their own, as a session has them."""

    def __init__(self, exported: Exported) -> None:
        self._exported = exported
        self._states: States = {}

    def run(self, entry: str, inputs: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        graph = self._exported.entries[entry].graph
        outputs, states = results_and_states(graph, self._exported.store, inputs, self._states)
        self._states |= states
        return outputs


def _measured(
    model: Any, entry: EntryGraph, exact: _Session, found: _Session, examples: Sequence[Example]
) -> tuple[tuple[Accuracy, ...], Perplexity | None]:
    """Of the outputs at all examples together, one behind the other."""
    name, names = entry.graph.name, entry.graph.output_names
    meters = [AccuracyMeter(n) for n in names]
    language: PerplexityMeter | None = None
    for number, x in enumerate(examples):
        inputs = input_tensors(entry, x.args, x.kwargs)
        wide, got = exact.run(name, inputs), found.run(name, inputs)
        if number == 0 and isinstance(model, nn.Module):
            own = outputs_of_copy(model, x.args, x.kwargs)
            language = perplexity_meter(model, x, names, own) if len(own) == len(names) else None
        for meter, a, b in zip(meters, got, wide, strict=True):
            meter.add(a, b)
        if language is not None:
            language.add(x, got, wide)
    return tuple(m.result() for m in meters), None if language is None else language.result()
