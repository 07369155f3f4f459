"""The file that attaches a BOINC client to a project: no dialogue, no web call.

A client reads ``account_*.xml`` in its data directory when it starts. It holds the weak
key, as everything that a client keeps may be read by the tasks of other projects.
Source: BOINC client, ``client/cs_account.cpp`` (facts: reference/boinc.md §3.2).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stoilo.core.boinc.xml import escape
from stoilo.core.errors import InternalError, UsageError
from stoilo.core.files import write_durably

if TYPE_CHECKING:
    from pathlib import Path

_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]")


def master_url(url: str) -> str:
    """Return a project's address as clients name it; raises ``STO-E070``."""
    try:
        parts = urlsplit(url)
        usable = parts.port is None or parts.port > 0
    except ValueError:  # a port or an IPv6 address that is none
        parts, usable = urlsplit(""), False
    if parts.scheme not in {"http", "https"} or not parts.hostname or not usable:
        raise UsageError(
            "STO-E070",
            f"this is not a project's address: {url[:100]!r}",
            hint="like https://project.example/",
        )
    place = parts.netloc.rpartition("@")[2].lower()
    path = parts.path if parts.path.endswith("/") else f"{parts.path}/"
    return f"{parts.scheme}://{place}{path}"


def account_file_name(url: str) -> str:
    """Return how a client calls the account file of a project at `url`."""
    place = _UNUSUAL.sub("_", master_url(url).partition("://")[2])
    return f"account_{place.rstrip('_')}.xml"


def render_account_file(url: str, weak_key: str) -> str:
    """Return the file's text."""
    return (
        "<account>\n"
        f"    <master_url>{escape(master_url(url))}</master_url>\n"
        f"    <authenticator>{escape(weak_key)}</authenticator>\n"
        "</account>\n"
    )


def write_account(directory: Path, url: str, weak_key: str) -> Path:
    """Write the account file into a BOINC data directory; return where it lies.

    Readable by its owner alone: root gives it to the directory's owner, the user that
    the client runs as.

    Raises:
        UsageError: ``STO-E070`` for a directory or address that cannot be one.
        InternalError: ``STO-E070`` when the disk refuses.
    """
    target = directory / account_file_name(url)
    if not directory.is_dir() or (target.exists() and not target.is_file()):
        raise UsageError("STO-E070", f"{directory.name or directory} is no directory")
    try:
        write_durably(target, render_account_file(url, weak_key).encode(), mode=0o600)
        if os.geteuid() == 0:
            owner = directory.stat()
            os.chown(target, owner.st_uid, owner.st_gid, follow_symlinks=False)
    except OSError as error:
        raise InternalError(
            "STO-E070", f"{target.name} cannot be written (errno {error.errno})"
        ) from error
    return target
