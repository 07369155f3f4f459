"""Every HTTP route of a running server, tried by nobody, by another account, by its owner.

The routes are those that the server's own tables hold while it serves: one without a stated
expectation fails, and so does an expectation without a route.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPMessage
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.server.admission import tokens
from stoilo.server.db.store import Store
from stoilo.server.engines.embedded.accounts.passwords import password_digest
from stoilo.testing.served import run_stoilo
from stoilo.web.pages import load_assets
from tests.support.attackers import HeldCopy, take_copy
from tests.support.console import Answer, Visitor
from tests.support.listedserver import ListedDeployment, list_routes
from tests.support.wire import BoincPeer, RawClient

pytestmark = pytest.mark.slow

SECRET: Final = "beware of the leopard"
SOURCE: Final = f"def task(kwargs):\n    # {SECRET}\n    return 1\n".encode()
SHARED: Final = encode(b"weights" * 50_000)  # large enough for a file of its own
EMAIL: Final = "owner@example.org"
GUESS: Final = "0" * 48
BLOB: Final = content_digest(SHARED)
START: Final = 1_700_000_000
TASK: Final = "/console/task/{task_id}"
VOLUNTEERS: Final = "/console/volunteer"
OF_SOURCE: Final = {f"GET {TASK}", f"GET {TASK}/source.py"}
WHO: Final = ("nobody", "another", "owner")


@dataclass
class Person:
    """What one of the three can show."""

    visitor: Visitor  # of the console, signed in or not
    operator: Visitor  # the same, or an operator's session
    peer: BoincPeer  # with a volunteer's key, or none
    secret: str = ""  # that opens the console
    bearer: dict[str, str] = field(default_factory=dict)  # tokens by what they open


@dataclass
class World:
    """A running server, a task whose source is private, and a copy of it on a host."""

    served: ListedDeployment
    people: dict[str, Person]
    places: dict[str, str]  # a route's path as one that is there
    copy: HeldCopy | None = None
    calls: Iterator[int] = field(default_factory=count)

    @property
    def url(self) -> str:
        return self.people["nobody"].visitor.url

    def call(
        self, visitor: Visitor, route: str, body: Any = None, **more: str
    ) -> Answer:
        """Call a route, each time from another address: how often is no question here."""
        method, _, path = route.partition(" ")
        path = self.places.get(path, path)
        more["x_forwarded_for"] = f"127.1.0.{next(self.calls)}"
        if method == "GET":
            query = f"?{urlencode(body)}" if body else ""
            return visitor.ask(path + query, **more)
        return visitor.post(path, body or {}, **more)


Ask = Callable[[World, str, str], Answer]  # world, who, route


def plainly(world: World, who: str, route: str) -> Answer:
    """Ask as whoever has a session in the console, or has none."""
    return world.call(world.people[who].visitor, route)


@dataclass(frozen=True)
class Stated:
    """What each is answered: a status, and words that stand in the answer."""

    nobody: str
    another: str
    owner: str
    ask: Ask = plainly


def public(answer: str) -> Stated:
    return Stated(answer, answer, answer)


def with_form(world: World, who: str, route: str) -> Answer:
    """Send a form as a page of the person's own would; nobody's is made up."""
    visitor = world.people[who].visitor
    form = visitor.ask("/console/").forms().get("/console/sign-out")
    return world.call(visitor, route, (form or {"form": GUESS}) | {"key": "k" * 24})


def as_operator(world: World, who: str, route: str) -> Answer:
    return world.call(world.people[who].operator, route)


def to_sign_in(world: World, who: str, route: str) -> Answer:
    """Use the form of the sign-in page; nobody has not fetched one."""
    visitor, fields = Visitor(world.url), {"secret": world.people[who].secret}
    if who != "nobody":
        fields |= visitor.ask("/console/sign-in").forms()["/console/sign-in"]
    return world.call(visitor, route, fields)


def with_bearer(what: str) -> Ask:
    def ask(world: World, who: str, route: str) -> Answer:
        token = world.people[who].bearer.get(what)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return world.call(Visitor(world.url), route, **headers)

    return ask


def by_address(world: World, who: str, route: str) -> Answer:
    """Ask for a copy's file: its address is the permission, so others have to guess."""
    return plainly(world, who, route if who == "owner" else f"GET /download/{GUESS}")


