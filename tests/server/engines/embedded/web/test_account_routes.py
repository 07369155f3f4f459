"""Accounts, preferences and statistics over real sockets."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import urlencode

import pytest
import urllib3
from engine_bench import EmbeddedBench

from stoilo.server.engines.embedded.accounts.passwords import password_digest
from stoilo.server.engines.embedded.accounts.preferences import (
    ProjectPreferences,
)
from stoilo.server.engines.embedded.web.app import HttpOptions
from stoilo.server.engines.embedded.web.rate_limit import CallLimits
from tests.support.engine import ProjectServer
from tests.support.server import ManualClock

EMAIL, PASSWORD = "vol@example.org", "a long pass phrase"
DIGEST = password_digest(PASSWORD, EMAIL)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    bench = EmbeddedBench(
        tmp_path_factory.mktemp("people") / "engine", ManualClock(1_800_000_000)
    )
    options = HttpOptions(calls=CallLimits(account_calls=100_000, new_accounts=100_000))
    with ProjectServer(bench.engine, options=options) as server:
        bench.url = server.url
        bench.pool = urllib3.PoolManager(retries=False)
        yield bench
        bench.pool.clear()
    bench.engine.close()


def call(world, page, **fields):
    answer = world.pool.request("GET", f"{world.url}{page}?{urlencode(fields)}")
    assert answer.status == 200
    return answer.data.decode()


def send(world, fields, **headers):
    head = {"content-type": "application/x-www-form-urlencoded", **headers}
    body = urlencode(fields, doseq=True)
    return world.pool.request(
        "POST", f"{world.url}preferences", body=body, headers=head
    )


def create(world, email=EMAIL, digest=DIGEST, name=""):
    return call(
        world,
        "create_account.php",
        email_addr=email,
        passwd_hash=digest,
        user_name=name,
    )


# ------------------------------------------------------------------ account calls


def test_client_gets_the_weak_key_only(world):
    made = create(world)
    account = world.engine.accounts.find(EMAIL, DIGEST)
    assert f"<authenticator>{account.weak_key}<" in made
    found = call(
        world, "lookup_account.php", email_addr=EMAIL.upper(), passwd_hash=DIGEST
    )
    assert found == made
    assert account.key not in made


@pytest.mark.parametrize(
    ("page", "fields", "number"),
    [
        ("create_account.php", {"email_addr": "none"}, -205),
        ("create_account.php", {"email_addr": "a@example.org"}, -206),
        (
            "create_account.php",
            {
                "email_addr": "a@example.org",
                "passwd_hash": DIGEST,
                "user_name": "<b>",
            },
            -188,
        ),
        (
            "create_account.php",
            {
                "email_addr": "a@example.org",
                "passwd_hash": password_digest("password", "a@example.org"),
            },
            -206,
        ),
        ("lookup_account.php", {f"f{n}": "1" for n in range(100)}, -112),
        ("lookup_account.php", {"email_addr": "x" * 20_000}, -112),
    ],
)
def test_bad_call_has_boincs_error_number(world, page, fields, number):
    assert f"<error_num>{number}<" in call(world, page, **fields)


def test_unknown_address_and_wrong_password_look_alike(world):
    create(world)
    known = call(world, "lookup_account.php", email_addr=EMAIL, passwd_hash="a" * 32)
    other = "nobody@example.org"
    assert known == call(
        world, "lookup_account.php", email_addr=other, passwd_hash="a" * 32
    )


def test_taken_address_is_told_no_other_way_than_a_wrong_password(world):
    create(world)
    wrong = call(world, "lookup_account.php", email_addr=EMAIL, passwd_hash="a" * 32)
    assert create(world, digest="a" * 32) == wrong


def test_name_is_kept(world):
    email = "named@example.org"
    create(world, email, password_digest(PASSWORD, email), "Ada  Lovelace ")
    account = world.engine.accounts.ensure(email, 1)
    assert account.name == "Ada Lovelace"


@pytest.mark.parametrize(
    "limits",
    [CallLimits(account_calls=2), CallLimits(new_accounts=2)],
)
def test_new_accounts_are_limited_by_address_and_altogether(tmp_path, clock, limits):
    bench = EmbeddedBench(tmp_path / "engine", clock)
    with ProjectServer(bench.engine, options=HttpOptions(calls=limits)) as server:
        bench.url, bench.pool = server.url, urllib3.PoolManager(retries=False)
        answers = [create(bench, f"a{n}@example.org") for n in range(3)]
        bench.pool.clear()
    bench.engine.close()
    assert ["<authenticator>" in answer for answer in answers] == [True, True, False]
    assert "<error_num>-183<" in answers[2]


# ------------------------------------------------------------------ preferences


@pytest.fixture
def account(world, request):
    email = f"{request.node.name[:40]}@example.org".replace("[", "").lower()
    return world.engine.accounts.ensure(re.sub(r"[^a-z0-9@.]", "", email), 1)


def log_in(world, account):
    return send(world, {"step": "login", "key": account.key})


def token_of(page):
    return unescape(re.search(rb'name="token" value="([^"]*)"', page)[1].decode())


def stored(world, account):
    return world.engine.roster.load(account.user_id)


CHOICES = {
    "step": "save",
    "level": ["pure", "numeric"],
    "require_review": "1",
    "topics": "health a.b/c",
    "name": "Ada & Co",
}
HARMLESS = CHOICES | {"name": "Ada"}


def test_choices_are_saved_and_shown_again(world, account):
    token = token_of(log_in(world, account).data)
    answer = send(world, HARMLESS | {"token": token})
    assert (answer.status, b"Saved." in answer.data) == (200, True)
    assert stored(world, account) == ProjectPreferences(
        ("pure", "numeric"),
        require_review=True,
        topics=("a.b/c", "health"),
        name="Ada",
    )
    assert b'value="numeric" checked' in answer.data
    assert b'value="tensor" checked' not in answer.data


def test_nothing_ticked_means_pure_alone(world, account):
    world.engine.accounts.ensure(account.email, 1, max_level="tensor")
    token = token_of(log_in(world, account).data)
    send(world, {"step": "save", "token": token})
    assert stored(world, account) == ProjectPreferences(("pure",))


def test_password_opens_the_page_too(world):
    create(world)
    form = {"step": "login", "email": EMAIL, "password": PASSWORD}
    assert token_of(send(world, form).data)
    assert send(world, form | {"password": "other"}).status == 403


@pytest.mark.parametrize("which", ["weak_key", "email"])
def test_nothing_but_the_strong_key_opens_it(world, account, which):
    answer = send(world, {"step": "login", "key": getattr(account, which)})
    assert answer.status == 403
    assert b'name="token"' not in answer.data


def test_key_is_in_no_page(world, account):
    page = log_in(world, account).data
    shown = page + send(world, HARMLESS | {"token": token_of(page)}).data
    assert account.key.encode() not in shown
    assert account.weak_key.encode() not in shown


@pytest.mark.parametrize("change", ["none", "cut", "other", "late", "number"])
def test_form_without_its_own_token_stores_nothing(world, account, change):
    before = stored(world, account)
    token = token_of(log_in(world, account).data)
    other = world.engine.accounts.ensure("mallory@example.org", 1)
    user, _, rest = token.partition(".")
    token = {
        "none": "",
        "cut": token[:-1],
        "other": token_of(log_in(world, other).data).replace(
            f"{other.user_id}.", f"{account.user_id}.", 1
        ),
        "late": token,
        "number": f"{int(user) + 1}.{rest}",
    }[change]
    if change == "late":
        world.clock.now += 1801
    assert send(world, HARMLESS | {"token": token}).status == 403
    assert stored(world, account) == before


def test_form_from_another_site_is_refused(world, account):
    token = token_of(log_in(world, account).data)
    form = HARMLESS | {"token": token}
    assert send(world, form, **{"sec-fetch-site": "cross-site"}).status == 400
    assert send(world, form, **{"sec-fetch-site": "same-origin"}).status == 200


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("level", "root", b"STO-E015"),
        ("topics", "a,b", b"STO-E015"),
        ("name", "<script>", b"STO-E015"),
        ("name", "x" * 61, b"STO-E015"),
        ("name", "a\u202eb", b"STO-E015"),
    ],
)
def test_unusable_choice_stores_nothing(world, account, field, value, code):
    before = stored(world, account)
    token = token_of(log_in(world, account).data)
    answer = send(world, HARMLESS | {"token": token, field: value})
    assert (answer.status, code in answer.data) == (400, True)
    assert b"<script>" not in answer.data
    assert stored(world, account) == before


def test_pages_forbid_scripts_caches_and_frames(world):
    answer = world.pool.request("GET", f"{world.url}preferences")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert b"<script" not in answer.data
    assert "set-cookie" not in answer.headers


def test_oversized_form_is_refused(world):
    assert send(world, {"step": "login", "key": "x" * 50_000}).status == 400


# ------------------------------------------------------------------ new keys


def test_new_keys_are_shown_once_and_the_old_ones_stop(world, account):
    token = token_of(log_in(world, account).data)
    page = send(world, {"step": "keys", "token": token, "sure": "1"}).data.decode()
    new = world.engine.accounts.open_by_id(account.user_id)
    assert new.key in page
    assert new.weak_key in page
    assert log_in(world, account).status == 403
    assert log_in(world, new).status == 200


@pytest.mark.parametrize("step", ["save", "keys"])
def test_page_of_before_new_keys_changes_nothing(world, account, step):
    token = token_of(log_in(world, account).data)
    new = world.engine.accounts.change_keys(account.user_id)
    before = stored(world, account)
    form = HARMLESS | {"step": step, "token": token, "sure": "1"}
    assert send(world, form).status == 403
    assert stored(world, account) == before
    assert world.engine.accounts.open_by_key(new.key) == new


@pytest.mark.parametrize(
    ("change", "status"), [({"sure": ""}, 400), ({"token": "9" * 40 + ".9.x"}, 403)]
)
def test_keys_are_not_changed_by_half_a_form(world, account, change, status):
    token = token_of(log_in(world, account).data)
    form = {"step": "keys", "token": token, "sure": "1"} | change
    assert send(world, form).status == status
    assert world.engine.accounts.open_by_key(account.key) == account
