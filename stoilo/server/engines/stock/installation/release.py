"""The programs that an installation offers: read from a published release, and checked."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stoilo.core.errors import TrustError, UsageError
from stoilo.executor.verifier.installation import installed_release
from stoilo.executor.verifier.release.trust import load_trust
from stoilo.server.engines.embedded.files.app_versions import check_programs
from stoilo.server.release.programs import ReleasedPrograms, read_programs

if TYPE_CHECKING:
    from stoilo.server.engines.programs import SignedFile


__all__ = ["read_offer"]

_CHUNK = 1024 * 1024


def read_offer(directory: Path) -> ReleasedPrograms:
    """Return what stock clients get of the release in `directory`, checked as by them.

    Raises:
        UsageError: ``STO-B028`` when there is nothing for them.
        TrustError: the release's codes; ``STO-E002`` a file that is not of its digest;
            ``STO-E050``, ``STO-E051`` signatures and platforms.
    """
    root = directory / "root.json"
    if not root.is_file():
        raise UsageError(
            "STO-B028",
            "there is no published release",
            hint="name the folder with root.json, metadata and targets: DATA/keys",
        )
    trust = load_trust(
        directory, root.read_bytes(), int(time.time()), installed=installed_release()
    )
    found = read_programs(directory, trust)
    if not found.programs:
        raise UsageError(
            "STO-B028",
            "the release has no programs that are signed for BOINC clients",
            hint="let the ceremony sign launcher and verifier with the role boinc",
        )
    files = [file for one in found.programs for file in (one.launcher, one.verifier)]
    md5s = {file.digest: _md5(file) for file in files}
    check_programs(found.programs, md5s, found.key)
    return found


def _md5(file: SignedFile) -> str:
    """Return a file's MD5; raises ``STO-E002`` where it is not of its digest."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    if isinstance(file.source, Path):
        with file.source.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                sha256.update(chunk)
                md5.update(chunk)
    else:
        sha256.update(file.source)
        md5.update(file.source)
    if sha256.hexdigest() != file.digest:
        raise TrustError("STO-E002", "a program is not of the digest that names it")
    return md5.hexdigest()
