"""The small part of YAML that flavor manifests use, parsed strictly.

Lines are keys, items of a list, comments or blank; anything else (anchors, nesting,
other quoting) is refused, so that a manifest means the same to every reader.
"""

from __future__ import annotations

import re

from stoilo.core.errors import UsageError

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
    """Return key → values of untrusted `text`, or raise ``STO-P060``."""
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
    """Return ``STO-P060`` about a line (0: the whole file)."""
    where = f"line {number}: " if number else ""
    return UsageError(
        "STO-P060",
        f"flavor manifest is broken: {where}{reason}",
        hint="it needs the lists `requirements` (name==version) and `modules`",
    )
