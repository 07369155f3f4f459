"""Which projects this computer helps: attaching, and giving back what was promised.

    <base>/<name of the project's address>/attachment.json   what was said at `attach`

One directory per project, 0700, its secrets 0600. Before a project is forgotten its unfinished
results are reported, so that it need not wait for their deadlines.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlencode

import msgspec

from stoilo.core.boinc.messages import ResultState, SchedulerReply
from stoilo.core.boinc.xml import XmlBounds, parse_xml
from stoilo.core.digests import content_digest
from stoilo.core.errors import (
    DeniedError,
    StoiloError,
    TrustError,
    UsageError,
)
from stoilo.executor.verifier.installation import (
    disk_trouble,
    own_directory,
    replace_file,
)
from stoilo.executor.volunteer.ledger import Ledger
from stoilo.executor.volunteer.scheduler import (
    Caller,
    Settings,
    identity_after,
    is_over,
    request_of,
)
from stoilo.executor.volunteer.transfer import Transfer

NAME: Final = "attachment.json"
KEY: Final = "key"
ROOT: Final = "root.json"
CA: Final = "ca.pem"
MAX_BYTES: Final = 64 * 1024
MAX_ROOT_BYTES: Final = 1024 * 1024
NAME_CHARS: Final = 80
_OTHER = re.compile(r"[^A-Za-z0-9.-]+")


class Means(StrEnum):
    """By what copies are judged and run."""

    ROOT = "root"  # by this installation, under a root file
    LAUNCHER = "launcher"  # by a launcher that lies here
    RELEASED = "released"  # by the project's launcher, compared with the root's release
    TRUSTED = "trusted"  # by whatever the project's key has signed


def choose_means(
    *, root: bool, launcher: bool, project_programs: bool, trust_project_programs: bool
) -> Means:
    """Return by what copies shall run, from what was said.

    Raises:
        UsageError: STO-U003 nothing was said, or things that exclude each other.
    """
    means = {
        (True, False, False, False): Means.ROOT,
        (True, False, True, False): Means.RELEASED,
        (False, True, False, False): Means.LAUNCHER,
        (False, False, False, True): Means.TRUSTED,
    }.get((root, launcher, project_programs, trust_project_programs))
    if means is None:
        raise UsageError(
            "STO-U003",
            "say by what tasks shall run",
            hint="--fingerprint HEX or --root FILE (this installation), either of them "
            "with --project-programs, --launcher FILE, or --trust-project-programs",
        )
    return means


class AttachmentFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was said when this computer was attached."""

    project: str  # master URL with final slash
    means: Means  # by what copies run
    launcher: str = ""  # path of the launcher, empty unless `means` is LAUNCHER
    slots: int = 1  # copies at the same time
    max_level: str = ""  # highest level to run, empty for what the opt-in says
    opt_in: str = ""  # path of one more opt-in file, empty for none
    format: Literal["stoilo-attachment/1"] = "stoilo-attachment/1"  # of this file


@dataclass(frozen=True, slots=True)
class Attachment:
    """One attachment: its directory and what was said."""

    directory: Path
    said: AttachmentFile

    @property
    def project_directory(self) -> Path:
        """Where the volunteer keeps what it must not lose."""
        return self.directory / "project"


