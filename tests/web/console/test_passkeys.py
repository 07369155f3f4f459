"""A passkey opens a session for who made it; what is stale, copied or another's opens none."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from stoilo.audit.format.facts import OperatorAct
from stoilo.server.admission import tokens
from stoilo.server.operations import access, accounts, sign_ins
from stoilo.web.console.account import NEW_PER_HOUR
from stoilo.web.console.sessions import FRESH_S
from stoilo.web.console.tickets import LIFE_S
from tests.support.authenticator import (
    ACCOUNT,
    FLAG,
    SIGN_IN,
    Authenticator,
    asked_on,
    b64,
    enter,
    register,
)
from tests.support.serverbench import acts

if TYPE_CHECKING:
    from tests.support.console import Answer, ConsoleBench, Visitor

TASKS = "/console/"


@pytest.fixture
def key(served: ConsoleBench) -> Authenticator:
    """Return an authenticator at the console's address."""
    return Authenticator(served.url.rstrip("/").replace("127.0.0.1", "localhost"))


@pytest.fixture
def owner(served: ConsoleBench, key: Authenticator) -> Visitor:
    """Return somebody signed in, who has made a passkey."""
    visitor = served.visitor()
    assert register(visitor, key).status == 303
    return visitor


def opened(served: ConsoleBench, answer: Answer, visitor: Visitor) -> bool:
    """Say whether a sign-in opened a session; a minute passes."""
    served.steady.now += 60
    assert answer.status in {303, 401, 403, 409, 429}, answer.words
    return visitor.ask(TASKS).status == 200


def try_in(served: ConsoleBench, key: Authenticator, **lies: Any) -> bool:
    visitor = served.nobody()
    return opened(served, enter(visitor, key, **lies), visitor)


def passkeys(served: ConsoleBench, account: int = 1) -> list[Any]:
    with served.bench.store.read() as connection:
        return sign_ins.list_passkeys(connection, account, served.bench.clock())


@pytest.mark.usefixtures("owner")
def test_passkey_opens_a_session_of_its_account(
    served: ConsoleBench, key: Authenticator
) -> None:
    visitor = served.nobody()
    assert enter(visitor, key).status == 303
    assert "Sign out ada" in visitor.ask(TASKS).words
    assert "/passkeys." in visitor.ask(ACCOUNT).text


def test_passkey_of_a_reviewer_opens_his_queue_and_no_task(
    served: ConsoleBench, key: Authenticator
) -> None:
    assert register(served.reviewer(), key).status == 303
    visitor = served.nobody()
    assert enter(visitor, key).status == 303
    assert visitor.ask("/console/reviews").status == 200
    assert visitor.ask("/console/labels").status == 403


def test_page_shows_name_and_last_use(
    served: ConsoleBench, owner: Visitor, key: Authenticator
) -> None:
    assert "never" in owner.ask(ACCOUNT).words
    assert try_in(served, key)
    assert "never" not in owner.ask(ACCOUNT).words
    assert "key" in owner.ask(ACCOUNT).words


@pytest.mark.parametrize(
    "lies",
    [
        {"origin": "https://evil.example"},
        {"origin": 5},
        {"challenge": b64(b"c" * 56)},
        {"type": "webauthn.create"},
        {"crossOrigin": True},
        {"crossOrigin": 0},
        {"flags": FLAG.UP},
        {"flags": FLAG.UV},
    ],
    ids=str,
)
@pytest.mark.usefixtures("owner")
def test_signature_of_something_else_opens_nothing(
    served: ConsoleBench, key: Authenticator, lies: dict[str, Any]
) -> None:
    assert not try_in(served, key, **lies)
    assert try_in(served, key)  # control


@pytest.mark.usefixtures("owner")
def test_passkey_of_another_domain_user_or_key_opens_nothing(
    served: ConsoleBench, key: Authenticator
) -> None:
    other = Authenticator(key.origin)
    liars = (
        replace(key, domain="evil.example"),
        replace(key, user=b"u" * 32),
        replace(key, key=other.key),
        replace(key, credential_id=other.credential_id),
    )
    assert not any(try_in(served, one) for one in liars)
    assert try_in(served, key)  # control


@pytest.mark.usefixtures("owner")
def test_answer_that_is_sent_again_opens_nothing(
    served: ConsoleBench, key: Authenticator
) -> None:
    visitor = served.nobody()
    page = visitor.ask(f"{SIGN_IN}")
    cookies = dict(visitor.cookies)
    fields = page.forms()[f"{SIGN_IN}/passkey"] | key.sign(asked_on(page))
    assert visitor.post(f"{SIGN_IN}/passkey", fields).status == 303  # control
    visitor.cookies = cookies
    with served.bench.store.write() as connection:  # as of keys that do not count
        connection.exec_driver_sql("UPDATE passkey SET sign_count = 0")
    answer = visitor.post(f"{SIGN_IN}/passkey", fields)
    assert (answer.status, "STO-E016" in answer.words) == (403, True)


