"""What the validator is asked, and what its answers change (BOINC's validator).

A result that agreed with another host's counts for its host, one that was refused or
outvoted ends the host's record; `_decide` is the one place where a result becomes valid or
invalid by comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import select, update

from stoilo.server.engines.embedded.accounts.credit import grant
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import (
    CheckVerdict,
    Result,
    Validity,
    WorkunitView,
)
from stoilo.server.engines.embedded.db.views import load_view
from stoilo.server.engines.embedded.hosts.conduct import forgive, note_turned_away
from stoilo.server.engines.embedded.hosts.host_trust import note_failed, note_valid
from stoilo.server.engines.embedded.hosts.quotas import (
    note_error,
    note_refusal,
    note_success,
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

    from stoilo.server.engines.embedded.workunits.validator import Answers

__all__ = ["write_answers"]

_OF_VERDICT = {
    ResultVerdict.VALID: (ResultOutcome.SUCCESS, Validity.CHECKED),
    ResultVerdict.INVALID: (ResultOutcome.INVALID, Validity.INVALID),
    ResultVerdict.NOT_FOR_THIS_HOST: (ResultOutcome.REFUSED, Validity.INIT),
    ResultVerdict.FATAL: (ResultOutcome.SUCCESS, Validity.TOO_LATE),
}


def write_answers(
    connection: Connection, answers: Answers, now: int, spot_check: Callable[[], bool]
) -> None:
    """Write what the validator said; answers to a closed workunit are void.

    Args:
        connection: inside a write transaction.
        answers: what it said.
        now: s.
        spot_check: says whether a workunit that ends now is to be checked again.
    """
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
    """Write the verdict about one result."""
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
    """Return the account whose host had a result."""
    table = schema.results
    query = select(table.c.user_id).where(table.c.name == result)
    return int(connection.execute(query).scalar_one())


def _write_judgement(connection: Connection, answers: Answers, now: int) -> None:
    """Write the result of comparing: a canonical result, or none so far."""
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
    """Write how results that came after the end compare with the canonical one."""
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
    """Write how a result that came after the end compares with the canonical one."""
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
    """Say whether the spot check has its verdict already."""
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
    """Write what a second opinion makes of the re-check that is in doubt."""
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
    """Write how far results have come with the validator."""
    table = schema.results
    connection.execute(
        update(table)
        .where(table.c.name.in_(list(results)))
        .values(validity=validity.value)
    )
