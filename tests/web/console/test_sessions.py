"""Who is signed in, and for how long; what no link, cookie or form of others does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from starlette.requests import Request
from starlette.responses import Response

from stoilo.core.errors import DeniedError
from stoilo.server.admission import tokens
from stoilo.server.operations import access, accounts
from stoilo.web.console.sessions import IDLE_S, PAGES, SIGN_INS, Sessions
from tests.support.console import Visitor
from tests.support.serverbench import acts

if TYPE_CHECKING:
    from stoilo.server.db.records import Owner
    from tests.support.console import ConsoleBench

TASKS = "/console/"


def test_link_opens_a_session(served: ConsoleBench) -> None:
    assert "Your tasks" in served.visitor().ask(TASKS).words


def test_link_that_is_only_fetched_is_not_used_up(served: ConsoleBench) -> None:
    link = served.link()
    for _ in range(3):  # a preview, a scanner, a prefetch
        assert served.nobody().ask(f"/console/sign-in?link={link}").status == 200
    assert served.nobody().sign_in(link).ask(TASKS).status == 200


def test_link_opens_one_session_only(served: ConsoleBench) -> None:
    link, second = served.link(), served.nobody()
    served.nobody().sign_in(link)
    answer = second.press(f"/console/sign-in?link={link}", "/console/sign-in")
    assert (answer.status, "STO-R001" in answer.words) == (401, True)
    assert second.ask(TASKS).status == 401


@pytest.mark.parametrize("page", ["task/0a1b", "label/my%20map/%C3%A9", "label/"])
def test_sign_in_leads_to_the_page_that_a_link_asked_for(
    served: ConsoleBench, page: str
) -> None:
    visitor, path = served.nobody(), f"/console/{page}"
    form = visitor.ask(path).forms()["/console/sign-in"]
    answer = visitor.post("/console/sign-in", form | {"secret": served.link()})
    assert (answer.status, answer.headers["location"]) == (303, path)


@pytest.mark.parametrize("to", ["//evil.example/", "https://evil.example/", "/audit/"])
def test_sign_in_leads_nowhere_else(served: ConsoleBench, to: str) -> None:
    visitor = served.nobody()
    form = visitor.ask("/console/").forms()["/console/sign-in"]
    answer = visitor.post(
        "/console/sign-in", form | {"secret": served.link(), "to": to}
    )
    assert (answer.status, answer.headers["location"]) == (303, "/console/")


def test_link_of_another_site_asks_again_with_the_session(served: ConsoleBench) -> None:
    """A browser sends no strict cookie with another site's link, with the next it does."""
    path, nobody = "/console/task/0a1b", served.nobody()
    answer = nobody.ask(path, sec_fetch_site="cross-site")
    assert answer.headers["refresh"] == f"0; url={path}"
    assert "refresh" not in nobody.ask(path, sec_fetch_site="same-origin").headers
    assert served.visitor().ask(path, sec_fetch_site="cross-site").status == 404
    assert nobody.ask("/console/account", sec_fetch_site="cross-site").status == 401


def test_link_ends_after_its_minutes(served: ConsoleBench) -> None:
    link = served.link()
    served.bench.clock.now += tokens.LINK_S
    answer = served.nobody().press(f"/console/sign-in?link={link}", "/console/sign-in")
    assert answer.status == 401


def test_own_token_of_a_researcher_opens_a_session_and_stays(
    served: ConsoleBench,
) -> None:
    for _ in range(2):
        assert served.nobody().sign_in(served.bench.token).ask(TASKS).status == 200


@pytest.mark.parametrize("role", ["volunteer", "auditor"])
def test_token_of_another_role_opens_none(served: ConsoleBench, role: str) -> None:
    with served.bench.store.write() as connection:
        now = served.bench.clock()
        token = tokens.issue_token(connection, "eve", tokens.Role(role), now)
    answer = served.nobody().press(f"/console/sign-in?link={token}", "/console/sign-in")
    assert answer.status == 401


def test_reviewer_s_session_reads_and_decides_nothing(served: ConsoleBench) -> None:
    visitor, bench = served.reviewer(), served.bench
    token = visitor.cookies[served.console.sessions.cookie]
    with bench.store.read() as connection:
        owner = tokens.find_owner(connection, token, bench.clock())
    tokens.check_reviewer(owner, "GetReview")  # control
    for call in ("SubmitReview", "RefuseTask"):
        with pytest.raises(DeniedError, match="STO-R002"):
            tokens.check_reviewer(owner, call)


@pytest.mark.parametrize("secret", ["", "sto_x", "é" * 40, "x" * 300])
def test_secret_that_is_none_opens_none(served: ConsoleBench, secret: str) -> None:
    fields = served.nobody()
    answer = fields.press("/console/sign-in", "/console/sign-in", secret=secret)
    assert (answer.status, "STO-R001" in answer.words) == (401, True)


def test_session_is_no_token_and_no_token_is_a_session(served: ConsoleBench) -> None:
    visitor = served.nobody()
    visitor.cookies[served.console.sessions.cookie] = served.bench.token
    assert visitor.ask(TASKS).status == 401


def test_link_is_good_for_no_call(served: ConsoleBench) -> None:
    with served.bench.store.read() as connection:
        owner = tokens.find_owner(connection, served.link(), served.bench.clock())
    for call in tokens.SESSION_SCOPE.split(","):
        with pytest.raises(DeniedError, match="STO-R002"):
            tokens.check_permission(owner, call)


