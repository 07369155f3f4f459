"""A provider who vouches for people: OpenID Connect's code flow with PKCE, state and nonce.

Trust: the provider is believed about who somebody is, over TLS and by its signature; what
it sends is bounded, and malformed bytes, silence and lies end in ``STO-R001``, whose reason
is in the server's log alone. Signatures are joserfc's (the ``oidc`` extra). Sources: OpenID
Connect Core 1.0 section 3.1, RFC 7636, RFC 9207, RFC 9700.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import logging
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from stoilo.core.errors import DeniedError
from stoilo.core.http_client import HttpClient, HttpError
from stoilo.core.rate_limit import TokenBuckets
from stoilo.server.config import is_provider_url
from stoilo.server.operations.people import NAME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "ES384")  # no shared secrets
KNOWN_FOR_S: Final = 600.0  # addresses and keys of the provider, s
ANSWER_BYTES: Final = 256 * 1024
WITHIN_S: Final = 10.0  # of one answer
LEEWAY_S: Final = 60  # that clocks may differ
CODE_CHARS: Final = 2048
FETCHES: Final = 30  # of addresses and keys, in a minute
_FAULTS: Final = (JoseError, ValueError, TypeError, LookupError, RecursionError)
ParsedT = TypeVar("ParsedT")


@dataclass(frozen=True, slots=True)
class Client:
    """What we are to the provider."""

    issuer: str  # https, or http on this machine
    name: str  # client id
    secret: str  # empty: a public client
    claim: str  # which claim is an account's name
    back: str  # the address that the provider sends people back to


class _Addresses(msgspec.Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    authorization_response_iss_parameter_supported: bool = False


class _Keys(msgspec.Struct, frozen=True):
    keys: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=64)]


class _Granted(msgspec.Struct, frozen=True):
    id_token: Annotated[str, msgspec.Meta(max_length=16_384)]


class Provider:
    """One provider; thread-safe, blocks on the network."""

    def __init__(
        self,
        client: Client,
        clock: Callable[[], int],  # s since 1970
        steady: Callable[[], float],  # s, a clock that is never set
    ) -> None:
        self._client, self._clock, self._steady = client, clock, steady
        self._known: tuple[float, _Addresses, KeySet] | None = None
        self._fetches = TokenBuckets(FETCHES, clock=steady)
        self._lock = threading.Lock()

    def address(self, state: str, nonce: str, verifier: str) -> str:
        """Return where a browser asks the provider; raises ``STO-R001``."""
        challenge = hashlib.sha256(verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "scope": "openid email profile",
            "client_id": self._client.name,
            "redirect_uri": self._client.back,
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        with _vouched():
            place = self._find()[0].authorization_endpoint
        return f"{place}{'&' if '?' in place else '?'}{urlencode(asked)}"

    def name_of(self, code: str, issuer: str, nonce: str, verifier: str) -> str:
        """Return the name of whom the provider vouches for; raises ``STO-R001``.

        `code` and `issuer` (empty: not said) are what the browser brought, untrusted.
        """
        with _vouched():
            addresses, keys = self._find()
            said = addresses.authorization_response_iss_parameter_supported
            if (issuer or said) and issuer != self._client.issuer:
                raise ValueError("the answer is of another provider")
            if not 0 < len(code) <= CODE_CHARS:
                raise ValueError("no code")
            token = self._exchange(addresses.token_endpoint, code, verifier)
            try:
                claims = jwt.decode(token, keys, list(ALGORITHMS)).claims
            except _FAULTS:  # it may have new keys
                claims = jwt.decode(
                    token, self._find(newer=True)[1], list(ALGORITHMS)
                ).claims
            return self._read_name(claims, nonce)

    def _exchange(self, place: str, code: str, verifier: str) -> str:
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.back,
            "code_verifier": verifier,
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        if self._client.secret:
            pair = map(quote_plus, (self._client.name, self._client.secret))
            basic = base64.b64encode(":".join(pair).encode()).decode()
            headers["authorization"] = f"Basic {basic}"
        else:
            sent["client_id"] = self._client.name
        body = urlencode(sent).encode()
        return _fetch(place, _Granted, "POST", body, headers).id_token

    def _read_name(self, claims: dict[str, Any], nonce: str) -> str:
        """Return the account's name in claims whose signature is good."""
        client, needed = self._client, {"essential": True}
        jwt.JWTClaimsRegistry(
            now=self._clock(),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": client.issuer},
            aud={"essential": True, "value": client.name},
            nonce={"essential": True, "value": nonce},
            **dict.fromkeys(("sub", "exp", "iat"), needed),  # type: ignore[arg-type]
        ).validate(claims)
        if claims.get("azp", client.name) != client.name or (
            claims["aud"] not in (client.name, [client.name]) and "azp" not in claims
        ):
            raise ValueError("the token is another program's")
        # What people may write there themselves is no name.
        if client.claim == "email" and claims.get("email_verified") is not True:
            raise ValueError("the address is not verified")
        name = claims.get(client.claim)
        if not isinstance(name, str) or not re.fullmatch(NAME_PATTERN, name):
            raise ValueError(f"the claim {client.claim} is no account's name")
        return name

    def _find(self, *, newer: bool = False) -> tuple[_Addresses, KeySet]:
        """Return the provider's addresses and keys, known or fetched."""
        with self._lock:
            now = self._steady()
            if self._known is None or newer or now - self._known[0] > KNOWN_FOR_S:
                if not self._fetches.allow(""):
                    raise ValueError("asked too often")
                self._known = now, *self._fetch_all()
            return self._known[1:]

    def _fetch_all(self) -> tuple[_Addresses, KeySet]:
        issuer = self._client.issuer
        place = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        found = _fetch(place, _Addresses)
        if found.issuer != issuer:
            raise ValueError("the issuer says that it is another one")
        for one in (found.authorization_endpoint, found.token_endpoint, found.jwks_uri):
            if not is_provider_url(one):
                raise ValueError(f"{one[:80]!r} is no https address")
        keys = _fetch(found.jwks_uri, _Keys).keys
        return found, KeySet.import_key_set({"keys": keys})


def _fetch(
    url: str,
    kind: type[ParsedT],
    method: str = "GET",
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> ParsedT:
    client = HttpClient(read_s=WITHIN_S)  # its own: on a kept one a code may go twice
    with contextlib.closing(client):
        answer = client.fetch(
            *(method, url),
            most=ANSWER_BYTES,
            within_s=WITHIN_S,
            body=body,
            headers=headers,
        )
    if answer.status != 200:  # noqa: PLR2004 - HTTP's own number
        raise ValueError(f"{urlsplit(url).path[:80]} answers {answer.status}")
    return msgspec.json.decode(answer.body, type=kind)


@contextlib.contextmanager
def _vouched() -> Iterator[None]:
    try:
        yield
    except (*_FAULTS, HttpError, msgspec.MsgspecError) as error:
        reason = str(error)[:200]
        log.warning("nobody was vouched for: %s: %r", type(error).__name__, reason)
        raise DeniedError(
            "STO-R001", "the provider did not vouch for you", hint="try again"
        ) from error
