"""How many results a host may have in a day, and how long it pauses after garbage.

BOINC's daily result quota, per host and app: a day's limit for each processor starts at
the most, loses one with every bad result and doubles with every valid one. That alone
lets a broken host waste half a day's quota, so a second rule is ours: after some bad
results in a row the host pauses, each time twice as long, until one is valid. The rules
are pure; their numbers and the rows that hold them are at the end.

Bad is: reported as failed or aborted, refused by the validator, outvoted, never returned.
What the project itself called off is not. What its owners reject afterwards (`host_trust`)
is counted apart. What a volunteer's opt-in refused is only when
the host does nothing else: its word alone must not use up one workunit after the other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final

from sqlalchemy import and_, bindparam, insert, select, update

from stoilo.server.engines.embedded.accounts.accounts import is_newcomer
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.records import Validity
from stoilo.server.engines.interface import ResultOutcome, ResultProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection, Update

    from stoilo.server.engines.embedded.db.schema import AnyRow


DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """Numbers of the rules."""

    # most results of one app a day, for each processor. A BOINC client ends about one
    # task a second on two processors; no honest host comes near
    per_cpu: int = 100_000
    most_cpus: int = 64  # processors that count, whatever a host says it has
    patience: int = 10  # bad results in a row before the first pause
    # results that a host may refuse without a usable result between them; each further
    # one is bad
    refusals: int = 12
    # length of that pause, s; each further bad result doubles it
    first_pause_s: int = 60
    longest_pause_s: int = 3600  # longest pause, s


RULES: Final = QuotaRules()


@dataclass(frozen=True, slots=True)
class Quota:
    """One host's standing with one app: a row of `host_apps`."""

    per_cpu: int  # results a day for each processor
    day: int = 0  # number of the day since 1970 that `issued` counts
    issued: int = 0  # results handed out on that day
    errors_in_row: int = 0  # bad results since the last valid one
    paused_until: int = 0  # no result before that, s since 1970
    # its record: valid results that agreed with another host's, since the last bad one
    consecutive_valid: int = 0


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a host may get now."""

    apps: tuple[str, ...]  # those with something left
    results: int  # most results of all apps together
    messages: tuple[str, ...] = ()  # what to tell the volunteer about the others
    delay_s: int = 0  # when to call again if nothing is left, s; 0 if something is


def after_error(quota: Quota, now: int, rules: QuotaRules = RULES) -> Quota:
    """Return the standing after one bad result at `now`, s."""
    row = quota.errors_in_row + 1
    pause = _pause(row - rules.patience, rules)
    return replace(
        quota,
        per_cpu=max(1, min(quota.per_cpu, rules.per_cpu) - 1),
        errors_in_row=row,
        paused_until=max(quota.paused_until, now + pause if pause else 0),
        consecutive_valid=0,
    )


def after_rejection(
    quota: Quota, rejected: int, now: int, rules: QuotaRules = RULES
) -> Quota:
    """Return the standing when owners have `rejected` so many of the latest results.

    It is no error of the row, and a pause that runs does not grow.
    """
    pause = _pause(rejected - rules.patience, rules)
    if not pause or now < quota.paused_until:
        return quota
    return replace(quota, paused_until=now + pause)


def _pause(over: int, rules: QuotaRules | ConductRules) -> int:
    """Return the pause, s, after so many more than are borne with; none below 0."""
    if over < 0:
        return 0
    return min(rules.first_pause_s << min(over, 32), rules.longest_pause_s)


def after_success(quota: Quota, rules: QuotaRules = RULES) -> Quota:
    """Return the standing after one valid result."""
    doubled = min(2 * quota.per_cpu, rules.per_cpu)
    return replace(quota, per_cpu=doubled, errors_in_row=0, paused_until=0)


def after_issue(quota: Quota, results: int, now: int) -> Quota:
    """Return the standing after results were handed out at `now`, s."""
    today = now // DAY_S
    issued = quota.issued if quota.day == today else 0
    return replace(quota, day=today, issued=issued + results)


def room_in(quota: Quota, ncpus: int, now: int, rules: QuotaRules = RULES) -> int:
    """Return how many results are left today at `now`, s; 0 during a pause."""
    if now < quota.paused_until:
        return 0
    issued = quota.issued if quota.day == now // DAY_S else 0
    processors = max(1, min(ncpus, rules.most_cpus))
    return max(0, min(quota.per_cpu, rules.per_cpu) * processors - issued)


def allowed_today(
    known: Mapping[str, Quota],  # its standing with every app that it has had
    apps: Sequence[str],  # those it may get
    ncpus: int,  # what it says that it has
    now: int,  # s
    rules: QuotaRules = RULES,  # numbers
) -> Allowance:
    """Return what a host may get of these apps now."""
    fresh = Quota(rules.per_cpu)
    rooms = {app: room_in(known.get(app, fresh), ncpus, now, rules) for app in apps}
    closed = {app: known[app] for app in apps if not rooms[app]}
    open_apps = tuple(app for app in apps if rooms[app])
    waits = [_wait(quota, now) for quota in closed.values()]
    return Allowance(
        apps=open_apps,
        results=sum(rooms.values()),
        messages=tuple(_message(app, quota, now) for app, quota in closed.items()),
        delay_s=0 if open_apps else min(waits, default=0),
    )


def note_results(
    connection: Connection,
    host_id: int,
    apps: Iterable[str],
    known: Mapping[str, Quota],
    now: int,
) -> None:
    """Count results just handed out, one `app` each, on a standing that is `known`."""
    for app, count in Counter(apps).items():
        quota = known.get(app, Quota(RULES.per_cpu))
        better = after_issue(quota, count, now)
        store_quota(connection, host_id, app, better, known=app in known)


def note_errors(
    connection: Connection,
    host_id: int,
    apps: Iterable[str],
    known: Mapping[str, Quota],
    now: int,
) -> dict[str, Quota]:
    """Count bad results of a host, one `app` each; return its standing with every app."""
    after = dict(known)
    for app, count in Counter(apps).items():
        quota = after.get(app, Quota(RULES.per_cpu))
        for _ in range(count):
            quota = after_error(quota, now)
        store_quota(connection, host_id, app, quota, known=app in known)
        after[app] = quota
    return after


def note_bad(connection: Connection, results: Iterable[str], now: int) -> None:
    """Count bad results, by name, against the hosts that had them."""
    for row in hosts_of(connection, results):
        known = load_quotas(connection, row.host_id)
        note_errors(connection, row.host_id, [row.app], known, now)


def note_refusal(connection: Connection, result: str, now: int) -> None:
    """Count a result just refused by opt-in, for its account and, at times, its host.

    For the host only if it has long brought nothing else.
    """
    results, table = schema.results, schema.workunits
    unchecked = and_(
        results.c.outcome == ResultOutcome.SUCCESS.value,
        results.c.validity == Validity.INIT.value,
    )
    for row in hosts_of(connection, [result]):
        latest = connection.scalars(
            select(results.c.outcome)
            .join(table, table.c.id == results.c.workunit_id)
            .where(
                results.c.host_id == row.host_id,
                results.c.state == ResultProgress.OVER.value,
                table.c.app == row.app,
                ~unchecked,
            )
            .order_by(results.c.id.desc())
            .limit(RULES.refusals + 1)
        ).all()
        if len(latest) > RULES.refusals and ResultOutcome.SUCCESS.value not in latest:
            note_bad(connection, [result], now)
        note_turned_away(connection, row.user_id, 1, now)


def note_success(connection: Connection, result: AnyRow) -> None:
    """Count a valid result, with host, user and app, for its host and account."""
    quota = load_quotas(connection, result.host_id).get(result.app)
    better = None if quota is None else after_success(quota)
    if better is not None and better != quota:
        store_quota(connection, result.host_id, result.app, better, known=True)
    users = schema.users
    connection.execute(
        update(users)
        .where(users.c.id == result.user_id, users.c.turned_away > 0)
        .values(turned_away=0, paused_until=0)
    )


def hosts_of(connection: Connection, results: Iterable[str]) -> Sequence[AnyRow]:
    """Return name, host, user and app of those of these results that were sent."""
    table, of = schema.results, schema.workunits
    return connection.execute(
        select(table.c.name, table.c.host_id, table.c.user_id, of.c.app)
        .join(of, of.c.id == table.c.workunit_id)
        .where(table.c.name.in_(list(results)), table.c.host_id != 0)
        .order_by(table.c.id)
    ).all()


def load_quotas(connection: Connection, host_id: int) -> dict[str, Quota]:
    """Return a host's standing with every app that it has had."""
    table = schema.host_apps
    rows = connection.execute(select(table).where(table.c.host_id == host_id)).all()
    return {row.app: Quota(*row[2:]) for row in rows}


