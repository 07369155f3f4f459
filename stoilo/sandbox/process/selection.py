"""What a jail of one run has to prepare: less than its level, and never too little.

A warm zygote prepares everything that its level hands out. A jail that is made for one
source need not: a façade is reached by the name of its module only, so a module whose name
the source does not spell cannot be missed. Words are all that is looked at, never grammar,
because this runs outside the jail.

Three things keep it exact. Sources that could find a module without spelling its name
(``getattr``, ``type``, identifiers that NFKC would respell) get everything. Façades that
change a library for good are always built. And what a library imports behind the task's
back is noticed (`stoilo.sandbox.process.loader`): the run then counts for nothing and is made
again with everything prepared.
"""

from __future__ import annotations

import re
import sys

import msgspec

from stoilo.core.levels import Level

_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_ANY_NAME = frozenset(
    {b"attrgetter", b"delattr", b"dir", b"getattr", b"hasattr", b"methodcaller"}
    | {b"logging", b"setattr", b"type", b"vars"}
)
"""Who has these reaches attributes and classes by other means than their names."""

_ALWAYS = frozenset({"copy", "enum", "numpy"})
"""Modules whose façade changes libraries for good (a test compares), and numpy."""

_KNOWN = frozenset({"numpy", "tqdm"})
"""Libraries whose own imports are listed here; the second is nothing but a façade."""

_TEXT = frozenset(
    {b"array", b"bytearray", b"bytes", b"decode", b"encode", b"loads", b"str"}
)
_SETS = (b"union1d", b"intersect1d", b"setdiff1d", b"setxor1d", b"unique_values")
_RANKS = (b"median", b"nanmedian", b"percentile", b"nanpercentile", b"quantile")
_WORDS = {
    "_strptime": frozenset({b"strptime"}),
    "encodings": _TEXT,
    "heapq": frozenset({b"most_common"}),
    "numpy.ma": frozenset({b"unique", b"nanquantile", *_SETS, *_RANKS}),
    "unicodedata": frozenset({b"N"}),  # N as in "\N{DEGREE SIGN}"
}
"""What libraries import themselves, and the words that lead there: saves second runs."""

_READ_BYTES = 1 << 20
"""Larger arguments are not read: then everything is prepared, B."""


def _words_of(source: str, arguments: bytes) -> frozenset[bytes] | None:
    """Return the words of both (untrusted), None when words do not tell everything."""
    if not source.isascii() or len(arguments) > _READ_BYTES:
        return None
    words = frozenset(_WORD.findall(source.encode() + b"\n" + arguments))
    return None if words & _ANY_NAME else words


def _is_spelled(dotted: str, words: frozenset[bytes]) -> bool:
    """Whether `words` could lead to the module `dotted`."""
    root, _, rest = dotted.partition(".")
    if dotted in _ALWAYS or rest.startswith("_"):
        return True
    implied = _WORDS.get(dotted) or _WORDS.get(root, frozenset())
    return dotted.rpartition(".")[2].encode() in words or bool(implied & words)


def narrow_level(
    level: Level, source: str, arguments: bytes = b"", threads: int = 1
) -> Level:
    """Return `level` with only the modules that this one run can reach.

    Args:
        level: what the source may do (trusted); its digest is kept.
        source: text of the task module (untrusted).
        arguments: its encoded arguments (untrusted), which may name things too.
        threads: how many it will have; the libraries' pools are looked for above one.

    Returns:
        `level` itself when everything has to be prepared; always where it has libraries
        besides numpy, whose own imports nobody has listed.
    """
    words = _words_of(source, arguments)
    roots = {name.partition(".")[0] for name in (*level.modules, *level.preload)}
    if words is None or roots - sys.stdlib_module_names - _KNOWN:
        return level
    modules = {
        name: rule for name, rule in level.modules.items() if _is_spelled(name, words)
    }
    return msgspec.structs.replace(
        level,
        limits=msgspec.structs.replace(
            level.limits, max={**level.limits.max, "threads": threads}
        ),
        preload=tuple(name for name in level.preload if _is_spelled(name, words)),
        modules=modules,
        overrides={
            dotted: names
            for dotted, names in level.overrides.items()
            if dotted.rpartition(".")[0] in modules
        },
    )
