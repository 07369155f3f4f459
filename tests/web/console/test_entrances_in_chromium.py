"""Chromium with a virtual authenticator: register, sign out, sign in, remove, be refused.

And a provider on another site, from which a strict cookie does not come back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoilo.server.admission import tokens
from tests.support.provider import CLIENT, SECRET, serve_provider
from tests.support.serverbench import make_bench

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.support.console import ConsoleBench, Door
    from tests.web.conftest import Watched

AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def sign_in(page: Page, url: str) -> None:
    page.goto(f"{url}console/sign-in")
    page.get_by_role("button", name="Sign in with a passkey").click()


def test_passkey_is_made_used_removed_and_refused(
    served: ConsoleBench, open_page: Callable[[], Watched]
) -> None:
    watched, url = open_page(), served.url.replace("127.0.0.1", "localhost")
    page = watched.page
    browser = page.context.new_cdp_session(page)
    browser.send("WebAuthn.enable")
    browser.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})
    page.goto(f"{url}console/sign-in?link={served.link()}")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_role("link", name="Account", exact=True).click()
    page.get_by_label("Your name for it").fill("blue key")
    page.get_by_role("button", name="Make a passkey").click()
    page.get_by_text("The passkey is kept").wait_for()
    page.get_by_role("button", name="Sign out ada").click()
    sign_in(page, url)
    page.get_by_role("heading", name="Your tasks").wait_for()
    page.goto(f"{url}console/account")
    page.get_by_role("button", name="Remove blue key").click()
    page.get_by_text("You have none: each sign-in").wait_for()
    page.get_by_role("button", name="Sign out ada").click()
    sign_in(page, url)
    page.get_by_text("This passkey is not accepted").wait_for()
    # A refusal's status is all that the browser may say: no policy was broken
    assert all("status of 401" in one for one in watched.complaints)


def test_page_says_where_passkeys_work(
    served: ConsoleBench, open_page: Callable[[], Watched]
) -> None:
    page = open_page().page
    page.goto(f"{served.url}console/sign-in")
    page.get_by_text(
        "Passkeys need a browser with scripts, at http://localhost"
    ).wait_for()
    assert not page.get_by_role("button", name="Sign in with a passkey").is_visible()


def test_person_who_comes_back_from_another_site_is_signed_in(
    door: Door, tmp_path: Path, open_page: Callable[[], Watched]
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    bench, watched = make_bench(tmp_path), open_page()
    with bench.store.write() as connection:
        tokens.issue_token(connection, "u-1", tokens.Role.RESEARCHER, bench.clock())
    with serve_provider() as provider:
        provider.url = provider.url.replace("127.0.0.1", "localhost")
        provider.who, provider.now = {"sub": "u-1"}, bench.clock()
        settings = {"oidc_client": CLIENT, "oidc_claim": "sub"}
        settings |= {"oidc_secret_file": str(tmp_path / "secret")}
        served = door.show(bench, oidc_issuer=provider.url, **settings)
        watched.page.goto(f"{served.url}console/sign-in")
        watched.page.get_by_role("link", name="Sign in at localhost").click()
        watched.page.get_by_role("link", name="Yes, that is me").click()
        watched.page.get_by_role("button", name="Sign out u-1").wait_for()
    assert not any("Policy" in one for one in watched.complaints)
