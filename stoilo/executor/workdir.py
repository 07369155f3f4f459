"""Names of a workunit's files.

The server names its files with these open names, the volunteer asks by the same. The
release metadata is one file (`executor.trust.pack_release`), because BOINC's open names
hold no directories.
"""

from __future__ import annotations

import re

from stoilo.core.limits import BOUNDS
from stoilo.core.revocation import MAX_REVOCATIONS_BYTES

__all__ = [
    "ADMISSION",
    "ARGUMENTS",
    "FLAVOR",
    "PROOF",
    "RELEASE",
    "RESULT",
    "REVOCATIONS",
    "TASK_MODULE",
    "blob_name",
    "open_name_bound",
]

ADMISSION = "admission"
PROOF = "proof"
TASK_MODULE = "task_module"
ARGUMENTS = "arguments"
RELEASE = "release"
REVOCATIONS = "revocations"
FLAVOR = "flavor"
RESULT = "result"

RELEASE_BYTES = 8 * 1024 * 1024
FLAVOR_BYTES = 2 * 1024 * 1024 * 1024
_BOUND_OF = {
    ADMISSION: BOUNDS.envelope_bytes,
    PROOF: BOUNDS.proof_bytes,
    TASK_MODULE: BOUNDS.source_bytes,
    ARGUMENTS: BOUNDS.inline_arguments_bytes,
    RELEASE: RELEASE_BYTES,
    REVOCATIONS: MAX_REVOCATIONS_BYTES,
    FLAVOR: FLAVOR_BYTES,
}


def blob_name(index: int) -> str:
    """Return the open name of the `index`-th blob of the statement, from 0."""
    return f"blob_{index:03d}"


def open_name_bound(open_name: str) -> int:
    """Return the largest size, bytes, of the file behind `open_name`; 0 if unknown."""
    if re.fullmatch(r"blob_[0-9]{3}", open_name):
        return BOUNDS.blob_bytes
    return _BOUND_OF.get(open_name, 0)
