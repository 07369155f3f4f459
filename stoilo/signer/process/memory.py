"""What the signer remembers: the newest checkpoint and revocation statement it ever signed.

Written durably *before* a signature is given out, so that no crash can make two signed
checkpoints that disagree. A damaged file stops the signer. So does a missing one of the log:
without it the signer could be led into a fork (design §3, signing-audit §3.5). A missing one
of revocations is that of a project that has signed none; hosts' own memory would notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from stoilo.audit.format.merkle import EMPTY_ROOT, Checkpoint, check_consistency
from stoilo.core.errors import TrustError
from stoilo.core.signatures import PublicKey
from stoilo.core.statement import RevocationStatement, parse_revocation
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.signer.key_files import read_private_file, write_private_file

LEDGER_FILE: Final = "checkpoint.json"


class _CheckpointRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file's content; `root` in hex."""

    origin: str
    size: int
    root: str


def create_ledger(path: Path, origin: str) -> None:
    """Begin the memory of a new log; an existing one is left alone."""
    if not path.exists():
        _write_checkpoint(path, Checkpoint(origin, 0, EMPTY_ROOT))


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
        TrustError: STO-K026 smaller, another tree, another log.
    """
    if asked.origin != last.origin:
        raise TrustError("STO-K026", f"this signer's log is {last.origin!r}")
    if asked.size < last.size:
        raise TrustError(
            "STO-K026", f"size {last.size} was signed; {asked.size} would go back"
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
        """Read the file; raises ``STO-K029`` when it is missing or damaged."""
        self._path = path
        try:
            row = msgspec.json.decode(read_private_file(path), type=_CheckpointRow)
            self._last = Checkpoint(row.origin, row.size, bytes.fromhex(row.root))
        except (msgspec.MsgspecError, ValueError, TrustError) as error:
            raise TrustError(
                "STO-K029", "the signer's memory of the log cannot be read"
            ) from error

    @property
    def last(self) -> Checkpoint:
        """The newest checkpoint that was, or was about to be, signed."""
        return self._last

    def record(self, asked: Checkpoint, consistency: Sequence[bytes] = ()) -> None:
        """Judge `asked` and make it durable; only then may it be signed."""
        judge_next(self._last, asked, consistency)
        # No disk flush for what is remembered already.
        if asked != self._last:
            _write_checkpoint(self._path, asked)
            self._last = asked


def _write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    row = _CheckpointRow(checkpoint.origin, checkpoint.size, checkpoint.root.hex())
    write_private_file(path, msgspec.json.encode(row))


REVOCATION_LEDGER: Final = "revocation.json"
SKEW_S: Final = 300
"""How far a statement's time may lie from the signer's clock."""


class _RevocationRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file's content: the statement's bytes, as text, and the key (hex)."""

    statement: str
    key: str


def judge_statement(
    # the newest statement signed by this key; None before the first
    last: RevocationStatement | None,
    asked: RevocationStatement,  # what the caller wants signed; the log holds it
    release: TrustedRelease,  # the release as its offline keys signed it
    now: int,  # Unix seconds
) -> None:
    """Decide whether `asked` may be signed after `last`; pure.

    Raises:
        TrustError: STO-A083 its number does not rise, STO-A084 it takes something back
            that the offline role has not settled, STO-A083 another project, time or
            offline list.
    """
    if (
        asked.issuer != "online"
        or asked.origin != release.origin
        or abs(asked.time - now) > SKEW_S
        or asked.base != release.revocation_version
        or asked.offline != release.revocation_digest
    ):
        raise TrustError("STO-A083", "the statement does not fit the release or clock")
    # A new key begins above what the offline role has settled, not at one.
    floor = release.revocations_settled if last is None else last.sequence
    if asked.sequence <= floor:
        raise TrustError(
            "STO-A083",
            f"statement {floor} was signed or settled; {asked.sequence} no more",
        )
    if last is None or last.sequence <= release.revocations_settled:
        return
    if not asked.covers(last):
        raise TrustError(
            "STO-A084", f"it lacks what statement {last.sequence} withdrew"
        )


class RevocationLedger:
    """The file of the newest signed statement; one process, one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises ``STO-A086`` when it is damaged."""
        self._path = path
        self._row: _RevocationRow | None = None
        if not path.exists():
            return
        try:
            row = msgspec.json.decode(read_private_file(path), type=_RevocationRow)
            parse_revocation(row.statement.encode())
        except (msgspec.MsgspecError, UnicodeDecodeError, TrustError) as error:
            raise TrustError(
                "STO-A086", "the signer's memory of revocations cannot be read"
            ) from error
        self._row = row

    @property
    def last(self) -> RevocationStatement | None:
        """The newest statement signed, by whatever key."""
        if self._row is None:
            return None
        return parse_revocation(self._row.statement.encode())

    def signed_by(self, key: PublicKey) -> bytes:
        """Return the bytes of the newest statement if `key` signed it, else b""."""
        if self._row is None or self._row.key != key.raw.hex():
            return b""
        return self._row.statement.encode()

    def record(
        self, payload: bytes, key: PublicKey, release: TrustedRelease, now: int
    ) -> None:
        """Judge a statement's bytes and make them durable; only then sign them.

        The same bytes again are no new statement. Under another key than before the
        numbers begin anew, above what the offline role has settled.
        """
        asked = parse_revocation(payload)
        before = self.signed_by(key)
        # A server that crashed before it stored our answer asks for it again.
        if payload == before:
            return
        judge_statement(self.last if before else None, asked, release, now)
        row = _RevocationRow(payload.decode(), key.raw.hex())
        write_private_file(self._path, msgspec.json.encode(row))
        self._row = row
