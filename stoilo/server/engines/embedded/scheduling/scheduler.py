"""One scheduler RPC: who calls, what came back, what goes out.

Order of BOINC (reference/boinc.md §6): authenticate, find the host, acknowledge every
report, abort what nobody needs, send again what the host has lost, hand out new results.
One RPC is one write transaction, or shares one: a result is on the host in the database
before the reply leaves, and a report is durable before its acknowledgement does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stoilo.core.boinc.messages import (
    ResultInfo,
    SchedulerReply,
    UploadInfo,
    WorkunitInfo,
)
from stoilo.server.engines.embedded.accounts.preferences import (
    NO_WISHES,
    WISH_COLUMNS,
    exchange_global_preferences,
    project_preferences,
    remember_wishes,
)
from stoilo.server.engines.embedded.accounts.quotas import note_results
from stoilo.server.engines.embedded.db.database import NeedsWritingError
from stoilo.server.engines.embedded.files.app_versions import (
    choose_program,
    file_refs,
    load_catalogue,
)
from stoilo.server.engines.embedded.scheduling.authenticate import (
    BANNED_DELAY_S,
    find_visitor,
    receive,
    refuse_banned,
)
from stoilo.server.engines.embedded.scheduling.dispatch import (
    fresh_results,
    lost_results,
    notices,
)
from stoilo.server.engines.embedded.scheduling.hosts import (
    HostActivity,
    find_host,
    is_idle,
    level_notice,
    next_call,
)
from stoilo.server.engines.embedded.scheduling.progress import Progress
from stoilo.server.engines.embedded.scheduling.reports import (
    REPORTS_TAKEN,
    is_needless,
    load_held,
    needless_results,
    some_download_failed,
    take_reports,
)
from stoilo.server.engines.embedded.scheduling.sticky_files import settle_leases
from stoilo.server.engines.interface import ResultProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection

    from stoilo.core.boinc.messages import FileRef, SchedulerRequest
    from stoilo.server.engines.embedded.db.database import Database
    from stoilo.server.engines.embedded.db.schema import AnyRow
    from stoilo.server.engines.embedded.files.app_versions import Catalogue
    from stoilo.server.engines.embedded.files.mirrors import Mirrors
    from stoilo.server.engines.embedded.scheduling.authenticate import Guest, Host
    from stoilo.server.engines.embedded.scheduling.dispatch import Chance, Pace

BAD_KEY_DELAY_S = 3600.0
# A client that can run nothing of ours calls no sooner
UNUSABLE_DELAY_S = 600.0
LONGEST_DELAY_S = 3600.0
# Of small files that come with a reply, for who takes them: a download costs more than these
CONTENT_BYTES = 512 * 1024


class Scheduler:
    """Answers scheduler requests; `on_report` is called after one changed something.

    Attributes:
        on_lack: called when a client asks a project without any programs; returns what its
            user is told and when it asks again, s; an empty text: as one of a strange platform.
        progress: what hosts say of unfinished results.
    """

    def __init__(
        self,
        database: Database,
        *,
        pace: Pace,
        on_report: Callable[[], None],
        chance: Chance,
        mirrors: Mirrors,
        # is told what has gone out
        note_sent: Callable[[Sequence[AnyRow]], None] = lambda _rows: None,
    ) -> None:
        self.on_lack: Callable[[], tuple[str, float]] = lambda: ("", UNUSABLE_DELAY_S)
        self._mirrors, self._note_sent = mirrors, note_sent
        self._database = database
        self._pace = pace
        self._on_report = on_report
        self._chance = chance
        self._activity = HostActivity()
        self.progress = Progress()
        self._catalogue: Catalogue | None = None

    def handle(
        self, request: SchedulerRequest, base_url: str, now: int, address: str = ""
    ) -> SchedulerReply:
        """Return the reply to a (parsed, still untrusted) request from an address.

        A call that has nothing to write is answered from a snapshot, beside any writer.

        Raises:
            InternalError: ``STO-R030`` when the database refuses; nothing is stored.
        """
        last_call = self._activity.last_call(request.host_id)

        def answer(connection: Connection) -> tuple[SchedulerReply, Host | None]:
            """Return the reply and the host that it is for."""
            return self._answer(connection, request, base_url, last_call, now)

        reply, host = self._quiet(request, answer) or self._database.write_together(
            answer
        )
        if host is not None and host.row is not None:
            self._activity.note_call(host.id, request.rpc_seqno, anew=host.new)
        if request.results:
            self._on_report()
        named = self._mirrors.name(reply.files, host.id if host else 0, address)
        return replace(reply, files=named)

    def _quiet(
        self,
        request: SchedulerRequest,
        answer: Callable[[Connection], tuple[SchedulerReply, Host | None]],
    ) -> tuple[SchedulerReply, Host | None] | None:
        """Return the answer to a call that changes nothing, None to any other."""
        if request.results:
            return None
        with self._database.read() as connection:
            try:
                return answer(connection)
            except NeedsWritingError:
                return None

    def _answer(
        self,
        connection: Connection,
        request: SchedulerRequest,
        base_url: str,
        last_call: int,
        now: int,
    ) -> tuple[SchedulerReply, Host | None]:
        """Return reply and host, in a transaction that writes if there is anything to."""
        visitor = find_visitor(connection, request)
        if visitor is None:
            return unknown_key(), None
        host = find_host(connection, visitor, request, last_call, now)
        if host is None:
            refusal = SchedulerReply(
                messages=("This account has too many hosts [STO-E017].",),
                request_delay=BAD_KEY_DELAY_S,
            )
            return refusal, None
        banned = refuse_banned(visitor, request)
        if banned is not None:
            return banned, host
        guest = receive(visitor, host, request, now)
        return self._serve(connection, guest, base_url), host

    def _serve(
        self, connection: Connection, guest: Guest, base_url: str
    ) -> SchedulerReply:
        """Take the reports of a caller who is welcome, and give what may be given."""
        host, request, now = guest.host, guest.request, guest.now
        row = guest.visitor.row
        stored = NO_WISHES
        if host.row is not None:
            stored = tuple(getattr(host.row, f"host_{one}") for one in WISH_COLUMNS)
        remember_wishes(connection, host.id, stored, request.wishes)
        reports = request.results[:REPORTS_TAKEN]
        others = [other.name for other in request.other_results]
        named = dict.fromkeys([*(one.name for one in request.results), *others])
        held = load_held(connection, host.id, named)
        over, quotas = take_reports(
            connection, host, reports, request.host.fpops, held, now, self._mirrors
        )
        guest = replace(guest, host=replace(host, quotas=quotas))
        self.progress.note(request.other_results, held)
        left = [result for name, result in held.items() if name not in over]
        catalogue = self._current(connection, row.catalogue or "", base_url)
        program = choose_program(catalogue, request)
        unusable_s = UNUSABLE_DELAY_S
        if program.lacking:
            told, unusable_s = self.on_lack()
            program = replace(program, notices=(told,) if told else program.notices)
        lost, fresh = [], []
        if program.usable:
            levels, pace = guest.visitor.chosen.levels, self._pace
            lost = lost_results(levels, request, left, pace)
            busy = sum(one.state == ResultProgress.IN_PROGRESS for one in left)
            if not some_download_failed(reports):
                fresh = fresh_results(connection, guest, busy, pace, self._chance)
        if fresh:
            self._activity.note_work(host.id, now)
            self._note_sent([one for one, _ in fresh])
            apps = [one.wu_app for one, _ in fresh]
            note_results(connection, host.id, apps, quotas, now)
        sent = [*((one, one.deadline) for one in lost), *fresh]
        workunits = {one.workunit_id: one for one, _ in sent}
        refs, files = file_refs(
            connection,
            [*workunits],
            catalogue.release,
            base_url,
            room=CONTENT_BYTES if request.takes_content else 0,
        )
        ban, allowance = notices(host), guest.allowance
        wait = min(float(allowance.delay_s), LONGEST_DELAY_S)
        shared = exchange_global_preferences(
            connection, row, request.global_preferences, now, weak=guest.visitor.weak
        )
        reply = SchedulerReply(
            host_id=host.id if host.new else 0,
            acks=tuple(dict.fromkeys(one.name for one in reports)),
            aborts=needless_results(others, held, over),
            # one that is running may finish and is still compared
            aborts_unstarted=tuple(
                name for name in others if name in held and is_needless(held[name])
            ),
            files=files,
            uploads=tuple(
                UploadInfo(
                    one.upload_name,
                    f"{base_url}upload/{one.upload_token}",
                    one.wu_result_max_bytes,
                )
                for one, _ in sent
            ),
            workunits=tuple(
                _workunit(one, refs[number]) for number, one in workunits.items()
            ),
            results=tuple(
                ResultInfo(one.name, one.wu_name, deadline, one.upload_name)
                for one, deadline in sent
            ),
            request_delay=max(BANNED_DELAY_S if ban else 0.0, wait),
            messages=(*ban, *program.notices, *allowance.messages),
            app_versions=program.versions(
                sorted({one.wu_app for one in workunits.values()})
            ),
            code_sign_key=program.key,
            code_sign_key_signature=program.key_signature,
            delete_files=settle_leases(connection, host.id, request, files, now),
            user=guest.visitor.info(host),
            project_preferences=project_preferences(guest.visitor.chosen),
            global_preferences=shared,
        )
        if not program.usable:
            delay = max(reply.request_delay, unusable_s)
            return replace(reply, request_delay=delay)
        return self._paced(connection, guest, reply)

    def _paced(
        self,
        connection: Connection,
        guest: Guest,
        reply: SchedulerReply,
    ) -> SchedulerReply:
        request, host = guest.request, guest.host
        if reply.request_delay:  # a client that shall stay away is not called back
            return reply
        if is_idle(request, reply) and not (request.own_program or reply.messages):
            said = level_notice(connection, guest.visitor.chosen.levels, request)
            reply = replace(reply, messages=said)
        again = next_call(host, request, reply, self._activity, self._pace, guest.now)
        if len(request.results) > REPORTS_TAKEN:  # the rest is to come
            again = self._pace.next_rpc_delay_s
        return replace(reply, next_rpc_delay=again)

    def _current(
        self, connection: Connection, version: str, base_url: str
    ) -> Catalogue:
        """Return the catalogue of this version, read anew where it is another."""
        known = self._catalogue
        if known is None or known.version != version:
            known = self._catalogue = load_catalogue(connection, version, base_url)
        return known


def _workunit(row: AnyRow, refs: Sequence[FileRef]) -> WorkunitInfo:
    return WorkunitInfo(
        row.wu_name,
        row.wu_app,
        row.wu_fpops_est,
        row.wu_fpops_bound,
        tuple(refs),
        row.wu_memory_bound,
        row.wu_disk_bound,
    )


def unknown_key() -> SchedulerReply:
    """Return the answer to one whose key is no account's."""
    return SchedulerReply(
        messages=("Unknown account key. Attach again with a valid one.",),
        request_delay=BAD_KEY_DELAY_S,
        bad_key=True,
    )
