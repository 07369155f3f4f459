"""Giving back what this computer promised a project, before it is forgotten here."""

from __future__ import annotations

import logging
from pathlib import Path

from stoilo.core.errors import StoiloError, UsageError
from stoilo.executor.assignments import Known, is_over, request_of
from stoilo.executor.attachments import CA, KEY, Attachment
from stoilo.executor.calls import Caller
from stoilo.executor.copywork import failed
from stoilo.executor.ledger import Ledger
from stoilo.executor.messages import ResultState
from stoilo.executor.pace import Settings
from stoilo.executor.transfer import Transfer

__all__ = ["leave_project"]

log = logging.getLogger(__name__)

EXIT_ABORTED_BY_USER = 203  # BOINC: aborted by the person at the computer
MAX_KEY_BYTES = 4096


def leave_project(attachment: Attachment, *, abort_tasks: bool) -> bool:
    """Report every copy of an attachment as over; returns whether the project heard it.

    Raises:
        UsageError: STO-X049 copies are unfinished and were not to be aborted,
            STO-X007 the volunteer runs.
        InternalError: STO-X008.
    """
    directory = attachment.project_directory
    if not directory.is_dir():
        return True
    ledger = Ledger(directory, attachment.said.project)
    try:
        unfinished = [copy for copy in ledger.copies() if not is_over(copy)]
        if unfinished and not abort_tasks:
            raise UsageError("STO-X049", f"{len(unfinished)} tasks are unfinished here")
        for copy in unfinished:
            ledger.save(failed(copy, ResultState.ABORTED, EXIT_ABORTED_BY_USER, ""))
        return not ledger.copies() or _report(attachment, ledger)
    finally:
        ledger.close()


def _report(attachment: Attachment, ledger: Ledger) -> bool:
    """Tell the project what is over; returns whether it answered."""
    ca = attachment.directory / CA
    settings = Settings(attachment.said.project, _read_key(attachment.directory / KEY))
    transfer = Transfer(settings.project, ca=ca if ca.exists() else None)
    known = Known(wants_work=False, may_wait=False)
    try:
        Caller(settings, ledger, transfer).call(
            lambda host: request_of(host, settings, ledger.copies(), known)
        )
    except StoiloError as error:
        log.warning("%s", error)
        return False
    finally:
        transfer.close()
    return True


def _read_key(path: Path) -> str:
    """Return the account key of an attachment; raises ``STO-X047``."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_KEY_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError("STO-X047", "the attachment's key cannot be read") from error
