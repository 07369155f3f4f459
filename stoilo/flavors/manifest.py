"""Flavor manifests: which libraries a frozen runtime holds (thesis §7.3, listing 4).

The file is the small part of YAML that the thesis's example uses: keys with lists of
plain words. It is parsed strictly here, so that a flavor means the same to everybody
and no YAML library is in the trusted base. A flavor is named by the SHA-256 of the
file's bytes; the thesis's MD5 of the same bytes is accepted as an alias and never as
proof of anything.
"""

from __future__ import annotations

import functools
import hashlib
import re
import tomllib
from dataclasses import dataclass
from importlib import metadata, resources
from typing import TYPE_CHECKING

from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import InternalError, UsageError
from stoilo.core.libraries import Library, is_described, load_libraries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_LIST_ITEMS = 200

_KEY = re.compile(r"([a-z]+):(?: +(.*))?")
_ITEM = re.compile(r"( *)- +(\S+)")
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?==[A-Za-z0-9](?:[A-Za-z0-9.+!_-]*)"
)
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_PYTHON = re.compile(r"3\.\d{1,2}")
_FORMS = {"requirements": _REQUIREMENT, "modules": _MODULE, "python": _PYTHON}


def parse_fields(text: str) -> dict[str, tuple[str, ...]]:
    """Return key → values of untrusted `text`, or raise ``STO-P003``."""
    fields: dict[str, list[str]] = {}
    closed: set[str] = set()  # keys whose value stood on the key's own line
    current, indent = "", None
    for number, raw in enumerate(text.split("\n"), start=1):
        line = re.sub(r"(^|\s)#.*", "", raw).rstrip(" ")
        if not line:
            continue
        item = _ITEM.fullmatch(line)
        if item:
            if not current or current in closed:
                raise broken_manifest(number, "an item without a list")
            if indent is not None and len(item[1]) != indent:
                raise broken_manifest(
                    number, "items of one list are indented differently"
                )
            indent = len(item[1])
            fields[current].append(_checked(current, item[2], number))
            if len(fields[current]) > _LIST_ITEMS:
                raise broken_manifest(number, f"more than {_LIST_ITEMS} items")
            continue
        current, value = _parse_key(line, number, fields)
        fields[current], indent = [], None
        if value is not None:
            closed.add(current)
            fields[current] += [_checked(current, one, number) for one in value]
    return {
        key: _without_repeats(key, values, key in closed)
        for key, values in fields.items()
    }


def _parse_key(
    line: str, number: int, fields: dict[str, list[str]]
) -> tuple[str, list[str] | None]:
    """Return the key and the values on its own line (None: a list follows)."""
    match = _KEY.fullmatch(line)
    if match is None:
        raise broken_manifest(number, "neither a key, nor an item, nor a comment")
    key, rest = match[1], (match[2] or "").strip(" ")
    if key not in _FORMS:
        raise broken_manifest(number, f"unknown key {key!r}")
    if key in fields:
        raise broken_manifest(number, f"the key {key!r} stands twice")
    if key == "python":
        return key, [rest.strip("\"'")]
    if not rest:
        return key, None
    if rest != "[]":
        raise broken_manifest(number, f"{key!r} must be a list")
    return key, []


def _checked(key: str, value: str, number: int) -> str:
    if not _FORMS[key].fullmatch(value):
        expected = {
            "requirements": "a pinned requirement, name==version",
            "modules": "an import name",
            "python": "a minor version like 3.11",
        }[key]
        raise broken_manifest(number, f"{value[:60]!r} is not {expected}")
    return value


def _without_repeats(key: str, values: list[str], closed: bool) -> tuple[str, ...]:
    if len(set(values)) != len(values):
        raise broken_manifest(0, f"an item of {key!r} stands twice")
    if not values and not closed:
        raise broken_manifest(0, f"the list {key!r} is empty: write `{key}: []`")
    return tuple(values)


def broken_manifest(number: int, reason: str) -> UsageError:
    """Return ``STO-P003`` about a line (0: the whole file)."""
    where = f"line {number}: " if number else ""
    return UsageError(
        "STO-P003",
        f"flavor manifest is broken: {where}{reason}",
        hint="it needs the lists `requirements` (name==version) and `modules`",
    )


_MANIFEST_BYTES = 64 * 1024
_DEFAULT_PYTHON = "3.11"
_SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True)
class FlavorManifest:
    """One flavor."""

    name: str  # for people; the file's name, not part of the identity
    requirements: tuple[str, ...]  # pinned distributions, `numpy==2.4.6`
    modules: tuple[str, ...]  # top-level import names that the requirements give
    python: str  # minor version of the interpreter
    digest: Digest  # SHA-256 of the file's bytes, the identity
    alias: str  # MD5 of the same bytes, the thesis's identity


