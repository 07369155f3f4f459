"""The offline keys of a development root, which lie beside the online ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tuf.api.metadata import Root

from stoilo.core.errors import UsageError
from stoilo.executor.verifier.release.trust import DEVELOPMENT_MARK
from stoilo.signer.keyfiles import ensure_key
from stoilo.signer.repository import RoleKeys, newest

__all__ = ["REQUESTED_FILE", "check_development", "offline_role", "role_keys"]

REQUESTED_FILE: Final = "requested.json"
"""File, below ``state``, by which a released project's keys wait for a ceremony."""


def check_development(directory: Path) -> None:
    """Refuse (STO-K091) to use, or make, offline keys in a released project's directory."""
    root = newest(directory, "root", Root)
    if root is None:
        released = (directory / "state" / REQUESTED_FILE).exists()
    else:
        released = DEVELOPMENT_MARK not in root.signed.unrecognized_fields
    if released:
        raise UsageError(
            "STO-K091",
            "this is a released project: its offline keys are not on this machine",
            hint="people sign such a change: stoilo release request, rotate or revoke",
        )


def offline_role(directory: Path, name: str) -> RoleKeys:
    """Return the keys of a delegated role."""
    check_development(directory)
    return RoleKeys((ensure_key(directory / "offline" / f"{name}.pem"),), 1)


def role_keys(folder: Path, name: str, count: int, *, threshold: int) -> RoleKeys:
    """Return a role's keys, one file each."""
    check_development(folder.parent)
    files = (folder / f"{name}-{number}.pem" for number in range(1, count + 1))
    return RoleKeys(tuple(ensure_key(file) for file in files), threshold)
