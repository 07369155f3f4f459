"""One scheduler RPC: who calls, what came back, what goes out.

Order of BOINC (reference/boinc.md §6): authenticate, find the host, acknowledge every
report, abort what nobody needs, send again what the host has lost, hand out new copies.
One RPC is one write transaction: a copy is on the host in the database before the reply
leaves, and a report is durable before its acknowledgement does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stoilo.executor.messages import (
    FileInfo,
    ResultInfo,
    SchedulerReply,
    UploadInfo,
    WorkunitInfo,
)
from stoilo.server.engines.embedded.scheduling.bounds import NOT_SAID, load_bounds
from stoilo.server.engines.embedded.scheduling.dispatch import (
    fresh_copies,
    lost_copies,
    notices,
)
from stoilo.server.engines.embedded.scheduling.hosts import find_host
from stoilo.server.engines.embedded.scheduling.lending import settle_leases
from stoilo.server.engines.embedded.scheduling.notices import level_notice
from stoilo.server.engines.embedded.scheduling.pacing import is_idle, next_call
from stoilo.server.engines.embedded.scheduling.reception import (
    BANNED_DELAY_S,
    receive,
    refuse_banned,
)
from stoilo.server.engines.embedded.scheduling.reports import (
    needless_copies,
    optional_copies,
    take_report,
)
from stoilo.server.engines.embedded.scheduling.usages import note_usages
from stoilo.server.engines.embedded.scheduling.wishes import remember_wishes
from stoilo.server.engines.embedded.wire.appversions import choose_program
from stoilo.server.engines.embedded.wire.inputs import file_refs

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Row

    from stoilo.executor.messages import SchedulerRequest
    from stoilo.server.engines.embedded.database import Database
    from stoilo.server.engines.embedded.people.accounts import Accounts
    from stoilo.server.engines.embedded.scheduling.dispatch import Pace
    from stoilo.server.engines.embedded.scheduling.hosts import Host
    from stoilo.server.engines.embedded.scheduling.reception import Guest
    from stoilo.server.engines.mirrorboard import MirrorBoard

__all__ = ["Scheduler", "unknown_key"]

BAD_KEY_DELAY_S = 3600.0
UNUSABLE_DELAY_S = 600.0
"""A client that can run nothing of ours calls no sooner."""


class Scheduler:
    """Answers scheduler requests; `on_report` is called after one changed something."""

    def __init__(
        self,
        database: Database,
        accounts: Accounts,
        *,
        pace: Pace,
        on_report: Callable[[], None],
        draw: Callable[[], float],
        mirrors: MirrorBoard,
    ) -> None:
        self._mirrors = mirrors
        self._database = database
        self._accounts = accounts
        self._pace = pace
        self._on_report = on_report
        self._draw = draw

    def knows(self, key: str) -> bool:
        """Say whether an (untrusted) key is an account's; waits for no writer."""
        with self._database.read() as connection:
            return self._accounts.authenticate(connection, key) is not None

    def handle(
        self, request: SchedulerRequest, base_url: str, now: int
    ) -> SchedulerReply:
        """Return the reply to a (parsed, still untrusted) request.

        Raises:
            InternalError: ``STO-E003`` when the database refuses; nothing is stored.
        """
        with self._database.write() as connection:
            user = self._accounts.authenticate(connection, request.authenticator)
            if user is None:
                return unknown_key()
            host = find_host(connection, user, request, now)
            if host is None:
                return SchedulerReply(
                    messages=("This account has too many hosts [STO-E017].",),
                    request_delay=BAD_KEY_DELAY_S,
                )
            refusal = refuse_banned(user, request)
            if refusal is not None:
                return refusal
            guest = receive(connection, user, host, request, now)
            reply = self._serve(connection, guest, base_url, now)
        if request.results:
            self._on_report()
        return reply

    def _serve(
        self, connection: Connection, guest: Guest, base_url: str, now: int
    ) -> SchedulerReply:
        """Take the reports of a caller who is welcome, and give what may be given."""
        user, host, request = guest.user, guest.host, guest.request
        remember_wishes(connection, host.id, request.wishes)
        for report in request.results:
            take_report(connection, host, report, now, self._mirrors)
        note_usages(connection, host.id, request.results, request.host.fpops)
        program = choose_program(connection, request)
        lost, fresh = [], []
        if program.usable:
            account = guest.account
            lost = lost_copies(connection, account, host, request, self._pace)
            fresh = fresh_copies(
                connection, user, host, request, now, self._pace, self._draw
            )
        reply = self._reply(connection, host, request, lost + fresh, base_url, now)
        reply = self._mirrors.send(reply, host.id, request.host.utc_offset_s)
        reply = program.complete(connection, reply, base_url)
        reply = guest.complete(connection, reply, [row.app for row in fresh], now)
        if not program.usable:
            delay = max(reply.request_delay, UNUSABLE_DELAY_S)
            return replace(reply, request_delay=delay)
        if reply.request_delay:  # a client that shall stay away is not called back
            return reply
        if is_idle(request, reply) and not (request.own_program or reply.messages):
            said = level_notice(connection, guest.account, request)
            reply = replace(reply, messages=said)
        again = next_call(connection, host.id, request, reply, self._pace, now)
        return replace(reply, next_rpc_delay=again)

    def _reply(
        self,
        connection: Connection,
        host: Host,
        request: SchedulerRequest,
        rows: list[Row],  # type: ignore[type-arg]  # rows of `_copy_query`
        base_url: str,
        now: int,
    ) -> SchedulerReply:
        """Return the reply with everything that the copies in `rows` need."""
        files: dict[str, FileInfo] = {}
        workunits: dict[int, WorkunitInfo] = {}
        bounds = load_bounds(connection, [row.workunit_id for row in rows])
        for row in rows:
            if row.workunit_id not in workunits:
                refs = file_refs(connection, row.workunit_id, base_url, files)
                needs = bounds.get(row.workunit_id, NOT_SAID)
                workunits[row.workunit_id] = WorkunitInfo(
                    row.workunit,
                    row.app,
                    row.fpops_est,
                    row.fpops_bound,
                    refs,
                    needs.memory_bytes,
                    needs.disk_bytes,
                )
        ban = notices(connection, host)
        return SchedulerReply(
            host_id=host.id if host.new else 0,
            acks=tuple(dict.fromkeys(result.name for result in request.results)),
            aborts=needless_copies(connection, host, request),
            aborts_unstarted=optional_copies(connection, host, request),
            files=tuple(files.values()),
            delete_files=settle_leases(
                connection, host.id, request, files.values(), now
            ),
            uploads=tuple(
                UploadInfo(
                    row.upload_name,
                    f"{base_url}upload/{row.upload_token}",
                    row.result_max_bytes,
                )
                for row in rows
            ),
            workunits=tuple(workunits.values()),
            results=tuple(
                ResultInfo(row.name, row.workunit, row.deadline, row.upload_name)
                for row in rows
            ),
            messages=ban,
            request_delay=BANNED_DELAY_S if ban else 0.0,
        )


def unknown_key() -> SchedulerReply:
    """Return the answer to one whose key is no account's."""
    return SchedulerReply(
        messages=("Unknown account key. Attach again with a valid one.",),
        request_delay=BAD_KEY_DELAY_S,
        bad_key=True,
    )
