"""What the validator is asked, and what its answers change (BOINC's validator).

A result that agreed with another host's counts for its host, one that was refused or
outvoted ends the host's record; `_decide` is the one place where a result becomes valid or
invalid by comparison.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sqlalchemy import select, update

from stoilo.server.engines.embedded.accounts.host_trust import note_valid
from stoilo.server.engines.embedded.accounts.quotas import (
    note_bad,
    note_refusal,
    note_success,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    CheckVerdict,
    Validity,
    WorkunitView,
    load_view,
)
from stoilo.server.engines.embedded.workunits.steps import (
    begin_lingering,
    both_resumed,
    doubt_check,
    end_check,
    end_workunit,
    second_verdict,
)
from stoilo.server.engines.interface import (
    OutcomeKind,
    PairVerdict,
    ResultCheck,
    ResultOutcome,
    ResultVerdict,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection

    from stoilo.server.engines.embedded.db.records import Answers, Judgement
    from stoilo.server.engines.embedded.db.schema import AnyRow


# A cobblestone is 1/200 of a day of a computer that makes 1 GFLOP/s. What a result is worth
# follows from its workunit's estimate alone, which the server has made before anybody has
# the result: neither the time that a host says it took nor its benchmark has a part in it.
COBBLESTONES_PER_FLOP: Final = 200.0 / (86_400 * 1e9)
# Estimates follow what hosts said of earlier tasks of the same source (the median), so a
# cheat who runs most of a source's tasks can raise them. This bounds what that brings.
MOST_PER_RESULT: Final = 2000.0


def credit_of(fpops_est: float) -> float:
    """Return what one valid result is worth, cobblestones, from its estimate, FLOP."""
    if not math.isfinite(fpops_est):
        return 0.0
    return min(max(0.0, fpops_est * COBBLESTONES_PER_FLOP), MOST_PER_RESULT)


def grant(connection: Connection, workunit_id: int) -> tuple[AnyRow, ...]:
    """Pay for every valid result of a workunit that was not paid for; return those results.

    Call it in the transaction that makes results valid: both are stored or neither, and a
    second call pays nothing.
    """
    table, of = schema.results, schema.workunits
    fresh = connection.execute(
        select(table, of.c.fpops_est, of.c.app)
        .join(of, of.c.id == table.c.workunit_id)
        .where(
            table.c.workunit_id == workunit_id,
            table.c.outcome == ResultOutcome.SUCCESS.value,
            table.c.validity == Validity.VALID.value,
            table.c.granted.is_(None),
        )
        .order_by(table.c.id)
    ).all()
    for result in fresh:
        worth = credit_of(result.fpops_est)
        mine = table.c.id == result.id
        connection.execute(update(table).where(mine).values(granted=worth))
        for one, row in (
            (schema.users, result.user_id),
            (schema.hosts, result.host_id),
        ):
            more = one.c.total_credit + worth
            connection.execute(
                update(one).where(one.c.id == row).values(total_credit=more)
            )
    return tuple(fresh)


_OF_VERDICT = {
    ResultVerdict.VALID: (ResultOutcome.SUCCESS, Validity.CHECKED),
    ResultVerdict.INVALID: (ResultOutcome.INVALID, Validity.INVALID),
    ResultVerdict.NOT_FOR_THIS_HOST: (ResultOutcome.REFUSED, Validity.INIT),
    ResultVerdict.FATAL: (ResultOutcome.SUCCESS, Validity.TOO_LATE),
}


def write_answers(
    connection: Connection,  # inside a write transaction
    answers: Answers,  # what it said
    now: int,  # s
    # says whether a workunit that ends now is to be checked again
    spot_check: Callable[[], bool],
) -> None:
    """Write what the validator said; answers to a closed workunit are void."""
    view = load_view(connection, answers.workunit_id)
    if view.outcome is not None and not view.lingering:
        return
    waiting = {result.name: result for result in view.results}
    for name, check in answers.checks.items():
        if waiting[name].unchecked:
            _write_check(connection, name, check, now)
    if view.lingering:
        _write_pairs(connection, view, answers, now)
    elif answers.fatal is not None:
        kind = OutcomeKind.VALIDATOR_FAILED
        end_workunit(connection, answers.workunit_id, kind, answer=answers.fatal)
    elif answers.judgement is not None and all(
        waiting[name].viable for name in answers.judged
    ):  # what was compared still counts: its host may be banned meanwhile
        _write_judgement(connection, answers, answers.judgement, now)
        if answers.judgement.canonical:
            begin_lingering(connection, answers.workunit_id, recheck=spot_check())
    for paid in grant(connection, answers.workunit_id):
        note_success(connection, paid)


def _write_check(
    connection: Connection, result: str, check: ResultCheck, now: int
) -> None:
    if check.verdict.undecided:
        return
    outcome, validity = _OF_VERDICT[check.verdict]
    connection.execute(
        update(schema.results)
        .where(schema.results.c.name == result)
        .values(
            outcome=outcome.value,
            validity=validity.value,
            code=check.code[:16],
            resumed_at=check.resumed_at,
        )
    )
    if check.verdict is ResultVerdict.INVALID:
        note_bad(connection, [result], now)
    if outcome is ResultOutcome.REFUSED:
        note_refusal(connection, result, now)


def _write_judgement(
    connection: Connection, answers: Answers, judgement: Judgement, now: int
) -> None:
    canonical, same = judgement.canonical, judgement.same
    if not canonical:
        _set_validity(connection, answers.judged, Validity.INCONCLUSIVE)
        return
    others = [name for name in answers.judged if name not in same]
    _decide(connection, same, Validity.VALID, now, compared=len(same) > 1)
    _decide(connection, others, Validity.INVALID, now)
    kind = OutcomeKind.CANONICAL
    end_workunit(connection, answers.workunit_id, kind, canonical=canonical)


def _write_pairs(
    connection: Connection, view: WorkunitView, answers: Answers, now: int
) -> None:
    """Write what came after the end and was compared with the canonical result."""
    for result in view.results:
        pair = answers.pairs.get(result.name, PairVerdict.PENDING)
        if pair.undecided or not result.undecided:
            continue
        found: Validity | None = Validity.TOO_LATE
        if pair is not PairVerdict.FATAL and not result.recheck:
            found = Validity.VALID if pair is PairVerdict.SAME else Validity.INVALID
            _decide(connection, [result.name], found, now)
            continue
        if pair is not PairVerdict.FATAL:
            found = _write_recheck(connection, view, answers, result.name, now)
            # it may have decided what the next one means
            view = load_view(connection, answers.workunit_id)
        if found is not None:
            _set_validity(connection, [result.name], found)


def _write_recheck(
    connection: Connection, view: WorkunitView, answers: Answers, result: str, now: int
) -> Validity | None:
    """Write what a re-check says of the canonical result; return what it is itself.

    None where the second opinion that it may be is not known yet.
    """
    row, same = answers.workunit_id, answers.pairs[result] is PairVerdict.SAME
    if view.doubt:
        opinion = answers.opinions.get(result)
        if opinion is not None and opinion.undecided:
            return None
        like_first = opinion is PairVerdict.SAME
        verdict = second_verdict(
            like_canonical=same,
            like_first=like_first,
            both_resumed=both_resumed(connection, view.doubt, result),
        )
        end_check(connection, row, verdict, now)
        return Validity.VALID if same or like_first else Validity.TOO_LATE
    if all(one.answered for one in view.results if one.recheck):
        return Validity.VALID if same else Validity.TOO_LATE
    if same:
        end_check(connection, row, CheckVerdict.SAME, now)
    else:
        doubt_check(connection, result)
    return Validity.VALID


def _decide(
    connection: Connection,
    results: Iterable[str],
    validity: Validity,
    now: int,
    *,
    compared: bool = True,
) -> None:
    """Make results valid or invalid; `compared` with another host's, it is a record."""
    names = list(results)
    _set_validity(connection, names, validity)
    if validity is Validity.INVALID:
        note_bad(connection, names, now)
    elif compared:
        note_valid(connection, names)


def _set_validity(
    connection: Connection, results: Iterable[str], validity: Validity
) -> None:
    table = schema.results
    connection.execute(
        update(table)
        .where(table.c.name.in_(list(results)))
        .values(validity=validity.value)
    )