def flavor_alias(data: bytes) -> str:
    """Return the thesis's flavor identifier of a file: MD5, an alias without trust."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def parse_manifest(data: bytes, name: str = "") -> FlavorManifest:
    """Parse one manifest or raise ``STO-P003``; `data` is untrusted.

    Args:
        data: the file's bytes.
        name: what to call the flavor.
    """
    if len(data) > _MANIFEST_BYTES:
        raise broken_manifest(0, f"it is larger than {_MANIFEST_BYTES:,} bytes")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise broken_manifest(0, "it is not plain ASCII text") from error
    fields = parse_fields(text)
    for required in ("requirements", "modules"):
        if required not in fields:
            raise broken_manifest(0, f"the key {required!r} is missing")
    (python,) = fields.get("python", (_DEFAULT_PYTHON,))
    return FlavorManifest(
        name=name,
        requirements=fields["requirements"],
        modules=fields["modules"],
        python=python,
        digest=content_digest(data),
        alias=flavor_alias(data),
    )


@functools.cache
def shipped_flavors() -> tuple[FlavorManifest, ...]:
    """Return the shipped flavors, smallest first, or raise ``STO-P003``."""
    folder = resources.files("stoilo.flavors") / "specs"
    manifests = [
        parse_manifest(page.read_bytes(), page.name.removesuffix(_SUFFIX))
        for page in folder.iterdir()
        if page.name.endswith(_SUFFIX)
    ]
    return tuple(sorted(manifests, key=_size))


def shipped_manifest(flavor: FlavorManifest) -> bytes:
    """Return the file's bytes of a shipped `flavor`, or raise ``STO-P002``."""
    page = resources.files("stoilo.flavors") / "specs" / f"{flavor.name}{_SUFFIX}"
    data = page.read_bytes() if page.is_file() else b""
    if content_digest(data) != flavor.digest:
        raise UsageError("STO-P002", f"{flavor.name[:80]!r} is not a shipped flavor")
    return data


@functools.cache
def foreign_ids() -> Mapping[str, str]:
    """Return MD5 of another's manifest → name of the flavor that runs its tasks.

    The thesis's listing 4 is one; it names cloudpickle, which no flavor of ours holds.

    Raises:
        InternalError: ``STO-P001``, a flavor lacks a module that the other file names.
    """
    page = resources.files("stoilo.flavors") / "aliases.toml"
    return read_aliases(page.read_text("utf-8"), shipped_flavors())


def read_aliases(text: str, flavors: Sequence[FlavorManifest]) -> dict[str, str]:
    """Return what `foreign_ids` says, of the text of a file like ``aliases.toml``."""
    held = {flavor.name: frozenset(flavor.modules) for flavor in flavors}
    found: dict[str, str] = {}
    for alias, entry in tomllib.loads(text).items():
        named = set(entry["modules"]) - set(entry.get("needless", ()))
        if missing := sorted(named - held.get(entry["flavor"], frozenset())):
            message = (
                f"flavor {entry['flavor']} cannot stand for {alias}: no {missing[0]}"
            )
            raise InternalError("STO-P001", message)
        found[alias] = entry["flavor"]
    return found


def find_flavor(
    wanted: str, flavors: Sequence[FlavorManifest] | None = None
) -> FlavorManifest:
    """Return the flavor with this name, SHA-256 or MD5, or raise ``STO-P002``.

    The id of a file that is not ours may stand for one of our flavors: see `foreign_ids`.
    """
    known = shipped_flavors() if flavors is None else flavors
    name = foreign_ids().get(wanted, wanted)
    for flavor in known:
        if name and name in {flavor.name, flavor.digest, flavor.alias}:
            return flavor
    raise UsageError(
        "STO-P002",
        f"there is no flavor {wanted[:80]!r} here",
        hint=f"flavors here: {', '.join(flavor.name for flavor in known)}",
    )


def held_libraries(flavor: FlavorManifest) -> tuple[Library, ...]:
    """Return the described libraries that `flavor` holds, in the order of their names."""
    return load_libraries(sorted({one.partition(".")[0] for one in flavor.modules}))


def is_installed(library: Library) -> bool:
    """Whether `library` is installed here in a version that its file describes."""
    version = _installed_version(library.distribution)
    return bool(version) and is_described(library, version)


@functools.cache
def _installed_version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def _size(flavor: FlavorManifest) -> tuple[int, int, str]:
    return len(flavor.requirements), len(flavor.modules), flavor.name