class Attachments:
    """All attachments below one directory.

    Args:
        base: made (0700) with the first attachment; its parent may be missing too.
    """

    def __init__(self, base: Path) -> None:
        self._base = base

    def every(self) -> list[Attachment]:
        """Return all attachments, by name.

        Raises:
            TrustError: STO-X047 one cannot be used.
        """
        if not self._base.is_dir():
            return []
        places = sorted(self._base.glob(f"*/{NAME}"))
        return [_read(path.parent) for path in places]

    def find(self, project: str) -> Attachment:
        """Return the attachment to a project, by its URL or the directory's name.

        Raises:
            UsageError: STO-X045 there is none.
            TrustError: STO-X047.
        """
        for one in self.every():
            if project.rstrip("/") in {
                one.said.project.rstrip("/"),
                one.directory.name,
            }:
                return one
        raise UsageError(
            "STO-X045", f"this computer is not attached to {project[:200]}"
        )

    def add(
        self, said: AttachmentFile, key: str, *, root: bytes = b"", ca: bytes = b""
    ) -> Attachment:
        """Attach, durably and whole or not at all.

        Raises:
            UsageError: STO-X045 it is attached already.
            TrustError: STO-X047 the directory is open to others.
            InternalError: STO-X008.
        """
        try:
            self._base.parent.mkdir(parents=True, exist_ok=True)
            own_directory(self._base)
        except (TrustError, OSError) as error:
            raise TrustError(
                "STO-X047",
                f"{self._base} cannot be used: it must be yours alone (0700)",
            ) from error
        target = self._base / directory_name(said.project)
        if target.exists():
            raise UsageError("STO-X045", f"{said.project} has a directory here already")
        made = self._base / f".new-{secrets.token_hex(8)}"
        files = {KEY: f"{key}\n".encode(), ROOT: root, CA: ca}
        try:
            with disk_trouble("an attachment cannot be written"):
                made.mkdir(mode=0o700)
                for name, data in files.items():
                    if data:
                        replace_file(made / name, data)
                replace_file(made / NAME, msgspec.json.encode(said))
                made.replace(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return Attachment(target, said)

    def remove(self, attachment: Attachment) -> None:
        """Forget an attachment with all that it holds; raises ``STO-X008``."""
        gone = self._base / f".old-{secrets.token_hex(8)}"
        with disk_trouble("an attachment cannot be removed"):
            attachment.directory.replace(gone)
        shutil.rmtree(gone, ignore_errors=True)


def directory_name(project: str) -> str:
    """Return the name of a project's directory, as BOINC makes it of a master URL."""
    address = project.partition("://")[2]
    name = _OTHER.sub("_", address).strip("_.")
    if not name or len(name) > NAME_CHARS:
        digest = hashlib.sha256(project.encode()).hexdigest()[:16]
        name = f"{name[:NAME_CHARS]}_{digest}"
    return name


def arguments_of(attachment: Attachment) -> list[str]:
    """Return the words that start the attachment's volunteer; no secret is in them."""
    said, directory = attachment.said, attachment.directory
    words = ["--project", said.project, "--key", f"@{directory / KEY}"]
    words += ["--state", str(directory), "--slots", str(said.slots)]
    root = ["--root", str(directory / ROOT)]
    match said.means:
        case Means.ROOT:
            words += root
        case Means.RELEASED:
            words += [*root, "--project-programs"]
        case Means.LAUNCHER:
            words += ["--launcher", said.launcher]
        case Means.TRUSTED:
            words += ["--trust-project-programs"]
    words += ["--max-level", said.max_level] if said.max_level else []
    words += ["--opt-in", said.opt_in] if said.opt_in else []
    return words + (["--ca", str(directory / CA)] if (directory / CA).exists() else [])


def _read(directory: Path) -> Attachment:
    """Return the attachment in a directory; raises ``STO-X047``."""
    try:
        own_directory(directory)
        with (directory / NAME).open("rb") as file:
            said = msgspec.json.decode(file.read(MAX_BYTES), type=AttachmentFile)
    except (OSError, msgspec.MsgspecError, TrustError) as error:
        raise TrustError(
            "STO-X047", f"the attachment {directory.name[:100]} cannot be used"
        ) from error
    return Attachment(directory, said)


ACCOUNT_BOUNDS: Final = XmlBounds(document_bytes=64 * 1024, elements=64)
CONFIG_BOUNDS: Final = XmlBounds(document_bytes=64 * 1024, elements=4096)
_ACCOUNT_KEY = re.compile(r"[0-9A-Za-z_]{16,256}")


def make_account(transfer: Transfer, email: str, password: str) -> str:
    """Return the key of a new account (BOINC's web RPC).

    Raises:
        UnreachableError: ``STO-X001``.
        DeniedError: ``STO-E016`` the project makes none, by itself or of this.
        TrustError: ``STO-X030`` for an answer that cannot be read.
    """
    config = parse_xml(transfer.get("get_project_config.php"), CONFIG_BOUNDS)
    if any(config.find(f"{who}account_creation_disabled") for who in ("", "client_")):
        raise DeniedError(
            "STO-E016",
            "the project lets nobody make an account by himself",
            hint="ask its operator for a key, then --key @FILE",
        )
    asked = render_lookup(email, password).replace("lookup", "create", 1)
    name = urlencode({"user_name": _OTHER.sub("-", email.partition("@")[0])[:40]})
    return parse_account(transfer.get(f"{asked}&{name}"))


def fetch_root(transfer: Transfer, fingerprint: str) -> bytes:
    """Return the project's root, whose SHA-256 must be the one that a person typed.

    Raises:
        UsageError: ``STO-U003`` it is no SHA-256.
        UnreachableError: ``STO-X001``.
        TrustError: ``STO-K019`` the project has another root.
    """
    wanted = re.sub(r"[\s:]", "", fingerprint).lower()
    if not re.fullmatch(r"[0-9a-f]{64}", wanted):
        raise UsageError("STO-U003", "a fingerprint is 64 hex digits, all of them")
    root = transfer.get("release/root.json", MAX_ROOT_BYTES)
    if not hmac.compare_digest(content_digest(root), wanted):
        raise TrustError(
            "STO-K019",
            "the project's root has another fingerprint: nothing was attached",
            hint="compare what you typed; if it is right, this server is not the project",
        )
    return root


def look_up_account(transfer: Transfer, email: str, password: str) -> str:
    """Return the account key for an e-mail address and password (BOINC's web RPC).

    Raises:
        UnreachableError: ``STO-X001``.
        DeniedError: ``STO-E016`` the project does not know them.
        TrustError: ``STO-X030`` for an answer that cannot be read.
    """
    return parse_account(transfer.get(render_lookup(email, password)))


def render_lookup(email: str, password: str) -> str:
    """Return the address of the question, relative to the master URL."""
    given = (password + email.lower()).encode()
    hashed = hashlib.md5(given, usedforsecurity=False).hexdigest()
    query = urlencode({"email_addr": email, "passwd_hash": hashed})
    return f"lookup_account.php?{query}"


def parse_account(data: bytes) -> str:
    """Return the account key in a (hostile) answer.

    Raises:
        DeniedError: STO-E016 the project says no.
        TrustError: STO-X030 the answer cannot be read.
    """
    root = parse_xml(data, ACCOUNT_BOUNDS)
    if root.tag == "error":
        words = root.string("error_msg", longest=1000)[:200]
        raise DeniedError("STO-E016", f"the project refused the account: {words}")
    key = root.string("authenticator")
    if not _ACCOUNT_KEY.fullmatch(key):
        raise TrustError("STO-X030", "the project's answer holds no account key")
    return key


log = logging.getLogger(__name__)

EXIT_ABORTED_BY_USER = 203  # BOINC: aborted by the person at the computer
MAX_KEY_BYTES = 4096


def leave_project(attachment: Attachment, *, abort_tasks: bool) -> bool:
    """Report every copy of an attachment as over; returns whether the project heard it.

    Raises:
        UsageError: STO-X045 copies are unfinished and were not to be aborted,
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
            raise UsageError("STO-X045", f"{len(unfinished)} tasks are unfinished here")
        for copy in unfinished:
            ledger.fail(copy, ResultState.ABORTED, EXIT_ABORTED_BY_USER, "")
        return not ledger.copies() or _report(attachment, ledger)
    finally:
        ledger.close()


def greet_project(attachment: Attachment) -> None:
    """Call the project once: it knows the key, and this computer from now on.

    Raises:
        UnreachableError: ``STO-X001``.
        DeniedError: ``STO-E016`` it does not know the key.
        TrustError: ``STO-X030``.
    """
    ledger = Ledger(attachment.project_directory, attachment.said.project)
    try:
        ledger.save_host(identity_after(ledger.host, _call(attachment, ledger)))
    finally:
        ledger.close()


def _report(attachment: Attachment, ledger: Ledger) -> bool:
    """Tell the project what is over; returns whether it answered."""
    try:
        _call(attachment, ledger)
    except StoiloError as error:
        log.warning("%s", error)
        return False
    return True


def _call(attachment: Attachment, ledger: Ledger) -> SchedulerReply:
    """Report what is over and ask for nothing; return the answer."""
    ca = attachment.directory / CA
    settings = Settings(attachment.said.project, _read_key(attachment.directory / KEY))
    transfer = Transfer(settings.project, ca=ca if ca.exists() else None)
    try:
        _, reply = Caller(settings, ledger, transfer).call(
            lambda host: request_of(
                host, settings, ledger.copies(), wants_work=False, may_wait=False
            )
        )
    finally:
        transfer.close()
    return reply


def _read_key(path: Path) -> str:
    """Return the account key of an attachment; raises ``STO-X047``."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_KEY_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise UsageError("STO-X047", "the attachment's key cannot be read") from error
