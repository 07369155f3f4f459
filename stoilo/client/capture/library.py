"""Which functions, classes and modules the volunteer's side has under the same name."""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
import types
from pathlib import Path

from stoilo.client.capture.refusals import refuse


@functools.cache
def _library_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(paths[key]).resolve() for key in ("purelib", "platlib"))


# Our own task functions: they travel as audited source like the researcher's
_KERNELS = "stoilo.learn.kernels"
_as_source: set[str] = set()


def send_source_of(*modules: types.ModuleType | str) -> None:
    """Let installed packages of your own travel as source, like files beside a script.

    Args:
        modules: top-level packages, as modules or by name. They hold for this process.
    """
    for module in modules:
        name = module if isinstance(module, str) else module.__name__
        _as_source.add(name.split(".")[0])
    is_library_module.cache_clear()


@functools.cache
def is_library_module(name: str) -> bool:
    """Whether `name` belongs to Python or an installed package, not to the researcher.

    Code of libraries is named by import; code of the researcher's own files, notebooks
    and scripts travels as source.
    """
    root = name.split(".", maxsplit=1)[0]
    if root in {"__main__", "", *_as_source} or f"{name}.".startswith(f"{_KERNELS}."):
        return False
    if root in sys.stdlib_module_names or root == "stoilo":
        return True
    module = sys.modules.get(root)
    found = _places_of(root, module)
    if not found:
        return module is not None and root in sys.builtin_module_names
    return any(
        place.is_relative_to(folder) for place in found for folder in _library_folders()
    )


def _places_of(root: str, module: types.ModuleType | None) -> list[Path]:
    """Return where a top-level module lies; one that is not imported yet is looked up."""
    if module is not None:
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        return [Path(place).resolve() for place in places if place]
    try:
        spec = importlib.util.find_spec(root)
    except (ImportError, ValueError):
        return []
    if spec is None or not spec.has_location:
        return []
    return [Path(spec.origin or "").resolve()]


@functools.cache
def _level_modules() -> dict[str, frozenset[str]]:
    """Return every module that some level lets in, with the names it hands out."""
    from stoilo.core.levels import load_levels  # noqa: PLC0415 - data, when needed

    widest = load_levels()[-1]  # levels only add to what is narrower
    return {name: frozenset(rule.names) for name, rule in widest.modules.items()}


@functools.lru_cache(maxsize=256)
def _library_modules(root: str) -> dict[str, frozenset[str]]:
    """Return the modules of the described library with this import name; none: empty."""
    from stoilo.core.libraries import load_library  # noqa: PLC0415 - data, when needed

    library = load_library(root)
    modules = library.modules if library else {}
    return {name: frozenset(rule.names) for name, rule in modules.items()}


def _known_modules(*names: str) -> dict[str, frozenset[str]]:
    """Return what levels, and the libraries of these dotted names, hand out."""
    known = dict(_level_modules())
    for root in {name.partition(".")[0] for name in names}:
        known |= _library_modules(root)
    return known


def check_module(name: str, where: str) -> None:
    """Raise ``STO-C012`` unless a level or a library lets tasks import module `name`."""
    modules = _known_modules(name)
    if name in modules or any(known.startswith(f"{name}.") for known in modules):
        return
    from stoilo.policies.imports import advise  # noqa: PLC0415 - for the refusal alone

    refuse(
        "STO-C012",
        f"{where} needs module {name}, which neither a level nor a library opens to tasks",
        advise(name.partition(".")[0]),
    )


def is_handed_out(module: str, name: str) -> bool:
    """Whether some level or described library hands out ``module.name``."""
    return name in _known_modules(module).get(module, frozenset())


def library_path(value: object, wanted: str = "") -> tuple[str, str] | None:
    """Return (module, attribute) under which a library offers this very object.

    Modules that some level hands out come first, and public ones (``heapq``, not
    ``_heapq``); None when it is not found.
    """
    names = [
        getattr(value, "__qualname__", ""),
        getattr(value, "__name__", ""),
        wanted,
    ]
    for module_name in _ordered(_candidate_modules(value)):
        module = sys.modules.get(module_name)
        for name in names:
            if name.isidentifier() and _is_same(getattr(module, name, None), value):
                return module_name, name
    return None


def _ordered(candidates: list[str]) -> list[str]:
    """Put what levels hand out first: candidates, then their neighbours, then the rest."""
    known = _known_modules(*candidates)
    roots = {name.split(".")[0] for name in candidates}
    first = [name for name in candidates if name in known]
    near = [name for name in sorted(known) if name.split(".")[0] in roots]
    return list(dict.fromkeys((*first, *near, *candidates)))


def _is_same(found: object, value: object) -> bool:
    if found is value:
        return True
    bound = (types.MethodType, types.BuiltinMethodType)
    return isinstance(value, bound) and type(found) is type(value) and found == value


def _candidate_modules(value: object) -> list[str]:
    holder = getattr(value, "__self__", None)
    module_names = [
        getattr(value, "__module__", None),
        type(value).__module__,
        getattr(holder, "__module__", None),
        type(holder).__module__,
        getattr(getattr(value, "__objclass__", None), "__module__", None),
    ]
    found: list[str] = []
    for name in module_names:
        if not isinstance(name, str) or not is_library_module(name):
            continue
        parts = name.split(".")
        chain = [".".join(parts[:size]) for size in range(1, len(parts) + 1)]
        public = [item.lstrip("_") for item in chain]
        found += [item for item in [*public, *chain] if item not in found]
    return [name for name in found if name not in {"builtins", "types"}]
