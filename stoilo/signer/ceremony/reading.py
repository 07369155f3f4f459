"""What a ceremony needs of a published release's directory, whatever its timestamp says.

A volunteer follows the timestamp; a ceremony must also read a release whose timestamp is
not signed yet, has expired, or was forged. It takes every root, the newest file of each
other role, and the small targets that those name.
Trust: the directory is hostile until `open_current` returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from stoilo.core.errors import TrustError
from stoilo.executor.verifier.release.pack import ReleaseFiles, travels
from stoilo.signer.ceremony.current import CurrentRelease, open_current, stored_name
from stoilo.signer.ceremony.metadata import RoleFile, open_targets, parse_role_name
from stoilo.signer.roles import OFFLINE, ceremony_bounds

__all__ = ["open_published", "read_published"]

_TIMESTAMP = "metadata/timestamp.json"


def open_published(directory: Path) -> CurrentRelease:
    """Return the release in `directory`, its offline roles verified.

    Raises:
        TrustError: as `read_published` and `open_current`.
    """
    return open_current(read_published(directory))


def read_published(directory: Path) -> ReleaseFiles:
    """Return roots, newest metadata and small targets of a release directory.

    Raises:
        TrustError: ``STO-K050`` past the bounds, ``STO-K052`` for what cannot be read.
    """
    found: dict[str, bytes] = {}
    for name in _metadata_names(directory):
        found[name] = _read(directory, name)
    for name in tuple(found):
        for target in _target_names(name, found[name]):
            if (directory / target).is_file() and target not in found:
                found[target] = _read(directory, target)
        if len(found) > ceremony_bounds().max_files:
            raise TrustError("STO-K050", "the release holds too many files")
    return ReleaseFiles(tuple(sorted(found.items())))


def _metadata_names(directory: Path) -> Iterator[str]:
    """Yield every root, and the newest file of each other role."""
    newest: dict[str, int] = {}
    try:
        names = {path.name for path in (directory / "metadata").iterdir()}
    except OSError as error:
        raise TrustError("STO-K052", "the release has no metadata") from error
    for name in sorted(names):
        parsed = parse_role_name(name)
        if parsed is not None and parsed[1] == "root":
            yield f"metadata/{name}"
        elif parsed is not None:
            newest[parsed[1]] = max(parsed[0], newest.get(parsed[1], 0))
    for role, version in newest.items():
        yield f"metadata/{version}.{role}.json"
    if "timestamp.json" in names:
        yield _TIMESTAMP


def _target_names(name: str, data: bytes) -> Iterator[str]:
    """Yield where the small targets lie that a metadata file names."""
    parsed = parse_role_name(name.removeprefix("metadata/"))
    if parsed is None or parsed[1] not in OFFLINE or parsed[1] == "root":
        return
    for target, info in open_targets(
        RoleFile(parsed[1], parsed[0], data)
    ).signed.targets.items():
        digest = info.hashes.get("sha256", "")
        if travels(target) and ".." not in target and not target.startswith("/"):
            yield f"targets/{stored_name(target, digest)}"


def _read(directory: Path, name: str) -> bytes:
    """Return one file's bytes, bounded; a link is not followed."""
    bound = ceremony_bounds().metadata_bytes
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(directory / name, flags), "rb") as file:
            data = file.read(bound + 1)
    except OSError as error:
        raise TrustError("STO-K052", f"{name} of the release cannot be read") from error
    if len(data) > bound:
        raise TrustError("STO-K050", f"{name} of the release is too large")
    return data
