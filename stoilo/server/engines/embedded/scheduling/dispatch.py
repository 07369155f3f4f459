"""Which results go to a host: those that it has lost, and new ones as far as it may."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    and_,
    bindparam,
    exists,
    func,
    or_,
    select,
    true,
    update,
)

from stoilo.server.engines.embedded.accounts.accounts import is_newcomer
from stoilo.server.engines.embedded.accounts.host_trust import (
    BY_OPERATOR,
    homogeneous_class,
    is_trusted,
)
from stoilo.server.engines.embedded.accounts.preferences import (
    allowed_apps,
    is_wanted,
    takes,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.db.database import must_write
from stoilo.server.engines.embedded.db.records import (
    Caller,
    CheckVerdict,
    joined_results,
    results_of,
    view_of,
)
from stoilo.server.engines.embedded.scheduling.authenticate import (
    SECONDS_PER_RESULT,
    wants_work,
)
from stoilo.server.engines.embedded.scheduling.reports import is_resendable
from stoilo.server.engines.embedded.scheduling.sticky_files import local_first
from stoilo.server.engines.embedded.workunits.steps import change_workunit
from stoilo.server.engines.embedded.workunits.transitioner import (
    TURNED_AWAY,
    may_issue,
    may_recheck,
)
from stoilo.server.engines.interface import ResultProgress
from stoilo.server.engines.questions import REFUSALS_AT_LEAST
from stoilo.server.engines.workunits import Homogeneity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, Select, Update

    from stoilo.core.boinc.messages import SchedulerRequest, Wishes
    from stoilo.server.engines.embedded.db.records import WorkunitView
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.embedded.scheduling.authenticate import Guest, Host

# Looked at by the rules for each result that may be given
CANDIDATES_PER_RESULT = 8
# Results whose turn it is, at least: the lot decides which of them go. Who
# calls right after another account then rarely gets the same workunits.
WINDOW_LEAST: Final = 64
BANNED_NOTICE = (
    "This computer gets no work: a result of it was checked again and was wrong. "
    "Ask the project's operator [STO-E041]."
)
BANNED_BY_OPERATOR = "The project's operators have banned this computer [STO-E041]."
# Results of one host, whatever it says of its processors: a call names all of them, and
# one that names more than `requests.RESULTS_PER_REQUEST` is refused
MOST_HELD = 500
# Queries kept for hosts of one level, class and set of wishes
KINDS_OF_CALLERS: Final = 256
UNSAID: Final = 2**62


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast the project hands out work."""

    next_rpc_delay_s: float = 0.5  # hosts call again after at most that many s
    results_per_rpc: int = 16  # most results in one reply
    results_per_cpu: int = 4  # most results in progress on a host, per processor
    # the same for stock clients that have what they asked for: when something ends they
    # call by themselves, so this is for aborts
    busy_rpc_delay_s: float = 15.0
    # the same for stock clients that have had no work for long
    quiet_rpc_delay_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Chance:
    """What no host may foresee; each uniform in [0, 1)."""

    draw: Callable[[], float] = random.SystemRandom().random  # whom to check
    # which of the results that wait go first
    lots: Callable[[], float] = random.SystemRandom().random


def lost_results(
    apps: Sequence[str],  # of the account's levels
    request: SchedulerRequest,
    held: Iterable[AnyRow],  # of `joined_results`
    pace: Pace,
) -> list[AnyRow]:
    """Return results that the host should have and does not mention.

    What the account or the host has meanwhile ruled out is not sent again.
    """
    named = {result.name for result in request.results}
    named |= {other.name for other in request.other_results}
    lost = [one for one in held if is_resendable(one) and one.name not in named]
    apps = allowed_apps(apps, request.wishes)
    wanted = [one for one in lost if one.wu_app in apps and takes(request.wishes, one)]
    return wanted[: pace.results_per_rpc]


def notices(host: Host) -> tuple[str, ...]:
    """Return what a host's user is to be told about getting no work."""
    if host.ban is None:
        return ()
    return (BANNED_BY_OPERATOR if host.ban == BY_OPERATOR else BANNED_NOTICE,)


