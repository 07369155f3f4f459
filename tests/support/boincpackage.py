"""Debian's package of the BOINC client: its programs, their digests, its user."""

from __future__ import annotations

import hashlib
import os
import pwd
from pathlib import Path
from typing import Final

from stoilo.core.errors import InternalError

__all__ = ["BOINC", "BOINCCMD", "boinc_user", "installed_md5", "packaged_md5"]

BOINC: Final = Path("/usr/bin/boinc")
BOINCCMD: Final = Path("/usr/bin/boinccmd")
PACKAGE_SUMS: Final = Path("/var/lib/dpkg/info/boinc-client.md5sums")
"""What dpkg keeps of the package: ``<md5>  <path below />``, a file a line."""


def boinc_user() -> pwd.struct_passwd:
    """Return whom the client runs as: the package's user, or ourselves if not root."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid())
    return pwd.getpwnam("boinc")


def installed_md5(program: Path) -> str:
    """Return the MD5 of an installed program."""
    with program.open("rb") as file:
        return hashlib.file_digest(
            file, lambda: hashlib.md5(usedforsecurity=False)
        ).hexdigest()


def packaged_md5(program: Path) -> str:
    """Return the MD5 that the package states of its program."""
    for line in PACKAGE_SUMS.read_text().splitlines():
        digest, _, name = line.partition("  ")
        if Path("/", name) == program:
            return digest
    raise InternalError("STO-U005", f"{program} is not of the package boinc-client")