def upload(world: World, who: str, route: str) -> Answer:
    """Upload a copy's result, likewise."""
    del route
    place = world.copy.path if who == "owner" else f"/upload/{GUESS}"
    said = world.people[who].peer.upload(place, world.copy.upload, b"result")
    return Answer(said.status, HTTPMessage(), said.body)


def report(world: World, who: str, route: str) -> Answer:
    """Report the owner's copy; the answer is what the project then thinks of it."""
    del route
    said = world.people[who].peer.report(world.copy.name)
    file = world.served.data / "engine" / "engine.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as found:
        query = "select state from engine_result where name = ?"
        (state,) = found.execute(query, [world.copy.name]).fetchone()
    return Answer(said.status, HTTPMessage(), state.encode())


def with_password(world: World, who: str, route: str) -> Answer:
    """Give the owner's address with the password that each knows."""
    digest = password_digest(f"{who}'s word", EMAIL)
    fields = {} if who == "nobody" else {"email_addr": EMAIL, "passwd_hash": digest}
    return world.call(world.people[who].visitor, route, fields)


def to_preferences(world: World, who: str, route: str) -> Answer:
    fields = {"step": "login", "email": EMAIL, "password": f"{who}'s word"}
    return world.call(world.people[who].visitor, route, fields)


def as_volunteer(world: World, who: str, route: str) -> Answer:
    """Ask, or send a form, with the session that each one's password opens."""
    visitor, page = Visitor(world.url, home=VOLUNTEERS), f"{VOLUNTEERS}/sign-in"
    if who != "nobody":
        form = visitor.ask(page).forms()[page]
        known = {"email": EMAIL, "password": f"{who}'s word"}
        world.call(visitor, f"POST {page}", form | known)
    if route.startswith("GET"):
        return world.call(visitor, route)
    forms = visitor.ask(VOLUNTEERS).forms()
    form = forms.get(route.removeprefix("POST "), {"form": GUESS})
    sure = EMAIL if route.endswith("delete") else "1"
    return world.call(visitor, route, form | {"sure": sure})


def to_volunteers(world: World, who: str, route: str) -> Answer:
    visitor, fields = Visitor(world.url), {"email": EMAIL, "password": f"{who}'s word"}
    if who != "nobody":
        fields |= visitor.ask(f"{VOLUNTEERS}/sign-in").forms()[f"{VOLUNTEERS}/sign-in"]
        fields |= {"email": EMAIL, "password": f"{who}'s word"}
    return world.call(visitor, route, fields)


