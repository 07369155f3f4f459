"""WebAuthn's two ceremonies: a passkey is made, a passkey signs. Pure, by Yubico's fido2.

What a browser sends is hostile: a form of up to 4 KiB, from which the library reads JSON
and CBOR; whatever it makes of them ends in ``STO-R001``. Added to its checks: the origin is
ours to the letter, no frame of others asks, the key is of a kind that we asked for, the
user was verified, and he is the one whom the authenticator names. Source: WebAuthn
Level 3, sections 7.1 and 7.2; attestations are not asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from fido2.server import Fido2Server
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticatorData,
    CollectedClientData,
    PublicKeyCredentialParameters,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialType,
    PublicKeyCredentialUserEntity,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from stoilo.core.errors import DeniedError
from stoilo.server.operations.sign_ins import Credential

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ALGORITHMS: Final = (-7, -8, -257)  # ES256, EdDSA, RS256: what authenticators know
CREDENTIAL_BYTES: Final = 2048  # as much is kept
_KIND: Final = PublicKeyCredentialType.PUBLIC_KEY
# What the library and what is below it raise for bytes that are no answer
_FAULTS: Final = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError),
    *(AssertionError, RecursionError, NotImplementedError, struct.error),
    *(InvalidSignature, UnsupportedAlgorithm),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where passkeys of a server are good."""

    domain: str  # the relying party's id
    origin: str  # scheme, host and port of the pages


def find_place(url: str) -> Place | None:
    """Return where passkeys of the server at `url` are good; None at an IP address.

    WebAuthn wants a name: of this machine's own addresses that is ``localhost``.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    with contextlib.suppress(ValueError):
        if not ip_address(host).is_loopback:
            return None
        host = "localhost"
    if parts.scheme != "https" and host != "localhost":
        return None
    return Place(host, f"{parts.scheme}://{host}{port}")


class Ceremonies:
    """The ceremonies at one place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        party = PublicKeyCredentialRpEntity(name="stoilo", id=place.domain)
        self._server = Fido2Server(party, verify_origin=lambda one: one == place.origin)
        self._server.allowed_algorithms = [
            PublicKeyCredentialParameters(type=_KIND, alg=one) for one in ALGORITHMS
        ]

    def user_id(self, account_id: int, name: str) -> bytes:
        """Return what an authenticator knows an account by: the same each time, no name."""
        text = f"{self.place.origin} {account_id} {name}"
        return hashlib.sha256(text.encode()).digest()

    def ask_to_make(
        self, user_id: bytes, name: str, known: Sequence[bytes], challenge: bytes
    ) -> str:
        """Return the options of ``navigator.credentials.create``, as JSON.

        `known` are the account's credentials: their authenticators make no second one.
        """
        options, _ = self._server.register_begin(
            PublicKeyCredentialUserEntity(name=name, id=user_id, display_name=name),
            list(map(AttestedCredentialData, known)),
            resident_key_requirement=ResidentKeyRequirement.REQUIRED,
            user_verification=UserVerificationRequirement.REQUIRED,
            challenge=challenge,
        )
        return json.dumps(dict(options.public_key))

    def ask_to_sign(self, challenge: bytes) -> str:
        """Return the options of ``navigator.credentials.get``, as JSON."""
        options, _ = self._server.authenticate_begin(
            user_verification=UserVerificationRequirement.REQUIRED, challenge=challenge
        )
        return json.dumps(dict(options.public_key))

    def read_made(self, fields: Mapping[str, str], challenge: bytes) -> Credential:
        """Return the passkey of a form (untrusted); raises ``STO-R001``."""
        with _ours():
            _check_frame(fields)
            found = self._server.register_complete(_state(challenge), _answer(fields))
            made = found.credential_data
            if made is None or len(made) > CREDENTIAL_BYTES or not made.credential_id:
                raise ValueError("no credential")
            if made.public_key.ALGORITHM not in ALGORITHMS:
                raise ValueError("no key of a kind that was asked for")
            with contextlib.suppress(InvalidSignature):  # a point that is on its curve
                made.public_key.verify(b"", b"")
            return Credential(made.credential_id, bytes(made), found.counter)

    def check_signed(
        self,
        fields: Mapping[str, str],
        challenge: bytes,
        credential: bytes,
        user_id: bytes,
    ) -> int:
        """Return which signature of a passkey's this is; raises ``STO-R001``."""
        with _ours():
            _check_frame(fields)
            if websafe_decode(fields["userHandle"]) != user_id:
                raise ValueError("another user's")
            known = [AttestedCredentialData(credential)]
            self._server.authenticate_complete(
                _state(challenge), known, _answer(fields)
            )
            return AuthenticatorData(
                websafe_decode(fields["authenticatorData"])
            ).counter


def read_challenge(fields: Mapping[str, str]) -> bytes:
    """Return the challenge that a form (untrusted) answers; raises ``STO-R001``."""
    with _ours():
        return CollectedClientData(websafe_decode(fields["clientDataJSON"])).challenge


def read_id(fields: Mapping[str, str]) -> bytes:
    """Return the credential id that a form (untrusted) names; raises ``STO-R001``."""
    with _ours():
        return websafe_decode(fields["id"])


def _check_frame(fields: Mapping[str, str]) -> None:
    if (
        CollectedClientData(websafe_decode(fields["clientDataJSON"])).cross_origin
        is not False
    ):
        raise ValueError("asked for in a frame of another site")


def _state(challenge: bytes) -> dict[str, str]:
    required = UserVerificationRequirement.REQUIRED
    return {"challenge": websafe_encode(challenge), "user_verification": required}


def _answer(fields: Mapping[str, str]) -> dict[str, object]:
    named = {"id": fields["id"], "rawId": fields["id"], "type": _KIND.value}
    return named | {"response": fields}  # each named as WebAuthn names it


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except _FAULTS as error:
        raise DeniedError(
            "STO-R001", "this passkey is not accepted", hint="sign in by a link instead"
        ) from error
