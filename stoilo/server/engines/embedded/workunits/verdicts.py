"""What the validator is asked, and what its answers change (BOINC's validator).

A result that agreed with another host's counts for its host, one that was refused or
outvoted ends the host's record; `_decide` is the one place where a result becomes valid or
invalid by comparison.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sqlalchemy import exists, insert, select, update

from stoilo.server.engines.embedded.accounts.host_trust import note_failed, note_valid
from stoilo.server.engines.embedded.accounts.preferences import ensure_person
from stoilo.server.engines.embedded.accounts.quotas import (
    forgive,
    note_error,
    note_refusal,
    note_success,
    note_turned_away,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    CheckVerdict,
    Result,
    Validity,
    WorkunitView,
    load_view,
)
from stoilo.server.engines.embedded.workunits.spot_checks import (
    all_resumed,
    doubt_check,
    end_check,
    note_resumption,
    second_verdict,
)
from stoilo.server.engines.embedded.workunits.steps import begin_lingering, end_workunit
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

    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.embedded.workunits.validator import Answers


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


def grant(connection: Connection, workunit_id: int, now: int) -> tuple[AnyRow, ...]:
    """Pay for every valid result of a workunit that was not paid for; return those results.

    Call it in the transaction that makes results valid: both are stored or neither, and a
    second call pays nothing.
    """
    table, paid = schema.results, schema.grants
    fresh = connection.execute(
        select(table, schema.workunits.c.fpops_est, schema.workunits.c.app)
        .join(schema.workunits, schema.workunits.c.id == table.c.workunit_id)
        .where(
            table.c.workunit_id == workunit_id,
            table.c.outcome == ResultOutcome.SUCCESS.value,
            table.c.validity == Validity.VALID.value,
            ~exists().where(paid.c.copy_id == table.c.id),
        )
        .order_by(table.c.id)
    ).all()
    for result in fresh:
        _pay(connection, result, credit_of(result.fpops_est), now)
    return tuple(fresh)


def _pay(connection: Connection, result: AnyRow, worth: float, now: int) -> None:
    connection.execute(
        insert(schema.grants).values(
            copy_id=result.id,
            user_id=result.user_id,
            host_id=result.host_id,
            granted=worth,
            granted_at=now,
        )
    )
    ensure_person(connection, result.user_id)
    people, records = schema.people, schema.host_records
    for table, mine in (
        (people, people.c.user_id == result.user_id),
        (records, records.c.host_id == result.host_id),
    ):
        more = table.c.total_credit + worth
        connection.execute(update(table).where(mine).values(total_credit=more))


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
        end_workunit(connection, answers.workunit_id, kind, now, answer=answers.fatal)
    elif answers.judgement is not None and _all_viable(waiting, answers.judged):
        _write_judgement(connection, answers, now)
        if answers.judgement.canonical:
            begin_lingering(connection, answers.workunit_id, now, recheck=spot_check())
    paid = grant(connection, answers.workunit_id, now)
    for result in paid:
        note_success(connection, result.host_id, result.app)
    forgive(connection, {result.user_id for result in paid})


def _all_viable(results: dict[str, Result], names: Iterable[str]) -> bool:
    """Say whether what was compared still counts: its host may be banned meanwhile."""
    return all(results[name].viable for name in names)


def _write_check(
    connection: Connection, result: str, check: ResultCheck, now: int
) -> None:
    if check.verdict.undecided:
        return
    if check.verdict is ResultVerdict.INVALID:
        note_failed(connection, [result])
        note_error(connection, result, now)
    outcome, validity = _OF_VERDICT[check.verdict]
    connection.execute(
        update(schema.results)
        .where(schema.results.c.name == result)
        .values(outcome=outcome.value, validity=validity.value, code=check.code[:16])
    )
    if outcome is ResultOutcome.REFUSED:
        note_refusal(connection, result, now)
        note_turned_away(connection, _user_of(connection, result), 1, now)
    if check.resumed_at:
        note_resumption(connection, result, check.resumed_at)


def _user_of(connection: Connection, result: str) -> int:
    table = schema.results
    query = select(table.c.user_id).where(table.c.name == result)
    return int(connection.execute(query).scalar_one())


def _write_judgement(connection: Connection, answers: Answers, now: int) -> None:
    assert answers.judgement is not None  # noqa: S101 - the caller has looked
    canonical, same = answers.judgement.canonical, answers.judgement.same
    if not canonical:
        _set_validity(connection, answers.judged, Validity.INCONCLUSIVE)
        return
    others = [name for name in answers.judged if name not in same]
    _decide(connection, same, Validity.VALID, now, compared=len(same) > 1)
    _decide(connection, others, Validity.INVALID, now)
    kind = OutcomeKind.CANONICAL
    end_workunit(connection, answers.workunit_id, kind, now, canonical=canonical)


def _write_pairs(
    connection: Connection, view: WorkunitView, answers: Answers, now: int
) -> None:
    late = [result for result in view.results if result.undecided]
    for result in late:
        if result.name in answers.pairs:
            pair = answers.pairs[result.name]
            _write_pair(connection, view, answers, result, pair, now)
            if result.recheck:  # it may have decided what the next one means
                view = load_view(connection, answers.workunit_id)


def _write_pair(
    connection: Connection,
    view: WorkunitView,
    answers: Answers,
    result: Result,
    pair: PairVerdict,
    now: int,
) -> None:
    if pair.undecided:
        return
    same = pair is PairVerdict.SAME
    if pair is PairVerdict.FATAL:
        _set_validity(connection, [result.name], Validity.TOO_LATE)
    elif not result.recheck:
        found = Validity.VALID if same else Validity.INVALID
        _decide(connection, [result.name], found, now)
    elif view.doubt:
        _write_opinion(connection, view, answers, result.name, now, same=same)
    elif _check_is_over(view):
        found = Validity.VALID if same else Validity.TOO_LATE
        _set_validity(connection, [result.name], found)
    else:
        if same:
            end_check(connection, answers.workunit_id, CheckVerdict.SAME, now)
        else:
            doubt_check(connection, result.name)
        _set_validity(connection, [result.name], Validity.VALID)


def _check_is_over(view: WorkunitView) -> bool:
    return all(result.answered for result in view.results if result.recheck)


def _write_opinion(
    connection: Connection,
    view: WorkunitView,
    answers: Answers,
    result: str,
    now: int,
    *,
    same: bool,
) -> None:
    like_first = answers.opinions.get(result)
    if like_first is not None and like_first.undecided:
        return
    verdict = second_verdict(
        like_canonical=same,
        like_first=like_first is PairVerdict.SAME,
        both_resumed=all_resumed(connection, [view.doubt, result]),
    )
    end_check(connection, answers.workunit_id, verdict, now)
    agrees = same or like_first is PairVerdict.SAME
    validity = Validity.VALID if agrees else Validity.TOO_LATE
    _set_validity(connection, [result], validity)


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
        note_failed(connection, names)
        for name in names:
            note_error(connection, name, now)
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