OF_TASK = Stated("401 Sign in", "404 STO-R003", "200")
OF_FORM = Stated("401 Sign in", "404 STO-R003", "303", with_form)
OF_ACCOUNT = Stated("401 Sign in", "200", "200")  # each sees what is his own
OF_LASTING = Stated("401 Sign in", *["401 STO-R001"] * 2, with_form)
OF_REVIEWER = Stated("401 Sign in", *["403 STO-R002"] * 2)  # neither is one
OF_VOLUNTEER = Stated(*["401 Sign in"] * 2, "303", as_volunteer)
OF_OPERATOR = Stated("401 Sign in", "403 STO-R002", "200", as_operator)
PASSWORD = Stated("200 <error_num>", "200 <error_num>", "200 <auth", with_password)
WATCHED = Stated('200 "ready"', '200 "ready"', "200 checks", with_bearer("metrics"))
STATED = {
    "GET /": public("200 fingerprint"),
    "GET /get_project_config.php": public("200 <project_config>"),
    "GET /download/{token}": Stated(*["404 STO-E014"] * 2, "200", by_address),
    "POST /upload/{token}": Stated(*["200 <status>-1"] * 2, "200 <status>0", upload),
    "POST /sched": Stated(*["200 in_progress"] * 2, "200 over", report),
    "GET /mirror/file/{digest}": Stated(*["404"] * 2, "200", with_bearer("mirrors")),
    "GET /lookup_account.php": PASSWORD,
    "POST /lookup_account.php": PASSWORD,
    "GET /create_account.php": PASSWORD,  # an account that is there is looked up
    "POST /create_account.php": PASSWORD,
    "GET /preferences": public("200 Account key"),
    "POST /preferences": Stated(*["403 STO-E016"] * 2, f"200 {EMAIL}", to_preferences),
    "GET /audit/": public("200 Audit log of"),
    "GET /audit/search": public("200 Search"),
    "GET /audit/entry/{index}": public("200 Entry"),
    "GET /audit/entry/{index}.tlog-proof": public("200 c2sp.org/tlog-proof"),
    "GET /audit/task/{name}": public("200 Not published"),
    "GET /audit/static/{name}": public("200 :root"),
    "GET /audit/log/{name:path}": public("200 stoilo"),
    "GET /audit/records/tile/{number}": public("200"),
    "GET /audit/records/{digest}": public("200"),
    "GET /audit/source/{digest}": public("404"),  # of a source that is private
    "GET /audit/seen/{number}": public("404"),  # no executor has sent one
    "GET /release/index.json": public("200"),
    "GET /release/status.json": public("200"),
    "GET /release/{name:path}": public("200"),
    "GET /healthz": public("200 alive"),
    "GET /readyz": WATCHED,
    "GET /metrics": Stated("404", "404", "200 stoilo_", with_bearer("metrics")),
    "GET /console/sign-in": public("200 Sign in"),
    "POST /console/sign-in": Stated("403 STO-E016", "401 STO-R001", "303", to_sign_in),
    "POST /console/sign-in/passkey": Stated(
        "403 STO-E016", *["401 STO-R001"] * 2, to_sign_in
    ),
    "GET /console/": OF_ACCOUNT,
    "GET /console/labels": OF_ACCOUNT,
    "GET /console/label/{name:path}": OF_ACCOUNT,
    f"GET {TASK}": OF_TASK,
    f"GET {TASK}/source.py": OF_TASK,
    f"GET {TASK}/result/{{name}}": Stated("401 Sign in", "404 STO-R003", "404"),
    f"POST {TASK}/resubmit": OF_FORM,
    f"POST {TASK}/cancel": OF_FORM,
    "GET /console/project": OF_OPERATOR,
    "GET /console/hosts": OF_OPERATOR,
    "GET /console/traffic": OF_OPERATOR,
    "GET /console/accounts": OF_OPERATOR,
    "GET /console/settings": OF_OPERATOR,
    "GET /console/account": OF_ACCOUNT,
    "POST /console/account/passkey": OF_LASTING,
    "POST /console/account/token": Stated(
        "401 Sign in", *["400 STO-R010"] * 2, with_form
    ),
    "POST /console/account/remove": Stated(
        "401 Sign in", *["404 STO-R003"] * 2, with_form
    ),
    "GET /console/reviews": OF_REVIEWER,
    "GET /console/review/{task_id}": OF_REVIEWER,
    "GET /console/review/{task_id}/folder.zip": OF_REVIEWER,
    "GET /console/volunteer": Stated(*["401 Sign in"] * 2, "200", as_volunteer),
    "GET /console/volunteer/sign-in": public("200 Sign in"),
    "POST /console/volunteer/sign-in": Stated(
        "403 STO-E016", "403 STO-E016", "303", to_volunteers
    ),
    "POST /console/volunteer/sign-out": OF_VOLUNTEER,
    "POST /console/volunteer/leave": OF_VOLUNTEER,
    "POST /console/volunteer/delete": OF_VOLUNTEER,
    # at last: each ends his own session, and nobody's is no session
    "POST /console/sign-out": Stated("401 Sign in", "303", "303", with_form),
}
AT_WATCH = {"GET /healthz": "alive", "GET /readyz": "checks", "GET /metrics": "stoilo_"}
"""On the operator's own address of the loopback nobody is asked for anything."""


def serve(folder: Path, environ: pytest.MonkeyPatch) -> ListedDeployment:
    environ.setenv("STOILO_SERVER_WATCH", "127.0.0.1:0")
    environ.setenv("STOILO_SERVER_TRUSTED_PROXY", "127.0.0.1")
    return ListedDeployment(folder / "data")