def fresh_results(
    connection: Connection,
    guest: Guest,  # who asks
    busy: int,  # results in progress on the host
    pace: Pace,  # how much at most
    chance: Chance,  # what no host may foresee
) -> list[tuple[AnyRow, int]]:
    """Give new results to the host, each with its deadline, as many as it may have.

    A trusted account's hosts get what is to be checked again first.
    """
    room = _room(guest.request, busy, pace)
    if room <= 0 or guest.host.ban is not None:
        return []
    caller = _caller(guest)
    given: dict[int, AnyRow] = {}  # by workunit
    for recheck in [True, False] if caller.trusted_account else [False]:
        rows = _fitting(connection, guest, caller, room, chance.lots, recheck=recheck)
        fresh = [row for row in rows if row.workunit_id not in given]
        if not fresh:
            continue
        must_write(connection)
        results = results_of(connection, {row.workunit_id for row in fresh})
        for row in fresh:
            view = view_of(row, results[row.workunit_id])
            fits = may_issue(view, caller, guest.now) or may_recheck(
                view, caller, guest.now
            )
            if fits and row.workunit_id not in given and len(given) < room:
                given[row.workunit_id] = row
                _settle_spread(connection, row, view, caller, guest, chance.draw)
    return _issue(connection, list(given.values()), guest)


def _fitting(
    connection: Connection,
    guest: Guest,
    caller: Caller,
    room: int,
    lots: Callable[[], float],
    *,
    recheck: bool,
) -> list[AnyRow]:
    """Return rows of results that the rules will probably give to the host, best first."""
    request, host = guest.request, guest.request.host
    query = _candidates(
        allowed_apps(guest.apps, request.wishes),
        request.wishes,
        replace(caller, user_id=0, host_key="", cpid=""),
        recheck=recheck,
    )
    values = {
        "user": caller.user_id,
        "host_key": caller.host_key,
        "cpid": caller.cpid,
        "now": guest.now,
        # what it does not say does not count against it: it refuses by itself
        "memory": int(host.memory_bytes) or UNSAID,
        "disk": int(host.disk_free_bytes) or UNSAID,
        "most": max(room * CANDIDATES_PER_RESULT, WINDOW_LEAST),
    }
    rows = local_first(connection, request, query, values, guest.now, lots)
    return rows[: room * CANDIDATES_PER_RESULT]


def _caller(guest: Guest) -> Caller:
    host = guest.request.host
    return Caller(
        guest.visitor.row.id,
        _machine(guest),
        homogeneous_class(host, Homogeneity.COARSE),
        homogeneous_class(host, Homogeneity.FINE),
        bool(guest.visitor.row.trusted),
        cpid=guest.host.cpid,
        newcomer=is_newcomer(guest.visitor.row),
    )


def _machine(guest: Guest) -> str:
    """Return the identity under which the host's results are noted.

    That is its CPID, if no other account's host was the first to show it: else whoever
    knows a CPID could keep workunits from its owner by taking results under it.
    """
    cpid = guest.host.cpid
    if cpid == guest.request.cpid and guest.visitor.owns_cpid:
        return cpid
    return f"{guest.host.user_id}~{cpid}"


def _settle_spread(
    connection: Connection,
    row: AnyRow,  # of `_candidates`
    view: WorkunitView,
    caller: Caller,
    guest: Guest,
    draw: Callable[[], float],
) -> None:
    if view.outcome is not None:
        return
    workunit_id = row.workunit_id
    if view.homogeneous:
        own = caller.class_for(view.homogeneous)
        change_workunit(connection, workunit_id, host_class=own)
    if view.alone and not caller.trusted_account:
        standing = guest.host.quotas.get(row.wu_app)
        if not is_trusted(standing.consecutive_valid if standing else 0, draw()):
            raise_quorum(connection, workunit_id, guest.now)


def raise_quorum(connection: Connection, workunit_id: int, now: int) -> None:
    """Let the workunit's own redundancy hold; the missing results are made at once."""
    change_workunit(connection, workunit_id, alone=0, transition_at=now)


def _room(request: SchedulerRequest, busy: int, pace: Pace) -> int:
    if not wants_work(request):
        return 0
    most = min(pace.results_per_cpu * request.ncpus, MOST_HELD) - busy
    wanted = max(request.cpu_req_instances, request.cpu_req_secs / SECONDS_PER_RESULT)
    asked = math.ceil(min(wanted, 1e6))
    return max(0, min(asked, most, pace.results_per_rpc))


