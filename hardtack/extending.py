"""The plug-ins, passes and decompositions of one export, as the exporter takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from hardtack.exporter.errors import InputSpecError, PluginError
from hardtack.exporter.extensions import Contribution, Extensions, UserPass, extensions
from hardtack.options import Options
from hardtack.plugins import GraphPass, Plugin

GROUP = "hardtack.plugins"
"""The group of entry points by which packages offer plug-ins."""


def extensions_of(options: Options, decompositions: Mapping[Any, Callable[..., Any]] | None = None) -> Extensions:
    """What Options.plugins, Options.passes and the argument `decompositions` bring together. Raises InputSpecError for
    two functions of one op, two passes of one name and unknown names; PluginError for a plug-in that does not load."""
    found = [_contribution(p) for p in _plugins(options.plugins)]
    if options.passes:
        found.append(Contribution("Options.passes", passes=_passes(options.passes, "Options.passes")))
    if decompositions:
        found.append(Contribution("the argument decompositions", decompositions=decompositions))
    return extensions(found)


def _contribution(p: Plugin) -> Contribution:
    by = f"the plug-in {p.name} {p.version}"
    return Contribution(by, (f"plugin {p.name}", p.version), p.decompositions, p.lowerings, _passes(p.passes, by))


def _passes(given: Iterable[GraphPass], by: str) -> tuple[UserPass, ...]:
    return tuple(UserPass(p.name, p.version, p.apply, by) for p in given)


def _plugins(chosen: tuple[Plugin | str, ...] | None) -> list[Plugin]:
    """Those that were chosen, with the names looked up among what is installed; None: all that is installed."""
    offers = {e.name: e for e in entry_points(group=GROUP)}
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
    package = f" of the package {offer.dist.name}" if offer.dist is not None else ""
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
