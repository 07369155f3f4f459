"""A library: what tasks get of one package, as data beside the levels (design §4).

A level's own list plus the libraries of a task's flavor is what the task may import. A
library adds names, types and what its classes let be done; it never touches the kernel
layer, builtins or limits, so a level's wall is the same with any of them. The shipped ones
are found by their import names; releases publish others as targets of the policy role.
Which classes travel as values, and what turns them into nodes, is here too.
Trusted input, still checked strictly.
"""

from __future__ import annotations

import functools
import importlib
import operator
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Protocol, cast

import msgspec

from stoilo.core.digests import Digest, Domain, domain_digest
from stoilo.core.errors import InternalError
from stoilo.core.levels import Level, ModuleRule, load_levels, merge_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from importlib.resources.abc import Traversable

LIBRARY_BYTES = 1 << 20
"""Most bytes of one library's file."""

MOST_LIBRARIES = 32
"""Most libraries of one flavor."""

_ImportName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z][A-Za-z0-9_]{0,63}\Z")]


class Library(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One library's file; the tables are a level's (`stoilo.core.levels.Level`)."""

    name: _ImportName  # the top-level import name, also the file's
    distribution: str  # what pip calls it, for example ``scikit-learn``
    versions: str  # which of its versions this describes, for example ``>=1.9,<1.10``
    level: str  # the narrowest level that it may be used at
    summary: str  # one sentence for volunteers
    # import names of described libraries that must be installed beside it; they are not
    # opened by this
    needs: tuple[_ImportName, ...] = ()
    preload: tuple[str, ...] = ()
    # import name of another library → what is preloaded where a flavor holds both
    together: dict[_ImportName, tuple[str, ...]] = {}
    modules: dict[str, ModuleRule] = {}
    travelling_types: dict[str, str] = {}
    members: dict[str, tuple[str, ...]] = {}
    overrides: dict[str, tuple[str, ...]] = {}
    writable: dict[str, tuple[str, ...]] = {}
    # dotted name of what is installed and not handed out → why; names of modules and
    # members, for auditors and for `stoilo flavor check`
    withheld: dict[str, str] = {}
    digest: str = ""  # of the file's bytes, domain-separated; set by `parse_library`


def parse_library(data: bytes) -> Library:
    """Parse one library's file (TOML, trusted).

    Raises:
        InternalError: ``STO-P001``, it is broken, opens modules of another package or of
            one that levels speak for, or needs a level that there is not.
    """
    if len(data) > LIBRARY_BYTES:
        raise InternalError("STO-P001", "a library's file is too large")
    try:
        library = msgspec.toml.decode(data, type=Library)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InternalError("STO-P001", f"library file is broken: {error}") from error
    foreign = [name for name in library.modules if _root(name) != library.name]
    # Levels alone say what of these is handed out: whoever signs libraries only adds.
    foreign += [library.name] if library.name in _kept_by_levels() else []
    if foreign or not library.modules:
        what = foreign[0] if foreign else "nothing"
        raise InternalError("STO-P001", f"library {library.name} opens {what[:80]}")
    if library.level not in {level.name for level in load_levels()}:
        raise InternalError("STO-P001", f"library {library.name} needs no known level")
    return msgspec.structs.replace(library, digest=domain_digest(Domain.LIBRARY, data))


def _root(dotted: str) -> str:
    return dotted.partition(".")[0]


@functools.cache
def _kept_by_levels() -> frozenset[str]:
    """Return the packages that no library may open: Python, stoilo, those of the levels."""
    opened = {_root(name) for level in load_levels() for name in level.modules}
    return frozenset({*sys.stdlib_module_names, "stoilo", *opened})


def add_libraries(level: Level, libraries: Iterable[Library]) -> Level:
    """Return `level` with `libraries`, in the order of their names; its digest is kept.

    Raises:
        InternalError: ``STO-P001``, one needs a wider level, is there twice, says
            otherwise of what the level says already, or there are too many.
    """
    bare, chosen = level, sorted(libraries, key=lambda one: one.name)
    if len(chosen) > MOST_LIBRARIES:
        raise InternalError("STO-P001", "a flavor has too many libraries")
    if len({one.name for one in chosen}) != len(chosen):
        raise InternalError("STO-P001", "a flavor has two versions of one library")
    for one in chosen:
        _check_adds(bare, one)
        if level_order(one) > level.order:
            raise InternalError("STO-P001", f"{one.name} needs level {one.level}")
        level = msgspec.structs.replace(
            level,
            preload=level.preload + one.preload + preloaded_together(one, chosen),
            modules=merge_modules(level.modules, one.modules),
            travelling_types=level.travelling_types | one.travelling_types,
            members=level.members | one.members,
            overrides=level.overrides | one.overrides,
            writable=level.writable | one.writable,
            libraries=(*level.libraries, one.digest),
        )
    return level


def preloaded_together(library: Library, chosen: Iterable[Library]) -> tuple[str, ...]:
    """Return what `library` preloads because of others among `chosen`."""
    names = (library.together.get(one.name, ()) for one in chosen)
    return tuple(name for part in names for name in part)


def _check_adds(level: Level, library: Library) -> None:
    """Refuse a library that opens again a class which the level has closed."""
    for table in ("travelling_types", "members", "overrides", "writable"):
        said, told = getattr(level, table), getattr(library, table)
        for name in told:
            if said.get(name, told[name]) != told[name]:
                raise InternalError("STO-P001", f"{library.name} opens {name[:80]}")


def level_order(library: Library) -> int:
    """Return the place of the narrowest level for `library`."""
    return next(one.order for one in load_levels() if one.name == library.level)


def is_described(library: Library, version: str) -> bool:
    """Whether `version` of the library's distribution is one that its file describes.

    Compares releases: a build's own mark (``+cpu``) says nothing, and what comes before a
    release is no such version.

    Raises:
        InternalError: ``STO-P001``, its `versions` are no comparisons like ``>=1.9,<1.10``.
    """
    found = _VERSION.fullmatch(version.partition("+")[0])
    wanted = [_COMPARISON.fullmatch(one.strip()) for one in library.versions.split(",")]
    if None in wanted:
        raise InternalError("STO-P001", f"versions of {library.name} cannot be read")
    return found is not None and all(
        _COMPARED[one[1]](_release(found[0]), _release(one[2])) for one in wanted if one
    )


_VERSION = re.compile(r"[0-9]+(\.[0-9]+)*")
_COMPARISON = re.compile(r"(>=|<=|==|!=|<|>) *([0-9]+(?:\.[0-9]+)*)")
_COMPARED = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}


@functools.lru_cache(maxsize=256)  # the same few at every task
def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a release; zeros at its end say nothing."""
    numbers = [int(one) for one in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


# As targets of a release's policy role, several versions side by side ------------------

_TARGET = re.compile(
    r"policy/library-[A-Za-z][A-Za-z0-9_]{0,31}(-[A-Za-z0-9._-]{1,16})?\.toml"
)


def library_target(library: Library) -> str:
    """Return the target name under which `library` is published."""
    return f"policy/library-{library.name}-{library.digest[:12]}.toml"


def is_library_target(name: str) -> bool:
    """Whether a target of this name (hostile) is a library's file."""
    return _TARGET.fullmatch(name) is not None


def read_libraries(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the libraries' files among verified targets by their digests, unparsed."""
    found = (data for name, data in files.items() if is_library_target(name))
    return {domain_digest(Domain.LIBRARY, data): data for data in found}


# The shipped ones ---------------------------------------------------------------------


def _folder() -> Traversable:
    from importlib import resources  # noqa: PLC0415 - zygotes hold no such module

    return resources.files("stoilo") / "policies" / "libraries"


def library_file(name: str) -> bytes | None:
    """Return the bytes of the shipped library with the import name `name`, or None."""
    if name not in library_names():  # no path is made of a name that a task wrote
        return None
    return (_folder() / f"{name}.toml").read_bytes()


@functools.cache
def library_digests() -> tuple[Digest, ...]:
    """Return the digests of the shipped libraries' files, in the order of their names."""
    files = (library_file(name) or b"" for name in library_names())
    return tuple(domain_digest(Domain.LIBRARY, data) for data in files)


@functools.lru_cache(maxsize=256)
def load_library(name: str) -> Library | None:
    """Return the shipped library with the import name `name` (untrusted), or None."""
    data = library_file(name)
    return None if data is None else parse_library(data)


@functools.cache
def library_names() -> tuple[str, ...]:
    """Return the import names of the shipped libraries, sorted."""
    files = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name[:-5] for name in files if name.endswith(".toml")))


def load_libraries(names: Sequence[str] | None = None) -> tuple[Library, ...]:
    """Return the shipped libraries of these import names (all by default).

    Names that are none are left out.
    """
    found = map(load_library, library_names() if names is None else names)
    return tuple(one for one in found if one is not None)


# Values of libraries as nodes and back ------------------------------------------------
#
# A frame, a sparse matrix, an estimator is an `Instance` whose class name is the dotted name
# that the library's file lists under ``travelling_types``. One module a library knows its
# forms; it is the same on the client, in the jail, for arguments and for results, and runs
# no code that a node names. Nodes are hostile, whoever sent them.

Node = Any  # as in `stoilo.core.codec.nodes`, which imports this module
_Instance = Any  # its record of that name

# Import name of a library → the module with its `to_node` and `from_node`
_CODECS: dict[str, str] = {
    "PIL": "stoilo.core.codec.images",
    "pandas": "stoilo.core.codec.frames",
    "scipy": "stoilo.core.codec.sparse",
    "sklearn": "stoilo.core.codec.estimators",
}


class LibraryCodec(Protocol):
    """A module that turns one library's values into nodes."""

    def to_node(
        self, value: object, name: str, convert: Callable[[object], Node]
    ) -> _Instance:
        """Return the node of `value`, whose class is listed as `name`.

        Raises:
            UsageError: ``STO-D001``, what it holds does not travel.
        """

    def from_node(self, node: _Instance, convert: Callable[[Node], object]) -> object:
        """Return the value of `node` (hostile), checked.

        Raises:
            TrustError: ``STO-D002``, it is no such value.
        """


def listed_name(value: object) -> str:
    """Return the dotted name under which a library lists the class of `value`, or empty.

    A value can only be a library's when that is loaded, so nothing is imported.
    """
    kind = type(value)
    root = str(getattr(kind, "__module__", "")).partition(".")[0]
    if root not in _CODECS or root not in sys.modules:
        return ""
    return _classes(root).get(kind, "")


@functools.cache
def _classes(root: str) -> dict[type, str]:
    found: dict[type, str] = {}
    for name in travelling_types(root):
        module, _, attribute = name.rpartition(".")
        kind = getattr(importlib.import_module(module), attribute, None)
        if isinstance(kind, type):
            found.setdefault(kind, name)
    return found


def travelling_types(root: str) -> Mapping[str, str]:
    """Return the listed types of the library with this import name, with their forms."""
    if root in _given:
        return _given[root]
    library = load_library(root)
    return library.travelling_types if library else {}


_given: dict[str, dict[str, str]] = {}


def use_types(listed: dict[str, str]) -> None:
    """Let `listed`, a level's travelling types, be all that travel in this process.

    A zygote says so before its jail closes, in which no library's file can be read, and no
    codec loaded.
    """
    _given.update({root: {} for root in _CODECS})
    for name, form in listed.items():
        _given.setdefault(name.partition(".")[0], {})[name] = form
    for root in filter(_given.get, _CODECS):
        importlib.import_module(_CODECS[root])


def has_codec(name: str) -> bool:
    """Whether the library whose name `name` (hostile) begins with has values at all."""
    return name.partition(".")[0] in _CODECS


def is_listed(name: str) -> bool:
    """Whether `name`, a node's class name (hostile), is a value's of a described library."""
    root = name.partition(".")[0]
    return has_codec(name) and name in travelling_types(root)


def codec_of(name: str) -> LibraryCodec:
    """Return the codec for a class name that `is_listed`."""
    module = importlib.import_module(_CODECS[name.partition(".")[0]])
    return cast("LibraryCodec", module)
