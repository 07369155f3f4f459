"""Accounts, preferences and credit as Debian's unmodified client sees them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from stoilo.server.engines.embedded.accounts.accounts import Account
from stoilo.server.engines.embedded.accounts.preferences import (
    ProjectPreferences,
)
from stoilo.server.engines.embedded.db import schema
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from tests.support.boinc import BoincClient
from tests.support.boincpackage import BOINC
from tests.support.engine import ProjectServer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not BOINC.exists(), reason="needs boinc-client"),
]
EMAIL, PASSWORD = "real@example.org", "a long pass phrase"


class People:
    """A project without programs: a client attaches, calls and gets no work."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engine = EmbeddedEngine(folder / "engine")
        self.server = ProjectServer(self.engine)

    def account(self, email: str = EMAIL) -> Account:
        return self.engine.accounts.ensure(email, int(time.time()))

    def choose(self, **fields: object) -> None:
        chosen = ProjectPreferences(**fields, name="Ada")  # type: ignore[arg-type]  # as given
        self.engine.roster.choose(self.account().user_id, chosen)

    def shared_preferences(self) -> str:
        query = select(schema.users.c.document)
        with self.engine._database.read() as connection:
            return connection.scalar(query) or ""

    def client(self, name: str, *, strong: bool = False) -> BoincClient:
        account = self.account()
        key = account.key if strong else account.weak_key
        return BoincClient(self.folder / name, self.server.url, key)


@pytest.fixture
def people(open_folder: Path) -> Iterator[People]:
    made = People(open_folder)  # the client runs as another user
    with made.server:
        yield made
    made.engine.close()


def account_file(client: BoincClient) -> str:
    return next(client.directory.glob("account_*.xml")).read_text()


def test_client_keeps_the_preferences_and_shows_whose_it_is(people: People) -> None:
    people.choose(levels=("pure", "numeric"), require_review=True)
    with people.client("one") as client:
        client.wait_for(lambda: "<max_level>numeric<" in account_file(client))
        assert "<require_review>1</require_review>" in account_file(client)
        client.wait_for(lambda: "<user_name>Ada</user_name>" in client.state())
        people.choose(levels=())
        client.tell_project("update")
        client.wait_for(lambda: "<max_level>pure<" in account_file(client))


def test_preferences_of_one_computer_reach_the_other(people: People) -> None:
    with people.client("one", strong=True) as one, people.client("two") as two:
        for client in (one, two):
            client.wait_for_message("Scheduler request completed")
        text = (
            f"<global_preferences><source_project>{people.server.url}"
            f"</source_project><mod_time>{int(time.time())}</mod_time>"
            "<max_ncpus_pct>37</max_ncpus_pct></global_preferences>\n"
        )
        one.stop()
        one.write("global_prefs.xml", text)
        one.start()
        one.tell_project("update")
        one.wait_for(people.shared_preferences)
        two.tell_project("update")
        path = two.directory / "global_prefs.xml"
        two.wait_for(lambda: path.exists() and "37.0" in path.read_text())


def test_account_is_made_and_found_by_the_clients_own_calls(people: People) -> None:
    with people.client("one") as client:
        url = people.server.url
        made = client.command(
            "--create_account", url, "new@example.org", PASSWORD, "Eve"
        )
        found = client.command("--lookup_account", url, "new@example.org", PASSWORD)
    keys = [re.search("account key: ([0-9a-f]{32})", text) for text in (made, found)]
    account = people.account("new@example.org")
    assert [key and key[1] for key in keys] == [account.weak_key] * 2
    assert account.name == "Eve"
