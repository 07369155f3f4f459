"""Between the scheduler's messages and the ledger: what is assigned, what is reported."""

from __future__ import annotations

import secrets

import msgspec

from stoilo.executor.ledger import CopyRecord, FileRecord, HostRecord, Phase
from stoilo.executor.messages import ReportedResult, ResultState, SchedulerReply

__all__ = ["identity_after", "is_over", "records_of", "report_of"]


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
        return ReportedResult(copy.result, ResultState.UPLOADED)
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
