"""What a volunteer remembers of its project: code-sign key, account, last words.

The code-sign key is trusted on first use, as BOINC's client does: it protects no more than
that later programs come from whom the first came from. A project changes it by a signature
of the former key. Losing the file costs that memory and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from stoilo.core.boinc.codesign import check_key_change, parse_boinc_public
from stoilo.core.boinc.messages import SchedulerReply, UserInfo
from stoilo.core.boinc.xml import XmlBounds, parse_xml, render_xml
from stoilo.core.errors import TrustError
from stoilo.executor.verifier.installation import replace_file
from stoilo.executor.volunteer.ledger import load_record

NAME: Final = "project.json"
MAX_BYTES: Final = 256 * 1024
MOST_MESSAGES: Final = 20


class ProjectMemory(msgspec.Struct, frozen=True):
    """What is kept of a project's replies."""

    code_sign_key: str = ""  # BOINC's text of it, empty before the first
    user: UserInfo | None = None  # what the project last said of the account
    preferences: str = ""  # XML elements of the account's preferences at this project
    # the project's last messages, the oldest first; hostile text
    messages: tuple[str, ...] = ()


class ProjectFile:
    """The memory of one project, on the disk.

    Raises:
        InternalError: STO-X008 it cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self.memory = read_memory(directory)

    def learn(self, reply: SchedulerReply) -> None:
        """Take what a reply says, durably.

        Raises:
            TrustError: STO-X040 its key is not the known one's successor: nothing of the
                reply's programs may be used; the rest is remembered.
        """
        known = self.memory
        refusal = None
        key = known.code_sign_key
        try:
            key = key_after(known.code_sign_key, reply)
        except TrustError as error:
            refusal = error
        self._keep(
            ProjectMemory(
                code_sign_key=key,
                user=reply.user or known.user,
                preferences=reply.project_preferences or known.preferences,
                messages=_joined(known.messages, reply.messages),
            )
        )
        if refusal is not None:
            raise refusal

    def _keep(self, memory: ProjectMemory) -> None:
        data = msgspec.json.encode(memory)
        if len(data) > MAX_BYTES:  # the key is worth more than their words
            memory = ProjectMemory(code_sign_key=memory.code_sign_key)
            data = msgspec.json.encode(memory)
        if memory != self.memory:
            replace_file(self._path, data)
            self.memory = memory


def read_memory(directory: Path) -> ProjectMemory:
    """Return what is remembered in a project's directory; nothing without the file.

    Raises:
        InternalError: STO-X008.
    """
    return load_record(directory / NAME, ProjectMemory, ProjectMemory())


def key_after(known: str, reply: SchedulerReply) -> str:
    """Return the code-sign key that counts after a (hostile) reply.

    Raises:
        TrustError: STO-X040 the reply has another key that the known one did not sign, or
            one that cannot be read.
    """
    told = reply.code_sign_key
    if not told or told == known:
        return known
    try:
        new = parse_boinc_public(told)
        if known:
            old = parse_boinc_public(known)
            check_key_change(new, reply.code_sign_key_signature, old)
    except TrustError as error:
        raise TrustError(
            "STO-X040",
            "the project shows another code-sign key than this computer knows",
            hint="ask the project whether it changed its key; `stoilo volunteer detach` "
            "and `attach` accept a new one",
        ) from error
    return told


def specific_preferences(preferences: str) -> str:
    """Return what of the project's preferences its programs get; hostile text."""
    bounds = XmlBounds(document_bytes=MAX_BYTES)
    try:
        root = parse_xml(f"<all>{preferences}</all>".encode(), bounds)
    except TrustError:
        return ""
    found = root.find("project_specific")
    return "".join(map(render_xml, found.children)) if found is not None else ""


def _joined(known: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Return the last messages; one that is repeated counts once, as the newest."""
    kept = [text for text in known if text not in new]
    return (*kept, *dict.fromkeys(new))[-MOST_MESSAGES:]
