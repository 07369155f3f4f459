"""An OpenID Connect provider on a port of the loopback, as honest as a test wants it.

It checks what a provider must (client, redirect, PKCE, one use of a code) and signs with
keys of its own. What it lies about is set in `lies`: fields of the token's claims, and
``iss_parameter``, ``header`` and ``signed`` for the rest.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT, SECRET = "stoilo-console", "s3cret of the client"


def make_key(name: str) -> ECKey:
    return ECKey.generate_key("P-256", {"kid": name, "alg": "ES256", "use": "sig"})


@dataclass
class FakeProvider:
    """One provider; `who` are the claims about whoever signs in."""

    url: str = ""
    who: dict[str, Any] = field(default_factory=dict)
    lies: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)  # other discovered values
    key: ECKey = field(default_factory=lambda: make_key("first"))
    asked: list[str] = field(default_factory=list)  # paths
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    now: int = 0  # s since 1970, of its clock

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize?tenant=1",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        } | self.settings

    def log_in(self, address: str) -> str:
        """Return the query with which a person comes back who asked at `address`."""
        asked = {
            name: one[0] for name, one in parse_qs(urlsplit(address).query).items()
        }
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        more = self.lies.get("iss_parameter", self.url)
        return f"code={code}&state={asked['state']}" + (f"&iss={more}" if more else "")

    def answer(self, path: str, form: dict[str, str], basic: str) -> tuple[int, bytes]:
        """Return status and body of one request."""
        self.asked.append(path)
        found: dict[str, Any] = {"error": "not found"}
        if path == "/.well-known/openid-configuration":
            found = self.discovery()
        elif path == "/keys":
            found = {"keys": [self.key.as_dict(private=False)]}
        elif path == "/token":
            found = self._grant(form, basic)
        body = self.lies.get(path, json.dumps(found).encode())
        return (400 if "error" in found else 200), body

    def _grant(self, form: dict[str, str], basic: str) -> dict[str, Any]:
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None:
            return {"error": "invalid_grant"}
        proof = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(proof).rstrip(b"=").decode()
        pair = base64.b64decode(basic.removeprefix("Basic ")).decode().split(":")
        good = (
            asked["code_challenge"] == challenge,
            asked["redirect_uri"] == form["redirect_uri"],
            pair == [CLIENT, SECRET.replace(" ", "+")],
        )
        return (
            {"id_token": self.sign(asked)} if all(good) else {"error": "invalid_client"}
        )

    def sign(self, asked: dict[str, str]) -> str:
        """Return the token about who signs in, with what it lies about."""
        claims = {
            "iss": self.url,
            "aud": asked["client_id"],
            "nonce": asked["nonce"],
            "sub": "1",
            "iat": self.now,
            "exp": self.now + 300,
            **self.who,
            **self.lies.get("claims", {}),
        }
        claims = {name: one for name, one in claims.items() if one is not None}
        if self.lies.get("header") == "none":
            parts = ({"alg": "none", "typ": "JWT"}, claims)
            plain = [
                base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode()
                for one in parts
            ]
            return f"{plain[0]}.{plain[1]}."
        if self.lies.get("header") == "HS256":  # signed with what everybody can read
            shared = OctKey.import_key(self.key.as_pem(private=False))
            return jwt.encode({"alg": "HS256"}, claims, shared)
        key = self.lies.get("signed", self.key)
        return jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)


@contextlib.contextmanager
def serve_provider() -> Iterator[FakeProvider]:
    """Yield a provider that listens."""
    provider = FakeProvider(now=int(time.time()))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.startswith("/authorize"):  # a person who has a browser
                back = parse_qs(urlsplit(self.path).query)["redirect_uri"][0]
                link = html.escape(f"{back}?{provider.log_in(self.path)}")
                self._send(200, f'<a href="{link}">Yes, that is me</a>'.encode())
            else:
                self._answer({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            self._answer({name: one[0] for name, one in parse_qs(body).items()})

        def _answer(self, form: dict[str, str]) -> None:
            basic = self.headers.get("authorization", "")
            self._send(*provider.answer(urlsplit(self.path).path, form, basic))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