def test_session_nobody_uses_ends(served: ConsoleBench) -> None:
    visitor = served.visitor()
    served.steady.now += IDLE_S
    assert visitor.ask(TASKS).status == 200  # control: just in time
    served.steady.now += IDLE_S + 1
    assert visitor.ask(TASKS).status == 401
    served.steady.now -= IDLE_S
    assert visitor.ask(TASKS).status == 401  # and for good


def test_session_ends_at_last_however_often_it_is_used(served: ConsoleBench) -> None:
    visitor = served.visitor()
    served.bench.clock.now += tokens.SESSION_S - 1
    assert visitor.ask(TASKS).status == 200  # control
    served.bench.clock.now += 1
    assert visitor.ask(TASKS).status == 401


def test_who_signs_out_is_signed_out_on_the_server_too(served: ConsoleBench) -> None:
    visitor = served.visitor()
    kept = dict(visitor.cookies)
    assert visitor.press(TASKS, "/console/sign-out").status == 303
    assert not visitor.cookies
    assert Visitor(served.url, kept).ask(TASKS).status == 401


def test_revoking_an_account_s_tokens_ends_its_sessions(served: ConsoleBench) -> None:
    visitor = served.visitor()
    access.revoke(served.bench.store, "ada", "", served.bench.clock())
    assert visitor.ask(TASKS).status == 401


def find_again(sessions: Sessions, visitor: Visitor) -> Owner:
    """Return whom `sessions` take a visitor's next request for."""
    pairs = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    headers = [(b"cookie", pairs.encode())]
    return sessions.find(Request({"type": "http", "headers": headers})).owner


def test_restart_of_the_server_ends_every_session(served: ConsoleBench) -> None:
    visitor, bench = served.visitor(), served.bench
    assert find_again(served.console.sessions, visitor).name == "ada"  # control
    after = Sessions(bench.store, served.url, bench.clock, lambda: 0.0)
    with pytest.raises(DeniedError, match="STO-R001"):
        find_again(after, visitor)


def test_cookie_is_kept_from_scripts_and_other_sites(served: ConsoleBench) -> None:
    visitor = served.visitor()
    name = served.console.sessions.cookie
    text = next(one for one in visitor.seen if one.startswith(f"{name}="))
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(text.split("; "))
    assert "Secure" not in text  # plain HTTP, on this machine alone


def test_cookie_over_tls_is_bound_to_its_host(served: ConsoleBench) -> None:
    bench, answer = served.bench, Response()
    sessions = Sessions(bench.store, "https://a.example/", bench.clock, lambda: 0.0)
    sessions.keep(answer, sessions.cookie, "x")
    text = answer.headers["set-cookie"]
    assert text.startswith("__Host-stoilo=x;")
    assert {"Secure", "HttpOnly", "Path=/"} <= set(text.split("; "))


def test_no_secret_is_kept_but_as_digest(served: ConsoleBench) -> None:
    visitor, link = served.visitor(), served.link()
    stored = (served.bench.directory / "server.sqlite").read_bytes()
    stored += (served.bench.directory / "server.sqlite-wal").read_bytes()
    token = visitor.cookies[served.console.sessions.cookie]
    assert token.encode() not in stored
    assert link.encode() not in stored
    assert tokens.token_digest(token).encode() in stored  # control


def test_address_that_tries_too_often_is_told_to_wait(served: ConsoleBench) -> None:
    visitor, link = served.nobody(), served.link()
    form = visitor.ask("/console/sign-in").forms()["/console/sign-in"]
    for _ in range(SIGN_INS):
        assert visitor.post("/console/sign-in", form | {"secret": "no"}).status == 401
        form = visitor.ask("/console/sign-in").forms()["/console/sign-in"]
    answer = visitor.post("/console/sign-in", form | {"secret": link})
    assert (answer.status, "STO-E068" in answer.words) == (429, True)
    served.steady.now += 60
    assert served.nobody().sign_in(link).ask(TASKS).status == 200


def test_account_that_asks_too_often_is_told_to_wait(served: ConsoleBench) -> None:
    visitor, other = served.visitor(), served.visitor("bob")
    answers = [visitor.ask(TASKS).status for _ in range(PAGES + 1)]
    assert answers == [200] * PAGES + [429]
    assert other.ask(TASKS).status == 200


def test_acts_are_noted_for_the_log_without_a_name(served: ConsoleBench) -> None:
    before = len(acts(served.bench))
    served.visitor()
    noted = [one.act.value for one in acts(served.bench)[before:]]
    assert noted == ["token_issued", "token_revoked", "token_issued"]
    assert not [one for one in acts(served.bench) if "ada" in repr(one)]


def test_session_of_a_suspended_account_looks_but_does_not_submit(
    served: ConsoleBench,
) -> None:
    visitor, bench = served.visitor(), served.bench
    accounts.suspend(bench.store, "ada", "", bench.clock())
    assert "suspended" in visitor.ask(TASKS).words
    form = visitor.ask(TASKS).forms()["/console/sign-out"]
    answer = visitor.post("/console/task/x/resubmit", form | {"key": "k" * 20})
    assert (answer.status, "STO-R009" in answer.words) == (403, True)
