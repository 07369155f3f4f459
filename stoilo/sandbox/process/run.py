"""One run in a jail made for it: through both layers, or through the kernel layer alone.

For people at a command line and for tests; a volunteer's runs share warm jails.

A warm zygote prepares everything that its level hands out. A jail that is made for one
source need not: a façade is reached by the name of its module only, so a module whose name
the source does not spell cannot be missed. Words are all that is looked at, never grammar,
because this runs outside the jail.

Three things keep it exact. Sources that could find a module without spelling its name
(``getattr``, ``type``, identifiers that NFKC would respell) get everything. Façades that
change a library for good are always built. And what a library imports behind the task's
back is noticed (`stoilo.sandbox.language.runtime.LateImports`): the run then counts for
nothing and is made again with everything prepared.
"""

from __future__ import annotations

import re
import sys
import threading

import msgspec

from stoilo.core.codec import skeleton
from stoilo.core.codec.nodes import Node
from stoilo.core.errors import UsageError
from stoilo.core.levels import Level
from stoilo.core.types import RunLayer, RunLimits, RunOutcome, RunStatus
from stoilo.sandbox.kernel.filters import Denied
from stoilo.sandbox.process.channel import PROBE_JOB, TASK_JOB, TaskRequest
from stoilo.sandbox.process.report import (
    LIMIT_CODES,
    JailReport,
    JailStatus,
    choose_limits,
    complete,
    decode_frame,
    describe,
    malformed,
    out_of_memory,
    read_failure,
    read_outcome,
    read_text,
)
from stoilo.sandbox.process.supervisor import Jail

NO_ENTRY = "STO-P030"


def run_task(
    jail: Jail, request: TaskRequest, limits: RunLimits, wall_s: float | None = None
) -> RunOutcome:
    """Run one call in a warm `jail` made for `TASK_JOB`."""
    return read_outcome(jail.run(request.encode(), limits, wall_s))


def _run_alone(
    level: Level, request: TaskRequest, limits: RunLimits, wall_s: float | None
) -> tuple[RunOutcome, bool]:
    # Also say whether a library missed a module there
    jail = Jail(level, TASK_JOB)
    try:
        report = jail.run(request.encode(), limits, wall_s)
    finally:  # the answer does not wait until the kernel has taken all of it down
        threading.Thread(target=jail.close).start()
    frame = decode_frame(report) if report.status is JailStatus.FINISHED else None
    missed = isinstance(frame, dict) and frame.get("late_imports") is True
    return read_outcome(report), missed


def run_source(
    source: str,  # module text (untrusted)
    entry: str | None,  # function name, None for the last ``def`` of the module body
    kwargs: Node,  # the one dict that the function gets
    level: Level,  # what it may do
    limits: RunLimits | None = None,  # None for the level's defaults
    *,
    wall_s: float | None = None,  # elapsed time, s; None for the limit's
    now: int = 0,  # what the clock says inside, s since 1970 in UTC
) -> RunOutcome:
    """Run a function of `source` through both layers, in a jail of its own.

    Raises:
        UsageError: ``STO-P030`` there is no such function.
        PolicyRefusal: ``STO-S002``, ``STO-S002`` this host cannot make the jail.
        InternalError: the jail broke, or the zygote died.
    """
    request = TaskRequest(source, entry or "", skeleton.encode(kwargs), now=now)
    limits = limits or choose_limits(level, wall_s)
    narrow = narrow_level(level, source, request.arguments, limits.threads)
    outcome, missed = _run_alone(narrow, request, limits, wall_s)
    if missed and narrow is not level:
        outcome, _ = _run_alone(level, request, limits, wall_s)
    if outcome.code == NO_ENTRY:
        raise UsageError(NO_ENTRY, outcome.error or "there is no function to run")
    return outcome


# The kernel layer alone ---------------------------------------------------------------


def read_probe(report: JailReport) -> RunOutcome:
    """Turn a probe's report into an outcome; what it printed is its value."""
    if report.code == "STO-S021" and "status 0" in report.detail:
        outcome = RunOutcome(status=RunStatus.OK)  # os._exit(0) is the program's right
    elif report.status is not JailStatus.FINISHED:
        outcome = read_failure(report)
    else:
        outcome = _read_probe_frame(decode_frame(report))
    outcome = complete(outcome, report)
    return msgspec.structs.replace(outcome, value=skeleton.encode(outcome.output))


def _read_probe_frame(frame: Node) -> RunOutcome:
    fields = frame if isinstance(frame, dict) else {}
    code, status = read_text(fields, "code"), read_text(fields, "status")
    if status == "ok":
        return RunOutcome(status=RunStatus.OK)
    if status != "failed":
        return malformed("not a probe's answer")
    if code == LIMIT_CODES["memory_bytes"]:
        return out_of_memory()
    refused = code == "STO-P023"
    return RunOutcome(
        status=RunStatus.REFUSED if refused else RunStatus.USER_ERROR,
        error=describe(fields),
        code=code,
        layer=RunLayer.GATE if refused else RunLayer.LANGUAGE,
    )


def encode_probe(source: str, preload: tuple[str, ...] = ()) -> bytes:
    """Return a request for a jail made for `PROBE_JOB`."""
    return skeleton.encode({"source": source, "preload": list(preload)})


def probe_source(
    source: str,  # program text (untrusted), run as ``__main__``
    level: Level,  # whose system calls and limits are in force
    *,
    # Modules imported before the jail closes; the level's list is not used
    preload: tuple[str, ...] = (),
    limits: RunLimits | None = None,  # None for the level's defaults
    wall_s: float | None = None,  # elapsed time, s
    # Whether a call outside the level ends the program, or fails with EPERM so that it goes
    # on to its next one
    denied: Denied = Denied.KILL,
) -> RunOutcome:
    """Run a plain program through the kernel layer alone.

    Raises:
        UsageError: ``STO-S030`` a module to preload cannot be imported.
        PolicyRefusal: ``STO-S002``, ``STO-S002`` this host cannot make the jail.
    """
    bare = msgspec.structs.replace(level, preload=())
    request = encode_probe(source, preload)
    with Jail(bare, PROBE_JOB, preload=preload, denied=denied) as jail:
        report = jail.run(request, limits or choose_limits(level, wall_s), wall_s)
    return read_probe(report)


# What a jail of one run has to prepare: less than its level, and never too little ------

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
