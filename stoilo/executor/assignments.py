"""Between the scheduler's messages and the ledger: what is assigned, what is reported."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from stoilo.executor.ledger import CopyRecord, FileRecord, HostRecord, Phase
from stoilo.executor.messages import (
    HostInfo,
    OtherResult,
    ReportedResult,
    ResultState,
    SchedulerReply,
    SchedulerRequest,
)
from stoilo.executor.pace import Settings
from stoilo.executor.wire import CLIENT_VERSION, PLATFORM

__all__ = [
    "MOST_PER_SLOT",
    "Known",
    "identity_after",
    "is_over",
    "records_of",
    "report_of",
    "request_of",
    "within_room",
]

PREFETCHED: Final = 2
"""Copies held per slot: one runs, one waits."""

MOST_PER_SLOT: Final = 4 * PREFETCHED
"""Unfinished copies held per slot, however many a project sends: more than are asked for,
since copies that were lost come again unasked."""

MOST_STICKY: Final = 1000
"""Files named in a request."""

WAIT_S: Final = 1.0
"""How long an idle host lets the project hold its answer, s."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a request says beside the copies.

    Attributes:
        info: this computer.
        code_sign_key: the project's, empty before the first.
        sticky_files: inputs that are kept.
        fractions: how far running copies are, by result name.
        wants_work: whether new copies may come.
        may_wait: whether the project may hold an empty answer.
        preferences: the user's own for every project, BOINC's XML; empty for none.
    """

    info: HostInfo = field(default_factory=HostInfo)
    code_sign_key: str = ""
    sticky_files: tuple[str, ...] = ()
    fractions: Mapping[str, float] = field(default_factory=dict)
    wants_work: bool = True
    may_wait: bool = True
    preferences: str = ""


def request_of(
    host: HostRecord, settings: Settings, copies: Sequence[CopyRecord], known: Known
) -> SchedulerRequest:
    """Return the next request: what is done, what is not, what is wanted."""
    over = [copy for copy in copies if is_over(copy)]
    unfinished = [copy for copy in copies if not is_over(copy)]
    waiting = [copy for copy in copies if copy.phase is Phase.ASSIGNED]
    wanted = settings.slots * PREFETCHED - len(waiting) if known.wants_work else 0
    return SchedulerRequest(
        authenticator=settings.key,
        host_id=host.host_id,
        rpc_seqno=host.rpc_seqno,
        cpid=host.cpid,
        cpu_req_secs=float(max(0, wanted)),
        cpu_req_instances=float(max(0, wanted)),
        dont_send_work=not known.wants_work,
        ncpus=settings.slots,
        results=tuple(report_of(copy) for copy in over),
        other_results=tuple(
            OtherResult(copy.result, known.fractions.get(copy.result, 0.0))
            for copy in unfinished
        ),
        wait_s=WAIT_S if known.may_wait and not copies else 0.0,
        wishes=settings.wishes,
        own_program=settings.own_program,
        client=CLIENT_VERSION,
        platforms=(PLATFORM,),
        host=known.info,
        code_sign_key=known.code_sign_key,
        global_preferences=known.preferences,
        sticky_files=known.sticky_files[:MOST_STICKY],
    )


def identity_after(host: HostRecord, reply: SchedulerReply) -> HostRecord:
    """Return who we are after a reply: the project may have given us an id.

    A new id for a host that had one means that our state was copied: from now on
    we are a host of our own, with an identity of our own.
    """
    if not reply.host_id or reply.host_id == host.host_id:
        return host
    if host.host_id:
        host = msgspec.structs.replace(host, cpid=secrets.token_hex(16), rpc_seqno=0)
    return msgspec.structs.replace(host, host_id=reply.host_id)


def is_over(copy: CopyRecord) -> bool:
    """Say whether a copy only waits to be reported."""
    return copy.phase in {Phase.UPLOADED, Phase.FAILED}


def report_of(copy: CopyRecord) -> ReportedResult:
    """Return what is told about a copy that is over."""
    if copy.phase is Phase.UPLOADED:
        return ReportedResult(
            copy.result, ResultState.UPLOADED, elapsed_s=copy.elapsed_s
        )
    return ReportedResult(copy.result, copy.state, copy.exit_status, stderr=copy.code)


def records_of(reply: SchedulerReply) -> list[CopyRecord]:
    """Return the copies that a reply assigns, with everything they need."""
    workunits = {item.name: item for item in reply.workunits}
    uploads = {info.name: info for info in reply.uploads}
    files = {info.name: info for info in reply.files}
    records = []
    for result in reply.results:
        workunit, upload = workunits[result.workunit], uploads[result.upload]
        inputs = tuple(
            FileRecord(
                open_name=ref.open_name,
                name=ref.file_name,
                url=files[ref.file_name].url,
                nbytes=files[ref.file_name].nbytes,
                md5=files[ref.file_name].md5,
                sticky=files[ref.file_name].sticky,
                mirrors=files[ref.file_name].mirrors,
            )
            for ref in workunit.files
        )
        records.append(
            CopyRecord(
                result=result.name,
                workunit=result.workunit,
                app=workunit.app,
                deadline=result.deadline,
                files=inputs,
                upload_name=upload.name,
                upload_url=upload.url,
                upload_max=upload.max_nbytes,
            )
        )
    return records


def within_room(
    records: Sequence[CopyRecord], held: Sequence[CopyRecord], slots: int
) -> list[CopyRecord]:
    """Return a reply's copies that are taken: known ones, new ones while there is room.

    The others stay the project's: it finds at the next call that we lack them.

    Args:
        records: what the reply assigns (untrusted).
        held: every copy in the ledger.
        slots: of this host.
    """
    held_names = {copy.result for copy in held}
    known = [record for record in records if record.result in held_names]
    fresh = {r.result: r for r in records if r.result not in held_names}
    unfinished = sum(not is_over(copy) for copy in held)
    room = max(0, slots * MOST_PER_SLOT - unfinished)
    return known + list(fresh.values())[:room]