def _issue(
    connection: Connection,
    rows: list[AnyRow],  # of `_candidates`
    guest: Guest,
) -> list[tuple[AnyRow, int]]:
    """Write that results are on the host; return them with deadlines, oldest first."""
    if not rows:
        return []
    now, host = guest.now, guest.host
    given = [(row, now + row.wu_delay_bound_s) for row in rows]
    key = _machine(guest)
    shared = {"user": host.user_id, "host": host.id, "key": key, "now": now}
    connection.execute(
        _result_update(),
        [shared | {"row": row.id, "until": deadline} for row, deadline in given],
    )
    connection.execute(
        _workunit_update(),
        [{"row": row.workunit_id, "after": deadline + 1} for row, deadline in given],
    )
    return sorted(given, key=lambda one: one[0].id)


# Made once, as every call runs them: to put one together costs more than to run it.
@cache
def _result_update() -> Update:
    """Return the statement that result :row is on :host."""
    table = schema.results
    return (
        update(table)
        .where(table.c.id == bindparam("row"))
        .values(
            state=ResultProgress.IN_PROGRESS.value,
            user_id=bindparam("user"),
            host_id=bindparam("host"),
            host_key=bindparam("key"),
            sent_at=bindparam("now"),
            deadline=bindparam("until"),
        )
    )


@cache
def _workunit_update() -> Update:
    """Return the statement that workunit :row is to be looked at :after, not later."""
    table, after = schema.workunits, bindparam("after", type_=BigInteger)
    return (
        update(table)
        .where(table.c.id == bindparam("row"), table.c.transition_at > after)
        .values(transition_at=after)
    )


@lru_cache(maxsize=KINDS_OF_CALLERS)
def _candidates(
    apps: tuple[str, ...],  # that may be sent
    wishes: Wishes,  # of the host and its account
    caller: Caller,  # what hosts of this kind have in common
    *,
    recheck: bool,  # those of spot checks, instead of ordinary ones
) -> Select[Any]:
    """Return the query for unsent results that may go to hosts of one kind, best first.

    The same rules as in `transitioner`, which has the last word. Parameters: :user,
    :host_key, :cpid, :now, :memory and :disk in bytes, :most.
    """
    results, table = schema.results, schema.workunits
    other = results.alias("other")
    has_one = exists().where(
        other.c.workunit_id == results.c.workunit_id,
        (other.c.user_id == bindparam("user"))
        | other.c.host_key.in_([bindparam("host_key"), bindparam("cpid")]),
    )
    is_open = results.c.recheck == CheckVerdict.OPEN.value
    kinds = [CheckVerdict.PENDING.value, CheckVerdict.OPEN.value]
    return (
        joined_results()
        .where(
            results.c.state == ResultProgress.UNSENT.value,
            table.c.app.in_(apps),
            is_wanted(wishes),
            table.c.not_after >= bindparam("now") + table.c.delay_bound_s,
            _fits_class(caller),
            table.c.memory_bound <= bindparam("memory"),
            table.c.disk_bound <= bindparam("disk"),
            results.c.recheck.in_(kinds)
            if recheck
            else table.c.outcome.is_(None) | is_open,
            _is_for_newcomers() if caller.newcomer else true(),
            ~has_one,
        )
        .order_by(results.c.rank, results.c.id)
        .limit(bindparam("most"))
    )


def _fits_class(caller: Caller) -> ColumnElement[bool]:
    """Return the condition that a workunit allows the caller's class."""
    table = schema.workunits
    allowed: list[ColumnElement[bool]] = [table.c.homogeneous == ""]
    for kind in (Homogeneity.COARSE, Homogeneity.FINE):
        own = caller.class_for(kind)
        if own:
            same = table.c.host_class.in_(["", own])
            allowed.append(and_(table.c.homogeneous == kind.value, same))
    return or_(*allowed)


def _is_for_newcomers() -> ColumnElement[bool]:
    other, table = schema.results.alias("turned"), schema.workunits
    turned_away = (
        select(func.count())
        .where(
            other.c.workunit_id == table.c.id,
            other.c.outcome.in_([outcome.value for outcome in TURNED_AWAY]),
        )
        .scalar_subquery()
    )
    few = REFUSALS_AT_LEAST // 2
    return (turned_away < few) | (turned_away < table.c.max_total)