def find_places(client: RawClient, task: str, url: str) -> dict[str, str]:
    """Return a path that is there for every route that has parts."""
    index = client.poll(task).log_index
    page = Visitor(url).ask("/audit/entry/0").text
    (record,) = set(re.findall(r"/audit/records/([0-9a-f]{64})", page))
    task_of, source = f"/console/task/{task}", content_digest(SOURCE)
    return {
        "/mirror/file/{digest}": f"/mirror/file/{BLOB}",
        "/audit/entry/{index}": f"/audit/entry/{index}",
        "/audit/entry/{index}.tlog-proof": f"/audit/entry/{index}.tlog-proof",
        "/audit/task/{name}": f"/audit/task/{task}",
        "/audit/static/{name}": f"/audit/static/{load_assets()['audit.css'].name}",
        "/audit/log/{name:path}": "/audit/log/checkpoint",
        "/audit/records/tile/{number}": "/audit/records/tile/0",
        "/audit/records/{digest}": f"/audit/records/{record}",
        "/audit/source/{digest}": f"/audit/source/{source}",
        "/audit/seen/{number}": "/audit/seen/0",
        "/release/{name:path}": "/release/root.json",
        "/console/label/{name:path}": "/console/label/a%20label",
        "/console/review/{task_id}": f"/console/review/{task}",
        "/console/review/{task_id}/folder.zip": f"/console/review/{task}/folder.zip",
        TASK: task_of,
        f"{TASK}/source.py": f"{task_of}/source.py",
        f"{TASK}/result/{{name}}": f"{task_of}/result/value.json",
        f"{TASK}/cancel": f"{task_of}/cancel",
        f"{TASK}/resubmit": f"{task_of}/resubmit",
    }


def make_people(served: ListedDeployment, url: str, token: str) -> dict[str, Person]:
    """Return the three: without anything, with accounts of their own, with the keys."""
    store = Store(f"sqlite:///{served.data / 'server.sqlite'}")
    with store.write() as connection:
        role, life = tokens.Role.RESEARCHER, {"lifetime_s": 10**9}
        stranger = tokens.issue_token(connection, "eve", role, START, **life)
        link = tokens.issue_link(
            connection, "olga", tokens.Role.OPERATOR, int(time.time())
        )
    store.close()
    for_what = ("mirrors", "metrics")
    data = ("--data", str(served.data))
    keys = {one: run_stoilo("account", "add", "--for", one, *data) for one in for_what}
    eve, nobody = Visitor(url).sign_in(stranger), Visitor(url)
    peers = [BoincPeer(url, served.account(f"{one}@x.example")) for one in ("a", "b")]
    return {
        "nobody": Person(nobody, nobody, BoincPeer(url, "0" * 32)),
        "another": Person(eve, eve, peers[0], "sto_no", dict.fromkeys(keys, stranger)),
        "owner": Person(
            Visitor(url).sign_in(token),
            Visitor(url).sign_in(link),
            peers[1],
            token,
            {one: text.strip() for one, text in keys.items()},
        ),
    }


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, wait_until: Callable[..., Any]
) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as environ:
        served = serve(tmp_path_factory.mktemp("routes"), environ)
        with served, RawClient(served.data / "connection.json") as client:
            url, token = served.line.http, served.line.token
            assert client.upload(BLOB, len(SHARED), SHARED).status == "OK"
            task = client.submit(task_module=SOURCE, blobs=[BLOB], label="a label")
            people = make_people(served, url, token)
            with_password(World(served, people, {}), "owner", "GET /create_account.php")
            copy = wait_until(lambda: take_copy(people["owner"].peer))
            places = find_places(client, task, url) | {
                "/download/{token}": copy.download
            }
            yield World(served, people, places, copy)


def test_every_route_that_is_served_is_stated_here(world: World) -> None:
    assert world.served.routes() == [set(STATED), set(AT_WATCH)]


def test_table_of_a_server_is_read_as_it_is() -> None:
    app = Starlette(routes=[Route("/x", lambda _: None), Mount("/y", Starlette())])
    assert list_routes(app) == ["GET /x", "? /y"]  # control: neither is stated


def check(stated: str, answer: Answer, told: object) -> None:
    status, _, words = stated.partition(" ")
    found = (str(answer.status), words.encode() in answer.body)
    assert found == (status, True), (told, answer)


@pytest.mark.parametrize("route", STATED)
def test_each_is_answered_as_stated(world: World, route: str) -> None:
    stated = STATED[route]
    for who in WHO:
        answer = stated.ask(world, who, route)
        check(getattr(stated, who), answer, (route, who))
        shown = SECRET.encode() in answer.body
        assert shown == (who == "owner" and route in OF_SOURCE), (route, who)


@pytest.mark.parametrize("route", AT_WATCH)
def test_operator_s_own_address_asks_for_nothing(world: World, route: str) -> None:
    watch = (world.served.data / "run" / "watch").read_text().strip()
    check(f"200 {AT_WATCH[route]}", Visitor(watch).ask(route.split()[1]), route)
