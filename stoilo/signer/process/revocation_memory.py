"""What the signer remembers of revocations: the last statement that it signed.

An online key can only add. The rule needs a memory, which is written durably before a
signature is given out, as for checkpoints (`checkpoint_memory`). A damaged memory
stops the signer; a missing one is that of a project that has signed none, which the
hosts' own memory would notice.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
import msgspec
from stoilo.core.errors import TrustError
from stoilo.core.signatures import PublicKey
from stoilo.core.statement import RevocationStatement, parse_revocation
from stoilo.executor.verifier.targets import TrustedRelease
from stoilo.signer.key_files import read_private_file, write_private_file



REVOCATION_LEDGER: Final = "revocation.json"
SKEW_S: Final = 300
"""How far a statement's time may lie from the signer's clock."""


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file's content: the statement's bytes, as text, and the key (hex)."""

    statement: str
    key: str


def judge_statement(
    last: RevocationStatement | None,
    asked: RevocationStatement,
    release: TrustedRelease,
    now: int,
) -> None:
    """Decide whether `asked` may be signed after `last`; pure.

    Args:
        last: the newest statement signed by this key; None before the first.
        asked: what the caller wants signed; the log holds it.
        release: the release as its offline keys signed it.
        now: Unix seconds.

    Raises:
        TrustError: STO-A083 its number does not rise, STO-A084 it takes something back
            that the offline role has not settled, STO-A085 another project, time or
            offline list.
    """
    if (
        asked.issuer != "online"
        or asked.origin != release.origin
        or abs(asked.time - now) > SKEW_S
        or asked.base != release.revocation_version
        or asked.offline != release.revocation_digest
    ):
        raise TrustError("STO-A085", "the statement does not fit the release or clock")
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
        self._row = _read(path) if path.exists() else None

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
        row = _Row(payload.decode(), key.raw.hex())
        write_private_file(self._path, msgspec.json.encode(row))
        self._row = row


def _read(path: Path) -> _Row:
    """Return the remembered row."""
    try:
        row = msgspec.json.decode(read_private_file(path), type=_Row)
        parse_revocation(row.statement.encode())
    except (msgspec.MsgspecError, UnicodeDecodeError, TrustError) as error:
        raise TrustError(
            "STO-A086", "the signer's memory of revocations cannot be read"
        ) from error
    return row
