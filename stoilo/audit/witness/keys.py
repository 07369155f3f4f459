"""A witness's own key: one private file, one name, and what it signs."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from stoilo.audit.format.note import (
    CosignerKey,
    KeyType,
    NoteSignature,
    VerifierKey,
    check_name,
    cosign_note,
    cosigner_type,
    parse_vkey,
    private_vkey,
    render_vkey,
)
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.files import write_durably

KEY_FILE = "witness.pem"
VKEY_FILE = "witness.vkey"
MAX_FILE_BYTES = 16 * 1024
ALGORITHMS: dict[str, Callable[[], CosignerKey]] = {
    "ed25519": Ed25519PrivateKey.generate,
    "ml-dsa-44": MLDSA44PrivateKey.generate,
}
"""How a witness may sign: what every tool verifies, or what quantum computers do not break."""


@dataclass(frozen=True, slots=True)
class WitnessKey:
    """A cosigner: its private key under its name."""

    verifier: VerifierKey  # name and public key, as policies name them
    private: CosignerKey  # stays in this process

    @property
    def vkey(self) -> str:
        """The public key's text."""
        return render_vkey(self.verifier)

    def cosign(self, text: bytes, time: int) -> NoteSignature:
        """Return the cosignature of a checkpoint's text at POSIX second `time`."""
        return cosign_note(text, self.verifier.name, self.private, time)


def make_witness_key(
    directory: Path,  # the witness's own
    name: str,  # a schema-less URL, for example ``witness.example/w1``
    algorithm: str = "ed25519",  # one of `ALGORITHMS`, for a new key
) -> WitnessKey:
    """Make a witness's key below `directory` (made 0700), or return the one there.

    Raises:
        UsageError: ``STO-L110`` for a name that cannot be one, or another one's key.
        TrustError: ``STO-L110`` when the files cannot be trusted.
    """
    try:
        check_name(name)
    except TrustError as error:
        raise UsageError("STO-L110", f"not a witness's name: {name[:64]!r}") from error
    try:
        _make_files(directory, name, algorithm)
    except OSError as error:
        raise TrustError(
            "STO-L110", f"no key can be kept in {directory}: {error.strerror}"
        ) from error
    found = load_witness_key(directory)
    if found.verifier.name != name:
        raise UsageError(
            "STO-L110",
            f"there is a key of {found.verifier.name!r} here already",
            hint="one witness, one directory: choose another --data",
        )
    return found


def _make_files(directory: Path, name: str, algorithm: str) -> None:
    """Write what is not there yet."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (directory / KEY_FILE).exists():
        write_durably(directory / KEY_FILE, _pem(ALGORITHMS[algorithm]()), mode=0o600)
    if not (directory / VKEY_FILE).exists():
        key = _load(directory)
        vkey = render_vkey(private_vkey(name, cosigner_type(key), key))
        write_durably(directory / VKEY_FILE, vkey.encode() + b"\n")


def load_witness_key(directory: Path) -> WitnessKey:
    """Return the key below `directory`; raises ``STO-L110``."""
    private = _load(directory)
    try:
        with (directory / VKEY_FILE).open("rb") as file:
            text = file.read(MAX_FILE_BYTES).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise TrustError("STO-L110", f"{VKEY_FILE} cannot be read") from error
    verifier = parse_vkey(text)
    if private_vkey(verifier.name, cosigner_type(private), private) != verifier:
        raise TrustError("STO-L110", f"{VKEY_FILE} is not of the key in {KEY_FILE}")
    return WitnessKey(verifier, private)


def read_log_keys(texts: Iterable[str]) -> tuple[VerifierKey, ...]:
    """Return the keys of logs to watch; a line is a verifier key, `log` may precede it.

    Raises:
        UsageError: ``STO-U003``.
    """
    keys: dict[VerifierKey, None] = {}
    for text in texts:
        words = text.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            key = parse_vkey(words[1] if words[0] == "log" and words[1:] else words[0])
        except TrustError as error:
            raise UsageError("STO-U003", f"not a log's key: {error.message}") from error
        if key.kind is KeyType.COSIGNATURE:
            raise UsageError("STO-U003", f"{key.name} is a cosigner's key, not a log's")
        keys[key] = None
    if not keys:
        raise UsageError("STO-U003", "a witness watches at least one log")
    return tuple(keys)


def _pem(key: CosignerKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _load(directory: Path) -> CosignerKey:
    """Return the private key in `directory`."""
    try:
        key = load_pem_private_key(_read_private(directory / KEY_FILE), None)
    except (ValueError, TypeError) as error:
        raise TrustError("STO-L110", f"{KEY_FILE} cannot be read") from error
    if not isinstance(key, Ed25519PrivateKey | MLDSA44PrivateKey):
        raise TrustError("STO-L110", f"{KEY_FILE} holds another kind of key")
    return key


def _read_private(path: Path) -> bytes:
    """Return a private file's bytes, if nobody else could read or change it."""
    try:
        # Owner and mode are those of the file that is read, never of one behind a link.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise TrustError(
            "STO-L110",
            f"{path.name} cannot be read",
            hint="make a key first: stoilo audit key witness",
        ) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise TrustError(
                "STO-L110",
                f"{path.name} belongs to or is open to other users",
                hint="if others could read it, make a new key",
            )
        return file.read(MAX_FILE_BYTES)
