"""The source that a team's own signal hangs on: of its module, and of the team's modules that this imports.

The team's are those in the workspace's folder, and those of the package that the function is in, unless that
is a part of rtrl, whose version a run knows anyway. What is installed beside it (a library) is not among
them, nor what is imported by a name that is made up when the program runs. Not for: calling it (`own.py`).
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path

from stages.identity import PACKAGES


def sources_of(name: str, source: str, root: Path | None) -> dict[str, str]:
    """By module, itself first: what stands in the files now. `source` is that of the module `name`."""
    found, waiting = {name: source}, [name]
    while waiting:
        for one in _imported_by(waiting.pop(), found):
            spec = _spec(one) if one not in found and _own(one, name, root) else None
            if spec is not None and isinstance(spec.loader, SourceFileLoader):
                found[one] = spec.loader.get_source(one) or ""
                waiting.append(one)
    return found


def digest_of(sources: Mapping[str, str]) -> str:
    """`sha256:...`; of one module alone it is that of its source."""
    first, *more = sources
    total = hashlib.sha256(sources[first].encode())
    for name in sorted(more):
        total.update(f"\0{name}\0{sources[name]}".encode())
    return f"sha256:{total.hexdigest()}"


def _imported_by(name: str, sources: Mapping[str, str]) -> Iterator[str]:
    """Names of all that may be modules, packages before what is in them."""
    spec = _spec(name)
    package = spec.parent if spec is not None else None
    for node in ast.walk(ast.parse(sources[name])):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield from _and_packages(each.name)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            try:
                whole = importlib.util.resolve_name(base, package)
            except ImportError:
                continue
            yield from _and_packages(whole)
            yield from (f"{whole}.{each.name}" for each in node.names)


def _and_packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[: n + 1]) for n in range(len(parts)))


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):  # what its package says when it is imported, or has not
        return None


def _own(module: str, function: str, root: Path | None) -> bool:
    """Whether a module is the team's. Nothing of it is imported to see that."""
    top, mine = module.partition(".")[0], function.partition(".")[0]
    if top in PACKAGES:
        return False
    spec = _spec(top) if top != mine and root is not None else None
    if spec is None or root is None:
        return top == mine
    places = (spec.origin, *(spec.submodule_search_locations or ()))
    within = (f"{root.absolute()}/{top}.", f"{root.absolute()}/{top}/")
    return any(f"{place}/".startswith(within) for place in places)
