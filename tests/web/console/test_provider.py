"""A provider's word opens a researcher's session; lies, replays and silence open none."""

from __future__ import annotations

import base64
import logging
from typing import TYPE_CHECKING, Any

import pytest

from stoilo.core.errors import UsageError
from stoilo.server.admission import tokens
from stoilo.server.operations import accounts
from stoilo.web.console.entrances import SECRET_BYTES
from stoilo.web.console.provider import ANSWER_BYTES
from stoilo.web.console.tickets import LIFE_S
from tests.support.console import ConsoleBench, Door, Visitor
from tests.support.provider import (
    CLIENT,
    SECRET,
    FakeProvider,
    make_key,
    serve_provider,
)
from tests.support.serverbench import make_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEAVE, BACK, TASKS = "/console/provider", "/console/provider/back", "/console/"
ADA = {"email": "ada@uni.example", "email_verified": True}


@pytest.fixture(scope="module")
def listening() -> Iterator[FakeProvider]:
    with serve_provider() as served:
        yield served


@pytest.fixture
def provider(listening: FakeProvider) -> FakeProvider:
    """Return a provider who knows ada, and is honest."""
    listening.who, listening.lies, listening.settings = dict(ADA), {}, {}
    listening.asked.clear()
    return listening


def show(door: Door, folder: Path, provider: FakeProvider, **more: str) -> ConsoleBench:
    """Show a console whose people the provider vouches for."""
    secret = folder / "secret"
    secret.write_text(f"{SECRET}\n")
    settings = {
        "oidc_issuer": provider.url,
        "oidc_client": CLIENT,
        "oidc_secret_file": str(secret),
    }
    served = door.show(make_bench(folder), **settings | more)
    provider.now = served.bench.clock()
    with served.bench.store.write() as connection:
        role, now = tokens.Role.RESEARCHER, served.bench.clock()
        tokens.issue_token(connection, "ada@uni.example", role, now)
    return served


@pytest.fixture
def vouched(door: Door, tmp_path: Path, provider: FakeProvider) -> ConsoleBench:
    return show(door, tmp_path, provider)


def try_in(served: ConsoleBench, provider: FakeProvider) -> Visitor:
    """Go to the provider and come back; returns the browser, signed in or not."""
    visitor = served.nobody()
    served.steady.now += 60
    served.bench.clock.now += tokens.DAY_S  # else an account comes too often
    provider.now = served.bench.clock()
    there = visitor.ask(LEAVE)
    assert there.status == 303, there.words
    answer = visitor.ask(f"{BACK}?{provider.log_in(there.headers['location'])}")
    assert answer.status in {200, 401}, answer.words
    assert ("STO-R001" in answer.words) == (answer.status == 401)
    return visitor


def opens(served: ConsoleBench, provider: FakeProvider) -> bool:
    return try_in(served, provider).ask(TASKS).status == 200