def store_quota(
    connection: Connection, host_id: int, app: str, quota: Quota, *, known: bool
) -> None:
    """Write a host's standing with one app, over the row that is `known` to be there."""
    if known:
        place = {"of_host": host_id, "of_app": app}
        connection.execute(_change(), place | asdict(quota))
    else:
        row = {"host_id": host_id, "app": app, **asdict(quota)}
        connection.execute(insert(schema.host_apps), row)


@cache
def _change() -> Update:
    """Return the statement that changes the standing of :of_host with :of_app."""
    table = schema.host_apps
    mine = (table.c.host_id == bindparam("of_host"), table.c.app == bindparam("of_app"))
    return update(table).where(*mine)


def _wait(quota: Quota, now: int) -> int:
    """Return how long an app stays closed, s."""
    if now < quota.paused_until:
        return quota.paused_until - now
    return DAY_S - now % DAY_S


def _clock(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M UTC")


def _message(app: str, quota: Quota, now: int) -> str:
    when, row = _clock(now + _wait(quota, now)), quota.errors_in_row
    if now >= quota.paused_until:
        return (
            f"This computer has had its tasks of the day for {app!r}; "
            f"it gets new ones after {when} [STO-E067]."
        )
    which = f"The last {row}" if row >= RULES.patience else "Many of the last"
    return (
        f"{which} results of this computer for {app!r} could not be used; "
        f"it gets new tasks after {when} [STO-E067]."
    )


# Work that is turned away (aborted, or refused by opt-in) uses up no workunit's total, but
# each costs a result and time, and one account after the other could do it. So an account
# pauses after some in a row, all its computers together, until one of its results is valid.
@dataclass(frozen=True, slots=True)
class ConductRules:
    """How much an account may turn away; newcomers, who helped with nothing yet, less."""

    patience: int = 20  # results turned away in a row before the first pause
    newcomer_patience: int = 3  # the same for newcomers
    first_pause_s: int = 60  # length of that pause, s; each further result doubles it
    longest_pause_s: int = 3600  # longest pause, s


CONDUCT_RULES: Final = ConductRules()


@dataclass(frozen=True, slots=True)
class Conduct:
    """What an account did lately."""

    turned_away: int = 0  # results since its last valid result
    paused_until: int = 0  # no result before that, s since 1970


def after_turning_away(conduct: Conduct, now: int, *, newcomer: bool) -> Conduct:
    """Return what is known of an account after one more result at `now`, s."""
    rules, row = CONDUCT_RULES, conduct.turned_away + 1
    pause = _pause(
        row - (rules.newcomer_patience if newcomer else rules.patience), rules
    )
    return Conduct(row, max(conduct.paused_until, now + pause if pause else 0))


def pause_of(paused_until: int, now: int) -> Allowance | None:
    """Return what an account may get during its pause (nothing), None outside of one."""
    if now >= paused_until:
        return None
    text = (
        "The computers of this account have aborted or refused many tasks in a row; "
        f"they get new ones after {_clock(paused_until)} [STO-E067]."
    )
    return Allowance((), 0, (text,), paused_until - now)


def note_turned_away(
    connection: Connection, user_id: int, results: int, now: int
) -> None:
    """Count results that an account's computers have just turned away."""
    users = schema.users
    mine = users.c.id == user_id
    row = connection.execute(select(users).where(mine)).one()
    conduct = Conduct(row.turned_away, row.paused_until)
    for _ in range(results):
        conduct = after_turning_away(conduct, now, newcomer=is_newcomer(row))
    connection.execute(update(users).where(mine).values(asdict(conduct)))
