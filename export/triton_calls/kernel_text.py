"""A Triton kernel's text as a module of its own: the function, what it calls, and the names that it takes from outside.

Triton finds those in the modules of each function; here all of them are in one.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
from types import ModuleType
from typing import Any

from hardtack.codegen.backend import NAME
from hardtack.exporter.errors import CaptureError, SourceLine

MODULES = ("triton", "math")
"""Whose modules and functions a kernel may name; a process without the user's packages compiles it."""


def is_jitted(x: object) -> bool:
    """True for a function of triton.jit."""
    return type(x).__name__ == "JITFunction" and type(x).__module__.startswith("triton.")


def is_kernel(x: object) -> bool:
    """True for a function of triton.jit, with triton.autotune and triton.heuristics around it or not."""
    while type(x).__name__ in ("Autotuner", "Heuristics") and type(x).__module__.startswith("triton."):
        x = x.fn  # type: ignore[attr-defined]
    return is_jitted(x)


def file_of(function: Any) -> str:
    """The file of a function of triton.jit."""
    return str(function.fn.__code__.co_filename)


def head_line(function: Any) -> int:
    """The line of its file in which a function of triton.jit begins, behind its decorators."""
    before = next((k for k, line in enumerate(function.raw_src) if line.lstrip().startswith("def ")), 0)
    return int(function.starting_line_number) + before


def module_text(kernel: Any) -> tuple[str, list[Any]]:
    """The text, in which the kernel is called NAME, and the functions in it, the kernel first. CaptureError for a name
    that cannot be taken along.
    """
    found = _Names()
    found.take(kernel)
    body = _text_of(kernel).replace(f"def {kernel.__name__}", f"def {NAME}", 1)
    lines = ["import triton", "import triton.language", *found.lines]
    return "\n".join(lines) + "\n\n\n@triton.jit\n" + body, [kernel, *found.functions]


class _Names:
    """lines: what the module has in front of the kernel, each name once; functions: those of triton.jit among it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.functions: list[Any] = []
        self._known: dict[str, Any] = {}

    def take(self, function: Any) -> None:
        """All that a function names, and what that names, in front of it."""
        scope = {**function.fn.__globals__, **inspect.getclosurevars(function.fn).nonlocals}
        for name in _free_names(_text_of(function)):
            if name not in scope:
                continue  # Triton says so
            value = scope[name]
            if name in self._known:
                if self._known[name] is not value and self._known[name] != value:
                    raise _refusal(function, f"{name}, which is another thing in one of the functions that it calls")
                continue
            self._known[name] = value
            if _is_function(value) and not _in_triton(value):
                self.take(value)
                self.functions.append(value)
            self.lines.append(self._line(function, name, value))

    def _line(self, function: Any, name: str, value: Any) -> str:
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] in MODULES:
            return (
                f"import {value.__name__} as {name}"
                if "." in value.__name__ or value.__name__ != name
                else (f"import {name}")
            )
        if _is_function(value) and not _in_triton(value):
            return _definition(value) + ("" if value.__name__ == name else f"{name} = {value.__name__}\n")
        if type(value).__name__ == "constexpr" and isinstance(value.value, (bool, int, float, str)):
            return f"{name} = triton.language.constexpr({_literal(value.value)})"
        if type(value).__name__ == "dtype" and type(value).__module__.startswith("triton."):
            return f'{name} = triton.language.dtype("{value.name}")'
        if isinstance(value, (bool, int, float, str)):
            return f"{name} = {_literal(value)}"  # which Triton refuses but where it stands for a constexpr
        if _in_triton(value):
            return f"from {value.__module__} import {value.__name__} as {name}"
        kind = "the module" if isinstance(value, ModuleType) else f"a {type(value).__name__},"
        raise _refusal(function, f"{kind} {name}")


def _literal(value: bool | int | float | str) -> str:
    return f'float("{value!r}")' if isinstance(value, float) else repr(value)


def _refusal(function: Any, what: str) -> CaptureError:
    return CaptureError(
        f"the Triton kernel {function.__name__} names {what}",
        SourceLine(file_of(function), head_line(function), f"def {function.__name__}(...)"),
        "a kernel may name modules and functions of triton, math, other functions of triton.jit, and constants, "
        "as SIZE = tl.constexpr(4)",
    )


def _is_function(x: object) -> bool:
    constant = type(x).__name__ in ("ConstexprFunction", "ConstexprFunctionType")
    return is_jitted(x) or (constant and type(x).__module__.startswith("triton."))


def _in_triton(x: Any) -> bool:
    """True for what a module of Triton, or of MODULES, has by its own name."""
    module, name = getattr(x, "__module__", None), getattr(x, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module.partition(".")[0] not in MODULES:
        return False
    return getattr(importlib.import_module(module), name, None) is x


def _text_of(function: Any) -> str:
    """From `def` on."""
    return str(function.src)


def _definition(function: Any) -> str:
    if not is_jitted(function):
        return f"\n\n@triton.constexpr_function\n{_text_of(function)}"
    options = "(noinline=True)" if getattr(function, "noinline", None) else ""
    return f"\n\n@triton.jit{options}\n{_text_of(function)}"


def _free_names(text: str) -> list[str]:
    """The names that a function reads and does not make, in the order of the text; none of Python's own."""
    tree = ast.parse(text)
    made = {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    names = sorted((n for n in ast.walk(tree) if isinstance(n, ast.Name)), key=lambda n: (n.lineno, n.col_offset))
    made |= {n.id for n in names if isinstance(n.ctx, ast.Store)}
    return list(dict.fromkeys(n.id for n in names if n.id not in made and not hasattr(builtins, n.id)))
