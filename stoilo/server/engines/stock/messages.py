"""What BOINC's validator and assimilator scripts say to the engine, and what it answers.

    request   NAME NUL ARGUMENT NUL … , at most 8 KiB, ended by closing for writing
    answer    one digit: the exit status to end with, or 9: try again in a while

The scripts are run by BOINC, but their arguments are built from rows that hosts have a
hand in; so they are bounded and matched before anything is looked up. A call that makes
no sense is answered at once: a validator is to ask again, but an assimilator is let go,
because any other answer ends BOINC's daemon, and an end that cannot be read is not one of
ours: our workunits' names are plain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from stoilo.core.errors import TrustError
from stoilo.server.engines.stock.filestore import OutputName, output_of

__all__ = [
    "AGAIN",
    "ASSIMILATE",
    "CHECK",
    "COMPARE",
    "PING",
    "REQUEST_BYTES",
    "AssimilateCall",
    "Call",
    "CheckCall",
    "CompareCall",
    "PingCall",
    "answer_senseless",
    "parse_call",
]

CHECK: Final = "stoilo_validate"
COMPARE: Final = "stoilo_compare"
ASSIMILATE: Final = "stoilo_assimilate"
PING: Final = "stoilo_ping"  # no script: the doctor asks whether calls are answered
AGAIN: Final = 9
_TAKEN: Final = 0
_LATER: Final = 3
REQUEST_BYTES: Final = 8192

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_WORKUNIT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PLAIN: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class CheckCall:
    """Is this result well formed and acceptable?"""

    output: OutputName


@dataclass(frozen=True, slots=True)
class CompareCall:
    """Are these two results the same?"""

    left: OutputName
    right: OutputName


@dataclass(frozen=True, slots=True)
class AssimilateCall:
    """A workunit has ended; by name or by BOINC's row."""

    name: str = ""
    boinc_id: int = 0


@dataclass(frozen=True, slots=True)
class PingCall:
    """Is anybody there?"""


Call = CheckCall | CompareCall | AssimilateCall | PingCall


def parse_call(data: bytes) -> Call:
    """Return what a script asks; raises ``STO-B003``."""
    if len(data) > REQUEST_BYTES or not data.isascii():
        raise TrustError("STO-B003", "the script's call is too long or not ASCII")
    name, *arguments = data.decode().split("\0")
    if name == CHECK:
        return CheckCall(*_outputs(arguments, 1))
    if name == COMPARE:
        return CompareCall(*_outputs(arguments, 2))
    if name == ASSIMILATE:
        return _assimilate(arguments)
    if name == PING:
        return PingCall()
    raise TrustError("STO-B003", "no such script is known")


def answer_senseless(data: bytes) -> int:
    """Return the exit status for a call that cannot be parsed."""
    name = data.partition(b"\0")[0]
    return _TAKEN if name == ASSIMILATE.encode() else _LATER


def _outputs(arguments: list[str], count: int) -> list[OutputName]:
    """Return the files among arguments; ids and run times may stand beside them."""
    paths = [one for one in arguments if not _PLAIN.fullmatch(one)]
    if len(paths) != count:
        raise TrustError("STO-B003", f"the script was given {len(paths)} files")
    return [output_of(path) for path in paths]


def _assimilate(arguments: list[str]) -> AssimilateCall:
    """Return the call for an end or a failure, as BOINC's versions put them.

    ``ID FILE…``; ``--error MASK NAME ID BATCH``, before that ``--error MASK ID``. A name
    that no workunit of ours has leaves BOINC's row to be looked up.
    """
    match arguments:
        case ["--error", _, number] if _NUMBER.fullmatch(number):
            return AssimilateCall(boinc_id=int(number))
        case ["--error", _, name, *_] if _WORKUNIT.fullmatch(name):
            return AssimilateCall(name=name)
        case ["--error", _, _, number, *_] if _NUMBER.fullmatch(number):
            return AssimilateCall(boinc_id=int(number))
        case [number, *_] if _NUMBER.fullmatch(number):
            return AssimilateCall(boinc_id=int(number))
        case _:
            raise TrustError("STO-B003", "the assimilator's arguments make no sense")
