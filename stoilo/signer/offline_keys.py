"""Offline keys: made, kept and opened on machines without a network.

A private key lies in one small file, encrypted with ChaCha20-Poly1305 under a key that
Argon2id makes from the passphrase; everything else in the file is authenticated with it.

    {"format": "stoilo-private-key/1", "role", "name", "kind", "public",
     "memory_kib", "passes", "lanes", "salt", "nonce", "sealed"}

What others need is the public file, which names the key's fingerprint: SHA-256 of the
public key in groups of four hex digits, made to be read aloud and typed back.

Trust: key files are hostile until opened (they travel on sticks), so memory and time that
one may ask for are bounded. Sources: RFC 9106 (Argon2id), RFC 8439; signing-audit §1.4,
§1.6.
"""

from __future__ import annotations

import hmac
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from stoilo.core.boinc.codesign import parse_boinc_public, render_boinc_public
from stoilo.core.digests import Digest, content_digest
from stoilo.core.errors import TrustError, UsageError
from stoilo.core.signatures import PrivateKey, parse_public_key, parse_strict_json
from stoilo.signer.boinc_keys import (
    BoincPrivateKey,
    generate_boinc_key,
    parse_boinc_private,
    render_boinc_private,
)

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner


BUILDER_ROLE: Final = "builder"
BOINC_ROLE: Final = "boinc"

MIN_PASSPHRASE_CHARS: Final = 16
MAX_PASSPHRASE_CHARS: Final = 1024
MAX_KEY_FILE_BYTES: Final = 16 * 1024
GROUP_DIGITS: Final = 4
GROUPS: Final = 16
_LINE_GROUPS: Final = 4
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_SECRET_BYTES: Final = 32

_Role = Literal[
    "root", "targets", "gate", "revocation", "policy", "reviewers", "builder", "boinc"
]
KEY_ROLES: Final[tuple[str, ...]] = get_args(_Role)
"""What an offline key can be for: one key, one use."""
_Name = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Hex = Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{2}){1,4096}\Z")]
_SPACE = re.compile(r"[\s:-]+")


class Hardness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one guess of a passphrase costs."""

    # memory, KiB; at most 1 GiB, so that a hostile file cannot ask more
    memory_kib: Annotated[int, msgspec.Meta(ge=8, le=1024 * 1024)] = 256 * 1024
    passes: Annotated[int, msgspec.Meta(ge=1, le=16)] = 3  # over that memory
    lanes: Annotated[int, msgspec.Meta(ge=1, le=8)] = 4  # parallel ones

    def __post_init__(self) -> None:
        """Refuse less memory than the lanes need (RFC 9106 §3.1)."""
        if self.memory_kib < 8 * self.lanes:
            raise ValueError("memory_kib must be at least 8 a lane")


HARD: Final = Hardness()
"""For real keys: about a second and 256 MiB a guess."""


class PublicKeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``.pub`` file: what everybody may know of an offline key."""

    role: _Role  # what the key is for, one of `KEY_ROLES`
    name: _Name  # its owner's, for people
    key: _Text  # 64 hex digits; for BOINC's key, its text form
    fingerprint: Annotated[str, msgspec.Meta(max_length=128)]  # of the key, in groups
    format: Literal["stoilo-key/1"] = "stoilo-key/1"  # of this file

    @property
    def short(self) -> str:
        """The fingerprint's first two groups, enough to name a file by."""
        return fingerprint_digest(self)[: 2 * GROUP_DIGITS]


