"""BOINC's ends as ours; pure.

BOINC says of a failed workunit a mask in which several bits may be set. What we decided
ourselves (a cancellation, a broken validator, refusals, the admission's end) is in our
row before BOINC is told, and never comes from here.
"""

from __future__ import annotations

from typing import Final

from stoilo.server.engines.interface import OutcomeKind, ResultOutcome, ResultProgress
from stoilo.server.engines.stock.boinctables import (
    BoincOutcome,
    ErrorMask,
    ServerState,
    Validate,
)

__all__ = ["copy_code", "copy_outcome", "copy_state", "kind_of"]

ABORTED_BY_VOLUNTEER: Final = 203
"""BOINC's exit status; not counted as an error there either."""

_STATES: Final[dict[int, ResultProgress]] = {
    ServerState.INACTIVE: ResultProgress.UNSENT,
    ServerState.UNSENT: ResultProgress.UNSENT,
    ServerState.IN_PROGRESS: ResultProgress.IN_PROGRESS,
}
_OUTCOMES: Final[dict[int, ResultOutcome]] = {
    BoincOutcome.SUCCESS: ResultOutcome.SUCCESS,
    BoincOutcome.COULDNT_SEND: ResultOutcome.CLIENT_ERROR,
    BoincOutcome.CLIENT_ERROR: ResultOutcome.CLIENT_ERROR,
    BoincOutcome.NO_REPLY: ResultOutcome.NO_REPLY,
    BoincOutcome.CLIENT_DETACHED: ResultOutcome.NO_REPLY,
    BoincOutcome.DIDNT_NEED: ResultOutcome.NOT_NEEDED,
    BoincOutcome.VALIDATE_ERROR: ResultOutcome.INVALID,
}
_CODES: Final = {
    ResultOutcome.CLIENT_ERROR: "STO-E021",
    ResultOutcome.ABORTED: "STO-E021",
    ResultOutcome.NO_REPLY: "STO-E022",
    ResultOutcome.INVALID: "STO-R052",
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


def copy_state(server_state: int) -> ResultProgress:
    """Return where a copy is."""
    return _STATES.get(server_state, ResultProgress.OVER)


def copy_outcome(outcome: int, validate_state: int, exit_status: int) -> ResultOutcome:
    """Return how a copy ended, as its owner sees it."""
    if validate_state == Validate.INVALID:
        return ResultOutcome.INVALID
    if outcome == BoincOutcome.CLIENT_ERROR and exit_status == ABORTED_BY_VOLUNTEER:
        return ResultOutcome.ABORTED
    return _OUTCOMES.get(outcome, ResultOutcome.NONE)


def copy_code(outcome: ResultOutcome) -> str:
    """Return the code for a failed copy of which nothing more is known."""
    return _CODES.get(outcome, "")
