"""Names of a workunit's files, and the bundle that carries release metadata.

The server names its files with these open names, the volunteer asks by the same. The
release bundle is one file because BOINC open names hold no directories: JSON with one
base64 member per metadata path. Untrusted until `executor.trust` has verified it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from stoilo.core.errors import TrustError
from stoilo.core.limits import BOUNDS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "ADMISSION",
    "ARGUMENTS",
    "PROOF",
    "RELEASE",
    "RESULT",
    "TASK_MODULE",
    "blob_name",
    "open_name_bound",
    "pack_release",
    "unpack_release",
]

ADMISSION = "admission"
PROOF = "proof"
TASK_MODULE = "task_module"
ARGUMENTS = "arguments"
RELEASE = "release"
RESULT = "result"

RELEASE_FILES = 256
RELEASE_BYTES = 8 * 1024 * 1024
_PATH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,3}")
_BOUND_OF = {
    ADMISSION: BOUNDS.envelope_bytes,
    PROOF: BOUNDS.proof_bytes,
    TASK_MODULE: BOUNDS.source_bytes,
    ARGUMENTS: BOUNDS.inline_arguments_bytes,
    RELEASE: RELEASE_BYTES,
}


def blob_name(index: int) -> str:
    """Return the open name of the `index`-th blob of the statement, from 0."""
    return f"blob_{index:03d}"


def open_name_bound(open_name: str) -> int:
    """Return the largest size, bytes, of the file behind `open_name`; 0 if unknown."""
    if re.fullmatch(r"blob_[0-9]{3}", open_name):
        return BOUNDS.blob_bytes
    return _BOUND_OF.get(open_name, 0)


def pack_release(files: Mapping[str, bytes]) -> bytes:
    """Return the bundle of `files` by path relative to the metadata directory.

    Deterministic: equal files give equal bytes, so its digest names the release.

    Raises:
        TrustError: ``STO-X010`` when a path or size is outside the bounds.
    """
    _check_release(files)
    return msgspec.json.encode(dict(sorted(files.items())))


def unpack_release(data: bytes) -> dict[str, bytes]:
    """Return the files of an untrusted bundle.

    Raises:
        TrustError: ``STO-X010`` for anything but a bundle within the bounds.
    """
    if len(data) > RELEASE_BYTES:
        raise TrustError("STO-X010", "the release bundle is larger than 8 MiB")
    try:
        files = msgspec.json.decode(data, type=dict[str, bytes])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise TrustError("STO-X010", "the release bundle is not readable") from error
    _check_release(files)
    return files


def _check_release(files: Mapping[str, bytes]) -> None:
    """Raise unless names are plain relative paths and sizes within the bounds."""
    if len(files) > RELEASE_FILES:
        raise TrustError("STO-X010", "the release bundle holds too many files")
    for path, content in files.items():
        if not _PATH.fullmatch(path) or len(path) > BOUNDS.name_chars:
            raise TrustError("STO-X010", "the release bundle names an unusable path")
        if len(content) > BOUNDS.metadata_bytes:
            raise TrustError("STO-X010", f"release file {path} is too large")