@pytest.mark.usefixtures("owner")
def test_answer_to_another_browser_s_page_opens_nothing(
    served: ConsoleBench, key: Authenticator
) -> None:
    visitor, other = served.nobody(), served.nobody()
    mine = visitor.ask(SIGN_IN).forms()[f"{SIGN_IN}/passkey"]
    fields = mine | key.sign(asked_on(other.ask(SIGN_IN)))
    answer = visitor.post(f"{SIGN_IN}/passkey", fields)
    assert (answer.status, "STO-E016" in answer.words) == (403, True)


@pytest.mark.usefixtures("owner")
def test_page_that_stood_too_long_opens_nothing(
    served: ConsoleBench, key: Authenticator
) -> None:
    for waits, good in ((LIFE_S - 1, True), (LIFE_S, False)):
        visitor = served.nobody()
        page = visitor.ask(SIGN_IN)
        served.steady.now += waits
        fields = page.forms()[f"{SIGN_IN}/passkey"] | key.sign(asked_on(page))
        answer = visitor.post(f"{SIGN_IN}/passkey", fields)
        assert opened(served, answer, visitor) is good


@pytest.mark.usefixtures("owner")
def test_counter_that_goes_back_is_refused_and_told_to_the_operator(
    served: ConsoleBench, key: Authenticator, caplog: pytest.LogCaptureFixture
) -> None:
    copy = replace(key)
    assert try_in(served, key)
    with caplog.at_level(logging.WARNING):
        assert not try_in(served, copy)
    assert "a copy of it?" in caplog.text
    assert try_in(served, key)  # control: the one that is ahead


@pytest.mark.usefixtures("owner")
def test_key_that_never_counts_is_good(
    served: ConsoleBench, key: Authenticator
) -> None:
    with served.bench.store.write() as connection:
        connection.exec_driver_sql("UPDATE passkey SET sign_count = 0")
    for _ in range(2):
        key.count = -1
        assert try_in(served, key)


def test_removed_passkey_opens_nothing(
    served: ConsoleBench, owner: Visitor, key: Authenticator
) -> None:
    token = passkeys(served)[0].digest[:12]
    form = owner.ask(ACCOUNT).forms()[f"{ACCOUNT}/remove"]
    answer = owner.post(f"{ACCOUNT}/remove", form | {"token": token})
    assert answer.status == 303
    assert not try_in(served, key)
    assert not passkeys(served)


@pytest.mark.parametrize("how", ["one", "all"])
@pytest.mark.usefixtures("owner")
def test_operator_removes_a_passkey_as_a_token(
    served: ConsoleBench, key: Authenticator, how: str
) -> None:
    store, now = served.bench.store, served.bench.clock()
    token = next(
        one.token
        for one in access.list_tokens(store, "ada")
        if one.scope == tokens.PASSKEY_SCOPE
    )
    access.revoke(store, "ada", token if how == "one" else "", now)
    assert not try_in(served, key)


@pytest.mark.usefixtures("owner")
def test_suspended_account_is_refused(served: ConsoleBench, key: Authenticator) -> None:
    store, now = served.bench.store, served.bench.clock()
    accounts.suspend(store, "ada", "", now)
    assert not try_in(served, key)
    accounts.resume(store, "ada", now)
    assert try_in(served, key)  # control


@pytest.mark.usefixtures("owner")
def test_passkey_ends_after_its_year(served: ConsoleBench, key: Authenticator) -> None:
    served.bench.clock.now += tokens.YEAR_S
    assert not try_in(served, key)


@pytest.mark.parametrize(("role", "opens"), [("operator", True), ("auditor", False)])
@pytest.mark.usefixtures("owner")
def test_new_role_is_the_passkey_s_too(
    served: ConsoleBench, key: Authenticator, role: str, opens: bool
) -> None:
    store, now = served.bench.store, served.bench.clock()
    accounts.change_role(store, "ada", tokens.Role(role), now)
    visitor = served.nobody()
    assert opened(served, enter(visitor, key), visitor) is opens
    assert visitor.ask("/console/project").status == (200 if opens else 401)


