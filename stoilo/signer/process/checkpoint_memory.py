"""What the signer remembers of the log: the newest checkpoint it ever signed.

Written durably *before* a signature is given out, so that no crash can make two signed
checkpoints that disagree. A missing or damaged file stops the signer: without its memory
it could be led into a fork (design §3, signing-audit §3.5).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from stoilo.audit.format.merkle import EMPTY_ROOT, Checkpoint, check_consistency
from stoilo.core.errors import TrustError
from stoilo.signer.key_files import read_private_file, write_private_file

LEDGER_FILE: Final = "checkpoint.json"


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file's content; `root` in hex."""

    origin: str
    size: int
    root: str


def create_ledger(path: Path, origin: str) -> None:
    """Begin the memory of a new log; an existing one is left alone."""
    if not path.exists():
        _write(path, Checkpoint(origin, 0, EMPTY_ROOT))


def judge_next(
    last: Checkpoint, asked: Checkpoint, consistency: Sequence[bytes]
) -> None:
    """Decide whether `asked` may be signed after `last`; pure.

    Args:
        last: the newest checkpoint signed before.
        asked: what the caller wants signed.
        consistency: RFC 6962 proof from `last` to `asked`, empty for equal sizes and for
            the first leaves of a log.

    Raises:
        TrustError: STO-K025 smaller, STO-K026 another tree, STO-K027 another log.
    """
    if asked.origin != last.origin:
        raise TrustError("STO-K027", f"this signer's log is {last.origin!r}")
    if asked.size < last.size:
        raise TrustError(
            "STO-K025", f"size {last.size} was signed; {asked.size} would go back"
        )
    # Signing the same tree again is harmless: a restarted server asks for it.
    if asked.size == last.size and asked.root != last.root:
        raise TrustError("STO-K026", f"another tree of size {last.size} was signed")
    # The empty tree is the beginning of every tree.
    if not 0 < last.size < asked.size:
        return
    try:
        check_consistency(last, asked, consistency)
    except TrustError as error:
        raise TrustError(
            "STO-K026", f"the tree does not extend the one of size {last.size}"
        ) from error


class CheckpointLedger:
    """The file of the newest signed checkpoint; one process, one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises ``STO-K028`` when it is missing or damaged."""
        self._path = path
        self._last = _read(path)

    @property
    def last(self) -> Checkpoint:
        """The newest checkpoint that was, or was about to be, signed."""
        return self._last

    def record(self, asked: Checkpoint, consistency: Sequence[bytes] = ()) -> None:
        """Judge `asked` and make it durable; only then may it be signed."""
        judge_next(self._last, asked, consistency)
        # No disk flush for what is remembered already.
        if asked != self._last:
            _write(self._path, asked)
            self._last = asked


def _read(path: Path) -> Checkpoint:
    """Return the remembered checkpoint."""
    try:
        row = msgspec.json.decode(read_private_file(path), type=_Row)
        return Checkpoint(row.origin, row.size, bytes.fromhex(row.root))
    except (msgspec.MsgspecError, ValueError, TrustError) as error:
        raise TrustError(
            "STO-K028", "the signer's memory of the log cannot be read"
        ) from error


def _write(path: Path, checkpoint: Checkpoint) -> None:
    """Make `checkpoint` durable."""
    row = {
        "origin": checkpoint.origin,
        "size": checkpoint.size,
        "root": checkpoint.root.hex(),
    }
    write_private_file(path, json.dumps(row).encode())
