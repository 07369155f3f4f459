"""What a key has signed, remembered beside it: no second file of one version.

Two targets files of one version, both signed by enough people, could be shown to different
volunteers; whoever holds the server may ask for the second one by showing an old release.
So a key's owner keeps, beside the key, the highest version of its role and what it said.

Signatures do not name the root that they are made under. A folder whose ``current/`` is
another project's, with this key among its keys, would show whatever its maker put there as
unchanged, and have it signed. So the key also remembers the first root of its project, and
what it signed must be what the release below says.
The file holds nothing secret. Trust: it lies on the owner's own medium.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from stoilo.core.errors import InternalError, TrustError
from stoilo.core.files import read_bounded
from stoilo.core.signatures import parse_strict_json
from stoilo.signer.ceremony.metadata import RoleFile
from stoilo.signer.ceremony.proposal import Proposal
from stoilo.signer.key_files import write_private_file

_BOUND = 64 * 1024


class KeyMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest file that a key signed."""

    # the key's id in TUF's metadata
    key: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    role: Annotated[str, msgspec.Meta(max_length=32)]  # its role
    # highest version signed; 0 for none
    version: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    # SHA-256 of what was signed
    digest: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    # SHA-256 of what the project's first root says; empty: not met yet
    first_root: Annotated[str, msgspec.Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""
    format: Literal["stoilo-key-memory/1"] = "stoilo-key-memory/1"  # of this file


def memory_file(key_file: Path) -> Path:
    """Return where a key's memory lies: beside it."""
    return key_file.with_name(f"{key_file.name}.signed")


def check_memory(
    memory: KeyMemory, file: RoleFile, *, replace: bool = False
) -> KeyMemory:
    """Return the memory after signing `file`.

    Args:
        memory: before.
        file: about to be signed.
        replace: the owner says that an earlier ceremony was abandoned.

    Raises:
        TrustError: ``STO-K066`` when another file of this or a later version was signed.
    """
    digest = file.signed_digest
    # Signing the same file twice is no second file.
    again = file.version == memory.version and digest == memory.digest
    if file.version <= memory.version and not again and not replace:
        raise TrustError(
            "STO-K066",
            f"this key has signed version {memory.version} of {file.role} before, and "
            f"this is another version {file.version}",
            hint="if that ceremony was abandoned, sign with --replace",
        )
    return msgspec.structs.replace(memory, version=file.version, digest=digest)


def check_project(
    memory: KeyMemory, proposal: Proposal, *, replace: bool = False
) -> KeyMemory:
    """Return the memory of a key that signs for the project of `proposal`.

    Args:
        memory: before.
        proposal: reviewed, and about to be signed.
        replace: the owner says that an earlier ceremony was abandoned.

    Raises:
        TrustError: ``STO-K066`` when the folder's release begins with another root, or
            names another file for the version that this key signed last.
    """
    base = proposal.base
    first = proposal.role("root") if base is None else base.roots[0]
    found = "" if first is None else first.signed_digest
    # Signatures do not name the root they are made under; this memory does.
    if memory.first_root not in {"", found} and not replace:
        raise TrustError(
            "STO-K066",
            "this key belongs to a project that begins with another root than the folder's",
            hint="do not sign, unless the first ceremony was abandoned (--replace): compare "
            "the first root with your paper",
        )
    below = None if base is None else base.role(memory.role)
    same = below is not None and below.version == memory.version
    if below and same and below.signed_digest != memory.digest and not replace:
        raise TrustError(
            "STO-K066",
            f"the release below has another version {below.version} of {memory.role} "
            "than the one that this key signed",
            hint="find out who signed that one; if yours was abandoned, sign with "
            "--replace",
        )
    return msgspec.structs.replace(memory, first_root=found)


def read_memory(path: Path, key: str, role: str) -> KeyMemory:
    """Return a key's memory, a fresh one when it has none.

    Raises ``STO-K050`` when the file is damaged or another key's.
    """
    try:
        data = read_bounded(path, _BOUND)
    except FileNotFoundError:
        return KeyMemory(key, role)
    except OSError as error:
        raise TrustError("STO-K050", f"{path.name} cannot be read") from error
    try:
        document = parse_strict_json(data, max_bytes=_BOUND, what=path.name)
        memory = msgspec.convert(document, type=KeyMemory)
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError("STO-K050", f"{path.name} is damaged: {error}") from error
    if (memory.key, memory.role) != (key, role):
        raise TrustError("STO-K050", f"{path.name} is the memory of another key")
    return memory


def write_memory(path: Path, memory: KeyMemory) -> None:
    """Write a key's memory durably; raises ``STO-K066`` on a full or read-only disk."""
    try:
        write_private_file(path, msgspec.json.encode(memory) + b"\n")
    except OSError as error:
        raise InternalError(
            "STO-K066",
            "what this key signs cannot be remembered beside it",
            hint="make the key's medium writable, or give --memory FILE",
        ) from error
