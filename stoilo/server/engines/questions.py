"""What engines ask the server and tell it, so that its trouble stops no engine.

An exception of the server's is *inconclusive*, or not taken: asked and told again later.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from stoilo.core.errors import StoiloError
from stoilo.server.engines.interface import (
    Comparison,
    NotDecidedYet,
    PairVerdict,
    ResultCheck,
    ResultVerdict,
    Waits,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from stoilo.server.engines.interface import (
        Assimilator,
        ReceivedResult,
        Validation,
        WorkunitOutcome,
    )

log = logging.getLogger(__name__)
LOST: Final = ResultCheck(ResultVerdict.INVALID, "STO-E023", "the file is lost")
REFUSALS_AT_LEAST: Final = 10
_SaidT = TypeVar("_SaidT", ResultCheck, Comparison)


def refusal_cap(max_total: int) -> int:
    """Return how many refusals by opt-in a workunit survives: then nobody wants it."""
    return max(REFUSALS_AT_LEAST, 2 * max_total)


def ask_check(
    validation: Validation, result: ReceivedResult, patience_s: float = 0.0
) -> ResultCheck:
    """Return the server's verdict on a result, waited for with some patience, s."""

    def ask() -> ResultCheck:
        return validation.check(result) if result.path.exists() else LOST

    unknown = ResultCheck(ResultVerdict.INCONCLUSIVE)
    return _asked(ask, unknown, validation, result, patience_s)


def ask_pair(
    validation: Validation,
    left: ReceivedResult,
    right: ReceivedResult,
    patience_s: float = 0.0,
) -> Comparison:
    """Return the server's verdict on a pair, in the same way."""
    unknown = Comparison(PairVerdict.INCONCLUSIVE)
    return _asked(
        lambda: validation.compare(left, right), unknown, validation, left, patience_s
    )


def _asked(
    ask: Callable[[], _SaidT],
    unknown: _SaidT,
    validation: Validation,
    result: ReceivedResult,
    patience_s: float,
) -> _SaidT:
    try:
        said = ask()
        pending = said.verdict.value == ResultVerdict.PENDING.value
        if pending and patience_s > 0 and isinstance(validation, Waits):
            said = ask() if validation.wait(result.workunit, patience_s) else said
    except Exception:  # the server's code must not stop the engine
        log.exception("a question about %s failed", result.name)
        said = unknown
    return said


def deliver(outcome: WorkunitOutcome, assimilator: Assimilator) -> bool:
    """Hand one outcome to the server, which may hear it twice; say if it took it."""
    try:
        assimilator.assimilate(outcome)
    except Exception as error:  # the server's code must not stop the engine
        if not isinstance(error, NotDecidedYet):
            log.exception("the outcome of %s was not taken", outcome.workunit)
        return False
    return True


def take_names(
    told: SimpleQueue[str], most: int, hasten: Callable[[set[str]], None]
) -> bool:
    """Give `hasten` some workunits of which there is more to say (`Engine.ask_again`).

    They are kept when it raises one of our errors: the database is away. Returns whether
    there were any.
    """
    names = {told.get() for _ in range(min(told.qsize(), most))}
    try:
        if names:
            hasten(names)
    except StoiloError:
        for name in names:
            told.put(name)
        raise
    return bool(names)