def test_registration_sign_in_and_removal_are_leaves(
    served: ConsoleBench, owner: Visitor, key: Authenticator
) -> None:
    before = len(acts(served.bench))
    assert try_in(served, key)
    owner.press(ACCOUNT, f"{ACCOUNT}/remove", token=passkeys(served)[0].digest[:12])
    found = [one.act for one in acts(served.bench)[before - 1 :]]
    wanted = [OperatorAct.TOKEN_ISSUED] * 2 + [OperatorAct.TOKEN_REVOKED]
    assert found == wanted


@pytest.mark.parametrize(
    "lies",
    [
        {"origin": "http://127.0.0.1"},
        {"challenge": b64(b"c" * 56)},
        {"type": "webauthn.get"},
        {"crossOrigin": True},
        {"flags": FLAG.UP},
        {"alg": -9},  # ES256 by its new number: nobody asked for it
        {"alg": -8},
    ],
    ids=str,
)
def test_passkey_of_another_ceremony_is_not_kept(
    served: ConsoleBench, key: Authenticator, lies: dict[str, Any]
) -> None:
    visitor = served.visitor()
    assert register(visitor, key, **lies).status in {401, 403}
    assert not passkeys(served)
    assert register(visitor, key).status == 303  # control


def test_registration_that_is_sent_again_is_refused(
    served: ConsoleBench, key: Authenticator
) -> None:
    visitor = served.visitor()
    page = visitor.ask(ACCOUNT)
    fields = page.forms()[f"{ACCOUNT}/passkey"] | key.make(asked_on(page))
    assert visitor.post(f"{ACCOUNT}/passkey", fields).status == 303
    assert visitor.post(f"{ACCOUNT}/passkey", fields).status == 403
    assert register(visitor, key).status == 400  # nor the same key anew
    assert len(passkeys(served)) == 1


def test_session_that_is_not_fresh_makes_nothing_that_lasts(
    served: ConsoleBench, key: Authenticator
) -> None:
    visitor = served.visitor()
    page = visitor.ask(ACCOUNT)
    forms = page.forms()
    fields = forms[f"{ACCOUNT}/passkey"] | key.make(asked_on(page))
    served.steady.now += FRESH_S + 1
    for path in ("passkey", "token"):
        answer = visitor.post(f"{ACCOUNT}/{path}", fields | {"days": "1"})
        assert (answer.status, "STO-E016" in answer.words) == (403, True)
    assert not {f"{ACCOUNT}/passkey", f"{ACCOUNT}/token"} & set(
        visitor.ask(ACCOUNT).forms()
    )
    assert not passkeys(served)


def test_account_has_so_many_passkeys_and_no_more(
    served: ConsoleBench, key: Authenticator
) -> None:
    visitor = served.visitor()
    made = [
        register(visitor, Authenticator(key.origin)).status
        for _ in range(sign_ins.MOST_PASSKEYS + 1)
    ]
    assert made == [303] * sign_ins.MOST_PASSKEYS + [409]


def test_account_makes_so_many_things_an_hour(
    served: ConsoleBench, key: Authenticator
) -> None:
    visitor = served.visitor()
    codes = []
    for _ in range(NEW_PER_HOUR + 1):
        served.steady.now += 10  # else forms come too fast
        codes.append(register(visitor, Authenticator(key.origin)).status)
        token = (passkeys(served) or [None])[0]
        visitor.press(
            ACCOUNT, f"{ACCOUNT}/remove", token=token.digest[:12] if token else ""
        )
    assert codes == [303] * NEW_PER_HOUR + [409]


def test_account_signs_in_so_often_a_day(
    served: ConsoleBench, owner: Visitor, key: Authenticator
) -> None:
    for _ in range(tokens.SIGN_INS_A_DAY - 1):  # the link's session is the first
        with served.bench.store.write() as connection:
            now = served.bench.clock()
            tokens.open_session(connection, served.bench.token, now)
    visitor = served.nobody()
    answer = enter(visitor, key)
    assert (answer.status, "STO-E068" in answer.words) == (429, True)
    assert served.visitor().ask(TASKS).status == 200  # by a link all the same
    assert owner.ask(TASKS).status == 200
    served.bench.clock.now += tokens.DAY_S
    assert try_in(served, key)


def test_credential_id_is_no_token(served: ConsoleBench, owner: Visitor) -> None:
    assert owner.ask(TASKS).status == 200
    with served.bench.store.read() as connection:
        row = connection.exec_driver_sql(
            "SELECT digest FROM token WHERE scope = 'Passkey'"
        ).one()
        for secret in (row.digest, sign_ins.content_digest(b"")):
            with pytest.raises(tokens.DeniedError):
                tokens.find_owner(connection, secret, served.bench.clock())
