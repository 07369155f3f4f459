"""An authenticator in software, and the browser before it: what a form of ours gets from both.

Made of cryptography and fido2's encoder. Each lie that a test needs is an argument.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import ES256
from fido2.webauthn import AttestedCredentialData, AuthenticatorData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.console import Answer, Visitor

FLAG = AuthenticatorData.FLAG
SEEN = FLAG.UP | FLAG.UV
OPTIONS = re.compile(r'data-passkey="(?:get|create)"[^>]* data-options="([^"]*)"')


def b64(data: bytes) -> str:
    """Return bytes as a browser sends them."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def asked_on(page: Answer) -> dict[str, Any]:
    """Return what a page asks a browser for."""
    found = OPTIONS.search(page.text)
    assert found, page.words
    asked: dict[str, Any] = json.loads(html.unescape(found.group(1)))
    return asked


@dataclass
class Authenticator:
    """One passkey of one user; `origin` is of the page that asks."""

    origin: str
    domain: str = "localhost"
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    credential_id: bytes = field(default_factory=lambda: os.urandom(32))
    user: bytes = b""
    count: int = 0

    def client_data(self, kind: str, asked: Mapping[str, Any], **lies: object) -> bytes:
        said = {"type": f"webauthn.{kind}", "challenge": asked["challenge"]}
        said |= {"origin": self.origin, "crossOrigin": False} | lies
        return json.dumps(said).encode()

    def data(self, flags: FLAG, attested: bytes = b"") -> bytes:
        party = hashlib.sha256(self.domain.encode()).digest()
        return bytes(AuthenticatorData.create(party, flags, self.count, attested))

    def make(
        self,
        asked: Mapping[str, Any],
        *,
        flags: FLAG = SEEN,
        alg: int = -7,
        **lies: object,
    ) -> dict[str, str]:
        """Return the fields of a form that registers this passkey."""
        self.user = base64.urlsafe_b64decode(asked["user"]["id"] + "==")
        numbers = self.key.public_key().public_numbers()
        x, y = (one.to_bytes(32, "big") for one in (numbers.x, numbers.y))
        public = ES256({1: 2, 3: alg, -1: 1, -2: x, -3: y})
        attested = AttestedCredentialData.create(b"\0" * 16, self.credential_id, public)
        made = self.data(flags | FLAG.AT, attested)
        whole = cbor.encode({"fmt": "none", "authData": made, "attStmt": {}})
        client = self.client_data("create", asked, **lies)
        named = {"id": b64(self.credential_id), "name": "key"}
        return named | {"clientDataJSON": b64(client), "attestationObject": b64(whole)}

    def sign(
        self, asked: Mapping[str, Any], *, flags: FLAG = SEEN, **lies: object
    ) -> dict[str, str]:
        """Return the fields of a form that signs in, one signature further."""
        self.count += 1
        data, client = self.data(flags), self.client_data("get", asked, **lies)
        signed = data + hashlib.sha256(client).digest()
        signature = self.key.sign(signed, ec.ECDSA(hashes.SHA256()))
        return {
            "id": b64(self.credential_id),
            "clientDataJSON": b64(client),
            "authenticatorData": b64(data),
            "signature": b64(signature),
            "userHandle": b64(self.user),
        }


ACCOUNT, SIGN_IN = "/console/account", "/console/sign-in"


def register(visitor: Visitor, key: Authenticator, **lies: Any) -> Answer:
    """Make a passkey on the account's page; returns what comes back."""
    page = visitor.ask(ACCOUNT)
    fields = page.forms()[f"{ACCOUNT}/passkey"] | key.make(asked_on(page), **lies)
    return visitor.post(f"{ACCOUNT}/passkey", fields)


def enter(visitor: Visitor, key: Authenticator, **lies: Any) -> Answer:
    """Sign in on the sign-in page; returns what comes back."""
    page = visitor.ask(SIGN_IN)
    fields = page.forms()[f"{SIGN_IN}/passkey"] | key.sign(asked_on(page), **lies)
    return visitor.post(f"{SIGN_IN}/passkey", fields)