def test_person_whom_the_provider_knows_is_let_in(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    page = vouched.nobody().ask("/console/sign-in")
    assert f"Sign in at {provider.url.removeprefix('http://')}" in page.words
    visitor = try_in(vouched, provider)
    assert "Sign out ada@uni.example" in visitor.ask(TASKS).words


def test_session_s_cookie_stays_strict(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    seen = try_in(vouched, provider).seen
    name = vouched.console.sessions.cookie
    session = [one for one in seen if one.startswith(f"{name}=")]
    assert ["SameSite=strict" in one for one in session] == [True]
    assert all("HttpOnly" in one for one in seen)


LIES: dict[str, dict[str, Any]] = {
    "another nonce": {"claims": {"nonce": "n" * 64}},
    "no nonce": {"claims": {"nonce": None}},
    "another audience": {"claims": {"aud": "somebody-else"}},
    "two audiences": {"claims": {"aud": [CLIENT, "somebody-else"]}},
    "another party": {"claims": {"azp": "somebody-else"}},
    "no audience": {"claims": {"aud": None}},
    "expired": {"claims": {"exp": 1}},
    "no end": {"claims": {"exp": None}},
    "of the future": {"claims": {"nbf": 2**40}},
    "another issuer": {"claims": {"iss": "https://evil.example"}},
    "no subject": {"claims": {"sub": None}},
    "not verified": {"claims": {"email_verified": False}},
    "verified as text": {"claims": {"email_verified": "true"}},
    "no address": {"claims": {"email": None}},
    "address of another kind": {"claims": {"email": ["ada@uni.example"]}},
    "hidden letter": {"claims": {"email": "ada@uni.example\u200b"}},
    "unknown person": {"claims": {"email": "eve@uni.example"}},
    "algorithm none": {"header": "none"},
    "shared secret": {"header": "HS256"},
    "another key": {"signed": make_key("first")},
    "answer of another": {"iss_parameter": "https://evil.example"},
    "too long": {"/token": b'{"id_token": "' + b"x" * ANSWER_BYTES + b'"}'},
    "no JSON": {"/token": b"\xff"},
    "deep JSON": {"/token": b"[" * 100_000},
    "no token": {"/token": b"{}"},
}


@pytest.fixture(scope="module")
def world(
    door: Door, tmp_path_factory: pytest.TempPathFactory, listening: FakeProvider
) -> ConsoleBench:
    """Return a console for all lies: none changes anything."""
    return show(door, tmp_path_factory.mktemp("lies"), listening)


@pytest.mark.parametrize("what", LIES)
def test_lie_opens_nothing(
    world: ConsoleBench, provider: FakeProvider, what: str
) -> None:
    provider.lies = LIES[what]
    assert not opens(world, provider)
    provider.lies = {}
    assert opens(world, provider)  # control


def test_reason_is_told_to_the_operator_alone(
    vouched: ConsoleBench, provider: FakeProvider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.lies = LIES["another audience"]
    with caplog.at_level(logging.WARNING):
        try_in(vouched, provider)
    assert "InvalidClaimError" in caplog.text
    assert SECRET not in caplog.text


BAD_PLACES: dict[str, dict[str, object]] = {
    "plain": {"token_endpoint": "http://idp.example/token"},
    "no address": {"jwks_uri": "file:///etc/passwd"},
    "odd": {"authorization_endpoint": "https://[/"},
    "another issuer": {"issuer": "https://evil.example"},
    "a number": {"token_endpoint": 5},
}


@pytest.mark.parametrize("what", BAD_PLACES)
def test_provider_that_names_odd_places_is_not_asked(
    vouched: ConsoleBench, provider: FakeProvider, what: str
) -> None:
    provider.settings = BAD_PLACES[what]
    answer = vouched.nobody().ask(LEAVE)
    assert (answer.status, "STO-R001" in answer.words) == (401, True)
    provider.settings = {}
    assert opens(vouched, provider)  # control


def test_provider_that_promises_to_name_itself_has_to(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    provider.lies = {"iss_parameter": ""}
    assert opens(vouched, provider)  # control: it promised nothing
    vouched.steady.now += LIFE_S + 1
    provider.settings = {"authorization_response_iss_parameter_supported": True}
    assert not opens(vouched, provider)


def test_answer_is_good_once_and_in_the_browser_that_asked(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    visitor, other = vouched.nobody(), vouched.nobody()
    query = provider.log_in(visitor.ask(LEAVE).headers["location"])
    other.ask(LEAVE)
    asked = len(provider.asked)
    for thief in (other, vouched.nobody()):
        answer = thief.ask(f"{BACK}?{query}")
        assert (answer.status, "STO-E016" in answer.words) == (403, True)
    assert len(provider.asked) == asked  # the code was not even tried
    cookies = dict(visitor.cookies)
    assert visitor.ask(f"{BACK}?{query}").status == 200  # control
    assert Visitor(vouched.url, cookies).ask(f"{BACK}?{query}").status == 403


def test_code_of_another_is_no_use_with_one_s_own_state(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    victim, thief = vouched.nobody(), vouched.nobody()
    stolen = provider.log_in(victim.ask(LEAVE).headers["location"])
    own = provider.log_in(thief.ask(LEAVE).headers["location"])
    code, state = stolen.partition("&")[0], own.partition("&")[2]
    assert thief.ask(f"{BACK}?{code}&{state}").status == 401


def test_way_back_that_took_too_long_opens_nothing(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    visitor = vouched.nobody()
    query = provider.log_in(visitor.ask(LEAVE).headers["location"])
    vouched.steady.now += LIFE_S
    assert visitor.ask(f"{BACK}?{query}").status == 403


@pytest.mark.parametrize(
    "query",
    ["", "state=x", "state=%ff&code=x", "error=access_denied", "state=" + "A" * 3000],
)
def test_odd_way_back_opens_nothing(vouched: ConsoleBench, query: str) -> None:
    visitor = vouched.nobody()
    visitor.ask(LEAVE)
    assert visitor.ask(f"{BACK}?{query}").status in {400, 403}
    assert visitor.ask(TASKS).status == 401


def test_new_keys_of_the_provider_are_fetched(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    assert opens(vouched, provider)
    provider.key = make_key("second")
    assert opens(vouched, provider)
    fetched = provider.asked.count("/keys")
    assert opens(vouched, provider)
    assert provider.asked.count("/keys") == fetched == 2  # else they are remembered


def test_suspended_account_is_refused(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    store, now = vouched.bench.store, vouched.bench.clock()
    accounts.suspend(store, "ada@uni.example", "", now)
    assert not opens(vouched, provider)


@pytest.mark.parametrize("role", ["operator", "reviewer", "auditor"])
def test_other_roles_are_not_let_in_by_a_provider(
    vouched: ConsoleBench, provider: FakeProvider, role: str
) -> None:
    with vouched.bench.store.write() as connection:
        now = vouched.bench.clock()
        tokens.issue_token(connection, "olga@uni.example", tokens.Role(role), now)
    provider.who["email"] = "olga@uni.example"
    assert not opens(vouched, provider)


def test_unknown_person_gets_an_account_in_the_group(
    door: Door, tmp_path: Path, provider: FakeProvider
) -> None:
    served = show(door, tmp_path, provider, oidc_group="guests", oidc_claim="sub")
    provider.who = {"sub": "u-1"}
    for _ in range(2):
        assert opens(served, provider)
    found = accounts.list_accounts(served.bench.store, served.bench.clock())
    made = [(one.group, one.roles) for one in found if one.name == "u-1"]
    assert made == [("guests", ("researcher",))]


def test_account_signs_in_so_often_a_day(
    vouched: ConsoleBench, provider: FakeProvider
) -> None:
    name, role = "ada@uni.example", tokens.Role.RESEARCHER
    with vouched.bench.store.write() as connection:
        now = vouched.bench.clock()
        for _ in range(tokens.SIGN_INS_A_DAY):
            scope = tokens.SESSION_SCOPE
            tokens.issue_token(connection, name, role, now, scope=scope)
    visitor = vouched.nobody()
    query = provider.log_in(visitor.ask(LEAVE).headers["location"])
    assert visitor.ask(f"{BACK}?{query}").status == 429
    assert opens(vouched, provider)  # a day later


def test_without_a_provider_there_is_no_way_to_one(served: ConsoleBench) -> None:
    assert served.nobody().ask(LEAVE).status == 404
    assert "Sign in at" not in served.nobody().ask("/console/sign-in").words


@pytest.mark.parametrize("secret", [None, b"", b"\xff", b"x" * (SECRET_BYTES + 1)])
def test_secret_that_is_none_is_named_at_the_start(
    door: Door, tmp_path: Path, provider: FakeProvider, secret: bytes | None
) -> None:
    place = tmp_path / "other"
    if secret is not None:
        place.write_bytes(secret)
    with pytest.raises(UsageError, match="oidc_secret_file cannot be read"):
        show(door, tmp_path, provider, oidc_secret_file=str(place))


def test_public_client_sends_no_secret(
    door: Door, tmp_path: Path, provider: FakeProvider
) -> None:
    served = show(door, tmp_path, provider, oidc_secret_file="")
    assert not opens(served, provider)  # this provider wants one
    assert provider.asked.count("/token") == 1
    assert base64.b64encode(SECRET.encode()).decode() not in str(provider.codes)
