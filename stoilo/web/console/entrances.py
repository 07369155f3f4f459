"""Ways in beside a secret of ours: a passkey's signature, and a provider's word."""

from __future__ import annotations

import base64
import binascii
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.responses import RedirectResponse
from starlette.routing import Route

from stoilo.core.errors import DeniedError, StoiloError, UsageError
from stoilo.server.admission import tokens
from stoilo.server.operations import sign_ins
from stoilo.web.console.asking import HEADERS
from stoilo.web.console.ceremonies import (
    Ceremonies,
    find_place,
    read_challenge,
    read_id,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy import Connection
    from starlette.requests import Request
    from starlette.responses import Response

    from stoilo.server.app.task_server import ServerPlace
    from stoilo.server.config import ServerConfig
    from stoilo.web.console.provider import Provider
    from stoilo.web.console.sessions import Sessions
    from stoilo.web.console.tickets import Tickets

BACK: Final = "/console/provider/back"
AT_ONCE: Final = 2  # a slow provider keeps nobody else waiting
SECRET_BYTES: Final = 1024
QUERY_CHARS: Final = 2048


class Entrances:
    """The ways in of one server."""

    def __init__(
        self,
        place: ServerPlace,
        sessions: Sessions,
        tickets: Tickets,
        steady: Callable[[], float],
    ) -> None:
        where, config = find_place(place.url), place.config
        self.ceremonies = Ceremonies(where) if where else None
        self._sessions, self._tickets = sessions, tickets
        self._group, self._issuer = config.oidc_group, config.oidc_issuer
        self._clock = place.watch.sources.clock
        self.provider = open_provider(config, place.url, self._clock, steady)
        self._turns = anyio.CapacityLimiter(AT_ONCE)

    def offer(self, cookie: str) -> dict[str, str]:
        """Return what a sign-in page offers who gets a form cookie, "" for nothing.

        The origin at which passkeys work, what a browser is asked for, the provider's host.
        """
        found = {"provider": urlsplit(self._issuer).netloc, "origin": "", "options": ""}
        if self.ceremonies:
            found["origin"] = self.ceremonies.place.origin
            challenge = self._tickets.make(f"sign {cookie}")
            found["options"] = self.ceremonies.ask_to_sign(challenge)
        return found

    def by_passkey(self, cookie: str, address: str, fields: Mapping[str, str]) -> str:
        """Return a new session's token for a passkey's signature (untrusted).

        Raises ``STO-R001``, the same whatever was wrong; ``STO-E016`` for a page that was
        used before; ``STO-E068`` when too often.
        """
        self._sessions.count_sign_in(address)
        try:
            return self._enter(f"sign {cookie}", fields)
        except DeniedError as error:
            if error.code != "STO-R001":
                raise
            raise DeniedError(
                "STO-R001", "this passkey is not accepted", hint="sign in by a link"
            ) from error

    def _enter(self, purpose: str, fields: Mapping[str, str]) -> str:
        challenge, ceremonies = read_challenge(fields), self.ceremonies
        self._tickets.check(
            challenge, purpose
        )  # before anything waits for the database

        def enter(connection: Connection, now: int) -> str:
            if ceremonies is None:
                raise DeniedError("STO-R001", "there are no passkeys here")
            owner, kept = sign_ins.find_passkey(connection, read_id(fields), now)
            user = ceremonies.user_id(owner.account_id, owner.name)
            count = ceremonies.check_signed(fields, challenge, kept.credential, user)
            sign_ins.use_passkey(connection, owner, kept, count, now)
            self._tickets.spend(challenge, purpose)
            return tokens.start_session(connection, owner, now)

        return self._sessions.open(enter)

    def routes(
        self,
        refuse: Callable[
            [StoiloError, Request], Response
        ],  # the sign-in page, with what is wrong
        let_in: Callable[[str], Response],  # a page that sets a session's cookie
    ) -> list[Route]:
        """Return the provider's routes, none without one."""
        if self.provider is None:
            return []
        provider, cookie = self.provider, f"{self._sessions.form_cookie}-provider"

        async def leave(request: Request) -> Response:
            seed = secrets.token_urlsafe(24)
            ticket = self._tickets.make(f"provider {seed}")
            state = base64.urlsafe_b64encode(ticket).decode()
            try:
                address = await anyio.to_thread.run_sync(
                    lambda: provider.address(state, *self._words(seed, ticket)),
                    limiter=self._turns,
                )
            except StoiloError as error:
                return refuse(error, request)
            answer = RedirectResponse(address, 303, HEADERS)
            # The provider's page leads back here: a strict cookie would stay behind.
            self._sessions.keep(answer, cookie, seed, "lax")
            return answer

        async def come_back(request: Request) -> Response:
            seed = request.cookies.get(cookie, "")[:64]
            try:
                token = await anyio.to_thread.run_sync(
                    lambda: self._vouched(provider, seed, request), limiter=self._turns
                )
            except StoiloError as error:
                return refuse(error, request)
            answer = let_in(token)
            self._sessions.keep(answer, cookie, "", "lax")
            return answer

        return [Route("/console/provider", leave), Route(BACK, come_back)]

    def _words(self, seed: str, ticket: bytes) -> tuple[str, str]:
        """Return the nonce and the PKCE verifier of one way there and back."""
        seal = self._tickets.seal
        return seal(f"nonce {seed}", ticket).hex(), seal(
            f"verifier {seed}", ticket
        ).hex()

    def _vouched(self, provider: Provider, seed: str, request: Request) -> str:
        """Return a session's token for who comes back from the provider (untrusted)."""
        self._sessions.count_sign_in(request.client.host if request.client else "")
        said = {
            one: request.query_params.get(one, "") for one in ("state", "code", "iss")
        }
        if max(map(len, said.values())) > QUERY_CHARS:
            raise UsageError("STO-R010", "the provider's answer is too long")
        try:
            ticket = base64.urlsafe_b64decode(said["state"].encode())
        except (binascii.Error, ValueError):
            ticket = b""
        self._tickets.spend(ticket, f"provider {seed}")
        words = self._words(seed, ticket)
        name = provider.name_of(said["code"], said["iss"], *words)
        return self._sessions.open(
            lambda connection, now: tokens.start_session(
                connection,
                sign_ins.find_vouched(connection, name, self._group, now),
                now,
            )
        )


def open_provider(
    config: ServerConfig,
    url: str,
    clock: Callable[[], int],
    steady: Callable[[], float],
) -> Provider | None:
    """Return the provider of the settings, None where they name none.

    Raises ``STO-R090`` without the extra, and for a secret that cannot be read.
    """
    if not config.oidc_issuer:
        return None
    try:
        from stoilo.web.console.provider import Client, Provider  # noqa: PLC0415 - extra

        secret = _read_secret(config.oidc_secret_file)
    except ModuleNotFoundError as error:
        raise UsageError(
            "STO-R090", "oidc_issuer needs pip install 'stoilo[oidc]'"
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError("STO-R090", "oidc_secret_file cannot be read") from error
    parts = urlsplit(url)
    back = f"{parts.scheme}://{parts.netloc}{BACK}"
    client = Client(
        config.oidc_issuer, config.oidc_client, secret, config.oidc_claim, back
    )
    return Provider(client, clock, steady)


def _read_secret(place: str) -> str:
    if not place:
        return ""
    with Path(place).open("rb") as file:
        secret = file.read(SECRET_BYTES + 1).strip().decode("ascii")
    if not 0 < len(secret) <= SECRET_BYTES or not secret.isprintable():
        raise ValueError("no secret")
    return secret
