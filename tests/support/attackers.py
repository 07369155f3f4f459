"""What attackers of a project's BOINC side do, and what they are given."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.wire import BoincPeer, HttpAnswer

__all__ = ["ENTITY_BOMB", "HeldCopy", "names_of", "resident_kib", "take_copy"]

ENTITY_BOMB: Final = "".join(
    f'<!ENTITY a{n} "{f"&a{n - 1};" * 10 if n else "lol" * 10}">' for n in range(9)
)
"""Declarations of XML entities; the last stands for ten thousand million letters."""

_NAME = re.compile(r"<result><name>([^<]+)<")
_DOWNLOAD = re.compile("/download/[0-9a-f]+")
_UPLOAD = re.compile(
    r"<file_info><name>([^<]+)</name><max_nbytes>[^<]+</max_nbytes>"
    r"<upload_url>http://[^/]+([^<]+)<"
)


@dataclass(frozen=True, slots=True)
class HeldCopy:
    """A copy on an attacker's own host.

    Attributes:
        name: of the copy.
        upload: name of its result's file.
        path: where that is sent.
        download: where one of its input files lies.
    """

    name: str
    upload: str
    path: str
    download: str


def take_copy(peer: BoincPeer, **words: object) -> HeldCopy | None:
    """Ask for one copy as an honest host does; None when there is none."""
    text = peer.schedule(instances=1, **words).body.decode()
    name, upload = _NAME.search(text), _UPLOAD.search(text)
    download = _DOWNLOAD.search(text)
    if name is None or upload is None or download is None:
        return None
    return HeldCopy(name[1], upload[1], upload[2], download[0])


def names_of(answer: HttpAnswer) -> list[str]:
    """Return the names of the copies that a scheduler's answer hands out."""
    return _NAME.findall(answer.body.decode())


def resident_kib(pid: int) -> int:
    """Return a process's resident memory, KiB, 0 where it is not told."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) if found else 0