class _PrivateFile(Hardness, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The private file; all but `sealed` is authenticated, none of it is secret."""

    format: Literal["stoilo-private-key/1"] = "stoilo-private-key/1"
    role: _Role
    name: _Name
    public: _Text
    salt: _Hex
    nonce: _Hex
    sealed: _Hex


@dataclass(frozen=True, slots=True)
class OfflineKey:
    """An opened key; lives no longer than the command that signs with it."""

    public: PublicKeyFile  # what its public file says
    # the private key: Ed25519, or BOINC's for role ``boinc``
    key: PrivateKey | BoincPrivateKey

    @property
    def role(self) -> str:
        """What the key is for."""
        return self.public.role

    @property
    def name(self) -> str:
        """Its owner's name."""
        return self.public.name

    def signer(self) -> CryptoSigner:
        """Return securesystemslib's signer; raises ``STO-K070`` for a BOINC key."""
        from securesystemslib.signer import CryptoSigner  # noqa: PLC0415 - slow import

        return CryptoSigner(self.ed25519().key)

    def ed25519(self) -> PrivateKey:
        """Return the Ed25519 key; raises ``STO-K070`` for a BOINC key."""
        if not isinstance(self.key, PrivateKey):
            raise TrustError("STO-K070", "BOINC's key signs nothing but BOINC's files")
        return self.key

    def boinc(self) -> BoincPrivateKey:
        """Return BOINC's key; raises ``STO-K070`` for any other."""
        if not isinstance(self.key, BoincPrivateKey):
            raise TrustError("STO-K070", f"a {self.role} key is not BOINC's key")
        return self.key


def create_key(
    role: str, name: str, passphrase: str, *, hardness: Hardness = HARD
) -> tuple[bytes, PublicKeyFile]:
    """Make a key; returns the private file's bytes and the public file.

    Args:
        role: one of `KEY_ROLES`.
        name: the owner's, for people: letters, digits, ``.``, ``_``, ``-``.
        passphrase: at least `MIN_PASSPHRASE_CHARS` characters.
        hardness: less than `HARD` is for tests and rehearsals.

    Raises:
        UsageError: STO-U003 for a short passphrase, for a bad role or name.
    """
    check_passphrase(passphrase)
    key: PrivateKey | BoincPrivateKey
    if role == BOINC_ROLE:
        key = generate_boinc_key()
        public, secret = render_boinc_public(key.public), render_boinc_private(key)
    else:
        key = PrivateKey.generate()
        public, secret = key.public.raw.hex(), key.key.private_bytes_raw().hex()
    record = _public_file(role, name, public)
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    header = _PrivateFile(
        role=record.role,
        name=name,
        public=public,
        memory_kib=hardness.memory_kib,
        passes=hardness.passes,
        lanes=hardness.lanes,
        salt=salt.hex(),
        nonce=nonce.hex(),
        sealed="00",
    )
    # Role and name are authenticated too: a root key cannot be passed off as another.
    sealed = _cipher(header, passphrase).encrypt(nonce, secret.encode(), _bound(header))
    private = msgspec.structs.replace(header, sealed=sealed.hex())
    return msgspec.json.format(msgspec.json.encode(private)) + b"\n", record


def open_key(data: bytes, passphrase: str) -> OfflineKey:
    """Open a private key file (hostile).

    Raises ``STO-K070`` malformed, ``STO-K071`` not opened by `passphrase`.
    """
    header = _parse_private(data)
    cipher = _cipher(header, passphrase)
    try:
        secret = cipher.decrypt(
            bytes.fromhex(header.nonce), bytes.fromhex(header.sealed), _bound(header)
        )
    except InvalidTag as error:
        raise TrustError(
            "STO-K071", "the passphrase does not open this key, or the file was changed"
        ) from error
    public = _public_file(header.role, header.name, header.public)
    return OfflineKey(public, _open_secret(header, secret))


def parse_public_file(data: bytes) -> PublicKeyFile:
    """Parse a public key file (hostile); raises ``STO-K070`` and key codes."""
    document = parse_strict_json(
        data, max_bytes=MAX_KEY_FILE_BYTES, what="public key file"
    )
    try:
        record = msgspec.convert(document, type=PublicKeyFile)
    except msgspec.ValidationError as error:
        raise TrustError("STO-K070", f"not a public key file: {error}") from error
    # People compare the fingerprint: one beside another key would deceive them.
    if record.fingerprint != fingerprint(record):
        raise TrustError("STO-K070", "the fingerprint is not that of the key")
    return record


def render_public_file(record: PublicKeyFile) -> bytes:
    """Return the ``.pub`` file's bytes."""
    return msgspec.json.format(msgspec.json.encode(record)) + b"\n"


def fingerprint_digest(public: PublicKeyFile) -> Digest:
    """Return SHA-256 of the public key: what the audit log calls the key, too.

    Raises ``STO-K001`` or ``STO-K076`` for what is no usable key.
    """
    if public.role == BOINC_ROLE:
        canonical = render_boinc_public(parse_boinc_public(public.key))
        return content_digest(canonical.encode())
    return content_digest(parse_public_key(public.key).raw)


def fingerprint(public: PublicKeyFile) -> str:
    """Return the fingerprint: sixteen groups of four hex digits, in lines of four."""
    return group_digest(fingerprint_digest(public))


def group_digest(digest: str) -> str:
    """Return a SHA-256 in groups of four digits, to be compared aloud."""
    groups = [digest[at : at + GROUP_DIGITS] for at in range(0, 64, GROUP_DIGITS)]
    lines = (groups[at : at + _LINE_GROUPS] for at in range(0, GROUPS, _LINE_GROUPS))
    return "  ".join(" ".join(line) for line in lines)


def choose_groups(randbelow: Callable[[int], int]) -> tuple[int, int]:
    """Return two different groups (from 1) for a person to type back."""
    first = randbelow(GROUPS)
    # Never the same group twice, and every pair as likely.
    second = (first + 1 + randbelow(GROUPS - 1)) % GROUPS
    low, high = sorted((first, second))
    return low + 1, high + 1


def check_typed_back(shown: str, typed: Mapping[int, str]) -> None:
    """Raise ``STO-K069`` unless each typed group (from 1) is that of `shown`."""
    groups = shown.split()
    for number, text in typed.items():
        wanted = groups[number - 1]
        if not hmac.compare_digest(
            _SPACE.sub("", text).lower().encode(), wanted.encode()
        ):
            raise TrustError("STO-K069", f"group {number} is not what was typed")


def check_passphrase(passphrase: str) -> None:
    """Raise ``STO-U003`` for a passphrase too short or past the bound."""
    if not MIN_PASSPHRASE_CHARS <= len(passphrase) <= MAX_PASSPHRASE_CHARS:
        raise UsageError(
            "STO-U003",
            f"a passphrase has at least {MIN_PASSPHRASE_CHARS} characters",
            hint="six words drawn by dice are easy to type and hard to guess",
        )


def _public_file(role: str, name: str, key: str) -> PublicKeyFile:
    fields = {"role": role, "name": name, "key": key, "fingerprint": ""}
    try:
        record = msgspec.convert(fields, type=PublicKeyFile)
    except msgspec.ValidationError as error:
        raise UsageError(
            "STO-U003",
            f"not a key's role or name: {error}",
            hint=f"roles: {', '.join(KEY_ROLES)}; names: letters, digits, . _ -",
        ) from error
    return msgspec.structs.replace(record, fingerprint=fingerprint(record))


def _parse_private(data: bytes) -> _PrivateFile:
    """Return the private file's fields, bounded; raises ``STO-K070``."""
    try:
        document = parse_strict_json(
            data, max_bytes=MAX_KEY_FILE_BYTES, what="private key file"
        )
        header = msgspec.convert(document, type=_PrivateFile)
    except (TrustError, msgspec.ValidationError) as error:
        raise TrustError("STO-K070", f"not a private key file: {error}") from error
    sizes = (len(header.salt) // 2, len(header.nonce) // 2)
    if sizes != (_SALT_BYTES, _NONCE_BYTES):
        raise TrustError("STO-K070", "salt or nonce of the key file have a wrong size")
    return header


def _cipher(header: _PrivateFile, passphrase: str) -> ChaCha20Poly1305:
    # Two keyboards may spell one letter in two ways.
    text = unicodedata.normalize("NFC", passphrase)[:MAX_PASSPHRASE_CHARS]
    kdf = Argon2id(
        salt=bytes.fromhex(header.salt),
        length=_SECRET_BYTES,
        iterations=header.passes,
        lanes=header.lanes,
        memory_cost=header.memory_kib,
    )
    return ChaCha20Poly1305(kdf.derive(text.encode("utf-8", "surrogatepass")))


def _bound(header: _PrivateFile) -> bytes:
    """Return what the cipher authenticates: every field but the sealed one."""
    return msgspec.json.encode(msgspec.structs.replace(header, sealed="00"))


def _open_secret(header: _PrivateFile, secret: bytes) -> PrivateKey | BoincPrivateKey:
    """Return the key in an opened file, which must be the one it says."""
    try:
        text = secret.decode("ascii")
        if header.role == BOINC_ROLE:
            boinc = parse_boinc_private(text)
            if render_boinc_public(boinc.public) == header.public:
                return boinc
        else:
            key = PrivateKey(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text)))
            if key.public.raw.hex() == header.public:
                return key
    except ValueError as error:
        raise TrustError("STO-K070", "the key file holds no key") from error
    raise TrustError("STO-K070", "the key file holds another key than it names")
