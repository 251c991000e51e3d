"""The plug-ins, passes, decompositions and kernels of one export, as the exporter takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hardtack.codegen.ir.kernel_code import KernelCode
from hardtack.exporter.errors import InputSpecError, PluginError
from hardtack.exporter.extensions import (
    Contribution,
    CudaParameter,
    CudaUserKernel,
    Extensions,
    UserKernel,
    UserPass,
    extensions,
)
from hardtack.kernels import CppKernel, CudaKernel, HostKernel, Kernel
from hardtack.options import Options
from hardtack.plugins import GraphPass, Plugin

GROUP = "hardtack.plugins"
"""The group of entry points by which packages offer plug-ins."""


def extensions_of(
    options: Options,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    kernels: Mapping[Any, Kernel] | None = None,
) -> Extensions:
    """What Options.plugins, Options.passes and the arguments `decompositions` and `kernels` bring together. Raises
    InputSpecError for two functions of one op, two passes of one name and unknown names; PluginError for a plug-in that
    does not load."""
    plugins = load_plugins(options.plugins)
    for name in {p.name for p in plugins}:
        versions = [p.version for p in plugins if p.name == name]
        if len(versions) > 1:
            raise InputSpecError(f"there are two plug-ins {name}: {', '.join(versions)}", fix="leave one of them out")
    found = [_contribution(p) for p in plugins]
    if options.passes:
        found.append(Contribution("Options.passes", passes=_passes(options.passes, "Options.passes", None)))
    if decompositions:
        found.append(Contribution("the argument decompositions", decompositions=decompositions))
    if kernels:
        by = "the argument kernels"
        on_cpus, on_gpus = _kernels(kernels, by)
        found.append(Contribution(by, kernels=on_cpus, cuda_kernels=on_gpus))
    return extensions(found)


def _contribution(p: Plugin) -> Contribution:
    by = f"the plug-in {p.name} {p.version}"
    producer = (f"plugin {p.name}", p.version)
    return Contribution(
        by, producer, p.decompositions, p.lowerings, _passes(p.passes, by, producer), *_kernels(p.kernels, by)
    )


def _kernels(given: Mapping[Any, Any], by: str) -> tuple[dict[Any, UserKernel], dict[Any, CudaUserKernel]]:
    """The kernels for CPUs and those for GPUs. InputSpecError for what is no kernel."""
    if not isinstance(given, Mapping):
        raise InputSpecError(f"the kernels of {by} are a {type(given).__name__}", fix="pass a dict of kernels by op")
    on_cpus: dict[Any, UserKernel] = {}
    on_gpus: dict[Any, CudaUserKernel] = {}
    for op, kernels in given.items():
        several = kernels if isinstance(kernels, (tuple, list)) else (kernels,)
        for kernel in several:
            if isinstance(kernel, CudaKernel) and op not in on_gpus:
                on_gpus[op] = _cuda(kernel)
            elif isinstance(kernel, (CppKernel, HostKernel)) and op not in on_cpus:
                on_cpus[op] = UserKernel(_code(kernel), kernel.strided, kernel.workspace, kernel.worker_workspace)
            elif isinstance(kernel, Kernel):
                raise InputSpecError(
                    f"{op} has two kernels of {by} for one kind of device", fix="leave one of them out"
                )
            else:
                kind = type(kernel).__name__
                raise InputSpecError(
                    f"the kernel of {op} of {by} is a {kind}, not a hardtack.CppKernel, HostKernel or CudaKernel"
                )
    return on_cpus, on_gpus


def _code(kernel: CppKernel | HostKernel) -> KernelCode:
    if isinstance(kernel, CppKernel):
        return KernelCode(kernel.function, kernel.text, kernel.file)
    return KernelCode(kernel.name)


def _cuda(k: CudaKernel) -> CudaUserKernel:
    parameters = tuple(CudaParameter(*p) for p in k.parameters)
    return CudaUserKernel(k.function, k.text, k.file, parameters, k.grid, k.block, k.shared, k.workspace)


def _passes(given: Iterable[GraphPass], by: str, producer: tuple[str, str] | None) -> tuple[UserPass, ...]:
    return tuple(UserPass(p.name, p.version, p.apply, by, producer or (f"pass {p.name}", p.version)) for p in given)


def load_plugins(chosen: Sequence[Plugin | str] | None) -> list[Plugin]:
    """Those that were chosen, with the names looked up among what is installed; None: all that is installed."""
    offers: dict[str, EntryPoint] = {}
    for e in entry_points(group=GROUP):
        if e.name in offers:
            raise PluginError(
                f"two packages offer a plug-in {e.name!r}: {_package(offers[e.name])} and {_package(e)}",
                fix="remove one of the packages, or ask the authors for another name",
            )
        offers[e.name] = e
    if chosen is None:
        return [_loaded(offers[name]) for name in sorted(offers)]
    found: list[Plugin] = []
    for p in chosen:
        if isinstance(p, str) and p not in offers:
            raise InputSpecError(
                f"there is no plug-in {p!r} among those that are installed: {', '.join(sorted(offers)) or 'none'}",
                fix=f"install the package that offers it by an entry point of the group {GROUP}, or pass the Plugin",
            )
        found.append(_loaded(offers[p]) if isinstance(p, str) else p)
    return found


def _loaded(offer: EntryPoint) -> Plugin:
    """The plug-in of an entry point, which is a Plugin or a function that gives one."""
    package = f" of {_package(offer)}" if offer.dist is not None else ""
    try:
        found = offer.load()
        found = found if isinstance(found, Plugin) else found()
    except Exception as error:  # importing and calling runs code of others
        raise PluginError(
            f"the plug-in {offer.name!r}{package} does not load: {type(error).__name__}: {error}",
            fix="mend or remove the package, or name the plug-ins that the export may use: Options(plugins=...)",
        ) from error
    if not isinstance(found, Plugin):
        raise PluginError(f"the plug-in {offer.name!r}{package} is a {type(found).__name__}, not a hardtack.Plugin")
    return found


def _package(offer: EntryPoint) -> str:
    return f"the package {offer.dist.name}" if offer.dist is not None else offer.value
