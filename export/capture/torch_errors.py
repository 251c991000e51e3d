"""What torch raises while a module is captured, as errors that say what the user wrote and can change."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import torch

from hardtack.codegen.notes import InternalError
from hardtack.exporter.errors import CaptureError, ExportError, InputSpecError, MutationError, SourceLine
from hardtack.exporter.origin import exception_line, raised_here


def translated(error: Exception) -> ExportError | InternalError:
    """torch's exception, or one of the model's code that torch runs, as ours."""
    if raised_here(error):
        return InternalError("the capture", error, exception_line(error))
    text = str(error)
    where = exception_line(error)
    name = type(error).__name__
    first = _first_sentence(text) or name
    known = _known(text, where)
    if known is not None:
        return known
    if name in _OF_VALUES or "data-dependent" in text:
        return _of_a_value(text, where)
    if "dynamic_shapes" in text or ("Dim" in first and "constraint" in text.lower()):
        return InputSpecError(first, where, "make dynamic_shapes match the example inputs")
    if name == "Unsupported" or "graph break" in text.lower():
        return CaptureError(f"a call cannot be traced: {first}", where, "move it out of the exported module")
    return CaptureError(
        f"tracing failed with {name}: {first}",
        where,
        "make sure that the module runs on the example inputs; if it does, move out of it what torch cannot trace",
    )


_OF_VALUES = ("GuardOnDataDependentSymNode", "PendingUnbackedSymbolNotFound", "DataDependentOutputException")
_COMPARED = re.compile(r"Could not guard on data-dependent expression \w+\(|data-dependent expression [^(]*[<>=]")

_SIZE = re.compile(
    r"Could not guard on data-dependent expression (?P<condition>.+?) \(unhinted: .*Size-like symbols: (?!none\b)"
)


def _of_a_value(text: str, where: SourceLine | None) -> ExportError:
    """Python asks for the value of a tensor, for a branch or as a number, or torch for a size that the run computes."""
    asked = _SIZE.search(text)
    if asked is not None:
        return CaptureError(
            f"whether {asked['condition']} decides what torch traces, of a size that the run computes",
            where,
            "say what holds in front of it, as in torch._check(y.shape[0] > 0), or take an op that does without",
        )
    if _COMPARED.search(text):
        return CaptureError(
            "Python control flow depends on the value of a tensor",
            where,
            "replace the branch by torch.where or torch.cond, int(x) of a bool by x.to(torch.int64)",
        )
    return CaptureError(
        "the value of a tensor is needed as a Python number while the module is captured",
        where,
        "keep it a tensor: y[i.reshape(1)] = z instead of y[i] = z, x.to(torch.int64) instead of int(x); a number that "
        "never changes can be read once, in the module's constructor",
    )


def _is_dataclass(name: str) -> bool:
    """True for the qualified name of a dataclass, as far as it can be found by name."""
    module, _, rest = name.rpartition(".")
    return dataclasses.is_dataclass(getattr(sys.modules.get(module), rest, None))


_UNKNOWN_CLASS = re.compile(r"(?:Unsupported (?P<input>input) type|Found) <class '(?P<name>[^']+)'>")
_UNHASHABLE = re.compile(r"unhashable type: '(?P<name>\w+)'")
_PLAIN_TENSOR = re.compile(r"Constant (?P<name>\S+) is mutated in the forward method")


def _refused_class(text: str, where: SourceLine | None) -> tuple[str, bool] | None:
    """(its name, whether it is among the inputs) of the class of a value that torch cannot take apart."""
    found = _UNKNOWN_CLASS.search(text)
    if found is not None:
        return found["name"], found["input"] is not None
    found = _UNHASHABLE.fullmatch(text)
    if found is not None and where is not None and Path(where.file).name == "weakref.py":
        return found["name"], False  # torch 2.11 looks each result up that it does not know
    return None


def _known(text: str, where: SourceLine | None) -> ExportError | None:
    """torch's text as our own sentence, where torch's does not say what to do."""
    refused = _refused_class(text, where)
    if refused is not None:
        name, is_input = refused
        kind = name.rpartition(".")[2]
        known = f", or torch.export.register_dataclass({kind})" if _is_dataclass(name) else ""
        place = "pass the tensors that it holds" if is_input else "return the tensors that it holds"
        return InputSpecError(
            f"the {'inputs' if is_input else 'outputs'} contain a {kind}, which torch cannot take apart",
            fix=f"{place}, in tuples, lists and dicts{known}",
        )
    found = _PLAIN_TENSOR.search(text)
    if found is not None:
        return MutationError(
            f"forward writes to {found['name']}, a tensor that is no registered buffer",
            fix=f'register it: self.register_buffer("{found["name"].rpartition(".")[2]}", ...); it becomes a state',
        )
    if "torch.classes." in text:
        return CaptureError(
            "the module holds an object of torch.classes, such as the packed weights of a quantised layer",
            fix="export the module in floating point: quantised modules are not supported",
        )
    if "found a fake tensor in the exported program constant's list" in text:
        return CaptureError(
            "forward makes a tensor that torch cannot trace: by .data, or outside of torch",
            fix="use .detach() instead of .data, and torch's ops only",
        )
    if "expected compiled_fn to be GraphModule" in text:
        return MutationError(
            "two buffers of the module share memory, and forward writes to it",
            fix="register one buffer, and take views of it in forward",
        )
    if "n=copy_, n.args[0]=empty_permuted" in text:
        return CaptureError(
            f"an op writes in place to a view in a way that torch {torch.__version__} cannot trace",
            fix="take torch 2.12 or newer, or give the result a name: y = y.index_fill(..), y = y.diagonal_scatter(..)",
        )
    if "is not functional" in text or "Encountered input mutation during higher order op tracing" in text:
        return MutationError(
            "a branch of torch.cond or the body of a loop writes to a tensor in place",
            fix="return the new value from the branch, and write it to the buffer outside",
        )
    return None


def _first_sentence(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    line = lines[0] if lines else ""
    if line.endswith(":") and len(lines) > 1:
        line = f"{line} {lines[1]}"
    return re.sub(r"\s+", " ", line)[:400]
