"""BOINC's ends as ours; pure.

BOINC says of a failed workunit a mask in which several bits may be set. What we decided
ourselves (a cancellation, a broken validator, refusals, the admission's end) is in our
row before BOINC is told, and never comes from here.
"""

from __future__ import annotations

from typing import Final

from stoilo.server.engines.interface import CopyOutcome, CopyState, OutcomeKind
from stoilo.server.engines.stock.boinctables import (
    BoincOutcome,
    ErrorMask,
    ServerState,
    Validate,
)

__all__ = ["copy_code", "copy_outcome", "copy_state", "kind_of"]

ABORTED_BY_VOLUNTEER: Final = 203
"""BOINC's exit status; not counted as an error there either."""

_STATES: Final[dict[int, CopyState]] = {
    ServerState.INACTIVE: CopyState.UNSENT,
    ServerState.UNSENT: CopyState.UNSENT,
    ServerState.IN_PROGRESS: CopyState.IN_PROGRESS,
}
_OUTCOMES: Final[dict[int, CopyOutcome]] = {
    BoincOutcome.SUCCESS: CopyOutcome.SUCCESS,
    BoincOutcome.COULDNT_SEND: CopyOutcome.CLIENT_ERROR,
    BoincOutcome.CLIENT_ERROR: CopyOutcome.CLIENT_ERROR,
    BoincOutcome.NO_REPLY: CopyOutcome.NO_REPLY,
    BoincOutcome.CLIENT_DETACHED: CopyOutcome.NO_REPLY,
    BoincOutcome.DIDNT_NEED: CopyOutcome.NOT_NEEDED,
    BoincOutcome.VALIDATE_ERROR: CopyOutcome.INVALID,
}
_CODES: Final = {
    CopyOutcome.CLIENT_ERROR: "STO-E021",
    CopyOutcome.ABORTED: "STO-E021",
    CopyOutcome.NO_REPLY: "STO-E022",
    CopyOutcome.INVALID: "STO-R052",
}


def kind_of(mask: int, *, frozen: bool) -> OutcomeKind:
    """Return how a workunit with an error mask ended.

    Args:
        mask: BOINC's, not 0.
        frozen: no copy could be issued any more, because the admission ends.
    """
    bits = ErrorMask(mask & sum(ErrorMask))
    if ErrorMask.CANCELLED in bits:  # by the operator, with BOINC's own tools
        return OutcomeKind.CANCELLED
    if frozen and ErrorMask.TOO_MANY_TOTAL in bits:
        return OutcomeKind.ADMISSION_ENDED
    if ErrorMask.TOO_MANY_ERRORS in bits:
        return OutcomeKind.TOO_MANY_ERRORS
    if ErrorMask.TOO_MANY_TOTAL in bits:
        return OutcomeKind.TOO_MANY_TOTAL
    if ErrorMask.TOO_MANY_SUCCESS in bits:
        return OutcomeKind.TOO_MANY_SUCCESS
    return OutcomeKind.TOO_MANY_ERRORS


def copy_state(server_state: int) -> CopyState:
    """Return where a copy is."""
    return _STATES.get(server_state, CopyState.OVER)


def copy_outcome(outcome: int, validate_state: int, exit_status: int) -> CopyOutcome:
    """Return how a copy ended, as its owner sees it."""
    if validate_state == Validate.INVALID:
        return CopyOutcome.INVALID
    if outcome == BoincOutcome.CLIENT_ERROR and exit_status == ABORTED_BY_VOLUNTEER:
        return CopyOutcome.ABORTED
    return _OUTCOMES.get(outcome, CopyOutcome.NONE)


def copy_code(outcome: CopyOutcome) -> str:
    """Return the code for a failed copy of which nothing more is known."""
    return _CODES.get(outcome, "")
