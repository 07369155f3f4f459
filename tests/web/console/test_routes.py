"""Every route of the table, as its owner, as somebody else, as nobody, and with bad forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import pytest
from sqlalchemy import select

from stoilo.core.codec.skeleton import encode
from stoilo.core.digests import content_digest
from stoilo.server.admission import tokens
from stoilo.server.db import schema
from stoilo.web.console.sessions import FORM_BYTES, FORM_FIELDS, FORMS
from tests.support.console import Answer, ConsoleBench, Visitor, run
from tests.support.server import make_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoilo.web.console.routes import Page

SECRET = "beware of the leopard"
TASK = f"def task(kwargs):\n    # {SECRET}\n    return kwargs['x'] + 1\n".encode()
KEY = "k" * 24
# The one file of ours that a page has for passkeys
FILE = re.compile(r'<script src="/audit/static/[a-z.0-9]+" defer></script>')
SCRIPTS = ["script-src 'self'", "connect-src 'self'", "trusted-types default"]
TABLES = (schema.task, schema.attempt, schema.outcome)
ROUTES = [
    ("/console/", "GET"),
    ("/console/labels", "GET"),
    ("/console/label/{name:path}", "GET"),
    ("/console/task/{task_id}", "GET"),
    ("/console/task/{task_id}/source.py", "GET"),
    ("/console/task/{task_id}/result/{name}", "GET"),
    ("/console/task/{task_id}/cancel", "POST"),
    ("/console/task/{task_id}/resubmit", "POST"),
    ("/console/project", "GET"),
    ("/console/hosts", "GET"),
    ("/console/traffic", "GET"),
    ("/console/accounts", "GET"),
    ("/console/settings", "GET"),
    ("/console/account", "GET"),
    ("/console/account/passkey", "POST"),
    ("/console/account/token", "POST"),
    ("/console/account/remove", "POST"),
    ("/console/reviews", "GET"),
    ("/console/review/{task_id}", "GET"),
    ("/console/review/{task_id}/folder.zip", "GET"),
    ("/console/volunteer", "GET"),
    ("/console/volunteer/leave", "POST"),
    ("/console/volunteer/delete", "POST"),
    ("/console/volunteer/sign-out", "POST"),
    ("/console/sign-out", "POST"),
]
SCRIPTED = "/console/account"  # one file of ours; so has the sign-in page
LIVE = {"/console/labels", "/console/label/{name:path}", "/console/task/{task_id}"}

OWNED = [one for one in ROUTES if one[0].startswith("/console/task/")]
OF_OPERATORS = ROUTES[8:13]
OF_REVIEWERS = ROUTES[17:20]
OF_VOLUNTEERS = ROUTES[20:24]
ROLES = {path: "researcher" for path, _ in ROUTES}
ROLES |= {path: "operator" for path, _ in OF_OPERATORS}
ROLES |= {path: "reviewer" for path, _ in OF_REVIEWERS}
ROLES |= {path: "volunteer" for path, _ in OF_VOLUNTEERS}
KINDS = sorted(set(ROLES.values()))
FORMS_OF = [path for path, how in ROUTES if how == "POST"]
# Beside a stamp these want what `test_passkeys` and `test_account` make
OWN_FIELDS = {
    "/console/account/passkey": 401,
    "/console/account/token": 400,
    "/console/account/remove": 404,
}


@dataclass
class Stage:
    """A console with two tasks of an account: one that succeeded, one that is open."""

    served: ConsoleBench
    name: str  # of the account
    done: str
    open: str
    waits: str  # for a review

    def owner(self, role: str = "researcher") -> Visitor:
        return self.visitor(self.name, role)

    def other(self, role: str = "researcher") -> Visitor:
        return self.visitor(f"eve-of-{self.name}", role)

    def visitor(self, name: str, role: str) -> Visitor:
        if role == "volunteer":
            return self.served.volunteer(f"{name}@example.org")
        if role == "reviewer":
            return self.served.reviewer(f"{name} who reviews")
        return self.served.visitor(name, role)

    def rows(self) -> list[object]:
        """Return all that a page could change of tasks and volunteers."""
        roster = self.served.console.volunteers.roster
        with self.served.bench.store.read() as connection:
            tasks = [connection.execute(select(one)).all() for one in TABLES]
        return [*tasks, *roster.list_accounts()]

    def path(self, path: str) -> str:
        task = self.open if path.endswith("cancel") else self.done
        task = self.waits if "/review/" in path else task
        path = path.replace("{name:path}", quote(SECRET))
        return path.format(task_id=task, name="value.json")

    def fetch(self, visitor: Visitor, path: str, method: str) -> Answer:
        """Ask for a route as a browser would, with a good form where it takes one."""
        if method == "GET":
            return visitor.ask(self.path(path))
        return visitor.post(self.path(path), self.form(visitor, path))

    def form(self, visitor: Visitor, path: str = "") -> dict[str, str]:
        """Return the fields of any of the visitor's own forms; nobody's are made up."""
        found = visitor.ask(visitor.home).forms().items()
        fields = dict(next((f for to, f in found if to.endswith("sign-out")), ()))
        sure = f"{self.name}@example.org" if path.endswith("delete") else "1"
        return {"form": "0" * 64} | fields | {"key": KEY, "sure": sure}


@pytest.fixture
def stage(shared: ConsoleBench, request: pytest.FixtureRequest) -> Stage:
    bench, account = shared.bench, content_digest(request.node.name.encode())[:16]
    with bench.store.write() as connection:
        role, now = tokens.Role.RESEARCHER, bench.clock()
        bench.token = tokens.issue_token(connection, account, role, now)
    fields = {"task_module": TASK, "label": f"{SECRET} 1"}
    name, statement = run(bench.issued("done", **fields))
    frame = {"status": "ok", "value": encode({"answer": 42})}
    files = [make_result(f"{name}_{n}", statement, frame) for n in (0, 1)]
    bench.engine.deliver(name, files)
    opened, _ = run(bench.issued("open", **fields))
    waits = run(bench.submit("waits", level="numeric", **fields))
    bench.server.pipeline.run_once()
    return Stage(shared, account, name[:-2], opened[:-2], waits)


def test_table_of_this_test_is_the_console_s(shared: ConsoleBench) -> None:
    pages: tuple[Page, ...] = shared.console.pages
    assert [(one.path, one.method) for one in pages] == ROUTES
    signing = [
        ("/console/sign-in", {"GET", "HEAD"}),
        ("/console/sign-in", {"POST"}),
        ("/console/sign-in/passkey", {"POST"}),
        ("/console/volunteer/sign-in", {"POST"}),
        ("/console/volunteer/sign-in", {"GET", "HEAD"}),
    ]
    found = [(one.path, one.methods) for one in shared.console.routes()]
    assert (found[:5], len(found) - 5) == (signing, len(ROUTES))


def good_status(path: str, method: str = "POST") -> int:
    return 200 if method == "GET" else OWN_FIELDS.get(path, 303)


@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_owner_gets_every_page(stage: Stage, path: str, method: str) -> None:
    owner = stage.owner(ROLES[path])
    answer = stage.fetch(owner, path, method)
    assert answer.status == good_status(path, method), answer.words


@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_nobody_gets_the_sign_in_page_alone(
    stage: Stage, path: str, method: str
) -> None:
    before = stage.rows()
    answer = stage.fetch(stage.served.nobody(), path, method)
    assert (answer.status, "Sign in" in answer.words) == (401, True)
    assert SECRET not in answer.text
    assert stage.rows() == before


@pytest.mark.parametrize("role", ["researcher", "operator"])
@pytest.mark.parametrize(("path", "method"), OWNED)
def test_task_of_another_account_is_not_found(
    stage: Stage, path: str, method: str, role: str
) -> None:
    before, other = stage.rows(), stage.other(role)
    answer = stage.fetch(other, path, method)
    assert (answer.status, "STO-R003" in answer.words) == (404, True)
    known = stage.path(path).split("/")[3]
    assert (SECRET in answer.text, known in answer.text) == (False, False)
    assert stage.rows() == before


@pytest.mark.parametrize(("path", "method"), OWNED)
def test_task_of_another_and_none_at_all_are_told_the_same(
    stage: Stage, path: str, method: str
) -> None:
    other = stage.other()
    theirs = stage.fetch(other, path, method)
    nowhere = Stage(stage.served, "", *["0" * 32] * 3)
    assert nowhere.fetch(other, path, method).words == theirs.words


@pytest.mark.parametrize("path", ["/console/", "/console/labels"])
def test_lists_hold_nothing_of_another_account(stage: Stage, path: str) -> None:
    other, owner = stage.other(), stage.owner()
    assert SECRET not in other.ask(path).text
    assert SECRET in owner.ask(path).text  # control


@pytest.mark.parametrize(("path", "method"), OF_OPERATORS)
def test_researcher_sees_no_page_of_operators(
    stage: Stage, path: str, method: str
) -> None:
    answer = stage.fetch(stage.owner(), path, method)
    assert (answer.status, "STO-R002" in answer.words) == (403, True)
    assert path not in answer.text  # nor a link to one


def is_closed(answer: Answer, path: str, role: str) -> bool:
    """Say whether a page was kept from somebody of a role that it is not for."""
    if "volunteer" in (role, ROLES[path]):
        return (answer.status, "sign in" in answer.words.lower()) == (401, True)
    if path == "/console/":
        return answer.headers["location"] == "/console/reviews"
    return (answer.status, "STO-R002" in answer.words) == (403, True)


@pytest.mark.parametrize("role", KINDS)
def test_pages_of_another_kind_are_closed(stage: Stage, role: str) -> None:
    before, visitor = stage.rows(), stage.owner(role)
    open_to = {role, "researcher"} if role == "operator" else {role}
    for path, method in ROUTES[:-1]:  # all but the sign-out of everybody
        has_account = path.startswith("/console/account") and role != "volunteer"
        if ROLES[path] in open_to or has_account:
            continue
        answer = stage.fetch(visitor, path, method)
        assert is_closed(answer, path, role), (path, answer.words)
        assert SECRET not in answer.text
    after = stage.rows()
    assert after[: len(before)] == before  # a volunteer's account may be new


@pytest.mark.parametrize("path", [path for path, _ in OF_REVIEWERS[1:]])
def test_reviewer_finds_no_task_that_needs_no_review(stage: Stage, path: str) -> None:
    reviewer = stage.owner("reviewer")
    for task in (stage.done, stage.open, "0" * 32):
        answer = reviewer.ask(path.format(task_id=task))
        assert (answer.status, "STO-R027" in answer.words) == (404, True)
        assert (SECRET in answer.text, task in answer.text) == (False, False)


@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_every_answer_is_strict_and_not_kept(
    stage: Stage, path: str, method: str
) -> None:
    known, nobody = stage.owner(ROLES[path]), stage.served.nobody()
    own = SCRIPTS if path in LIVE else SCRIPTS[: path == SCRIPTED]
    door = [] if path in dict(OF_VOLUNTEERS) else SCRIPTS[:1]  # each has a sign-in page
    for visitor, scripts in ((known, own), (nobody, door)):
        headers = stage.fetch(visitor, path, method).headers
        policy = headers["content-security-policy"]
        assert ("default-src 'none'" in policy, "unsafe" in policy) == (True, False)
        allowed = r"(?:script-src|connect-src|trusted-types )[^;]*"
        assert re.findall(allowed, policy) == scripts
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "same-origin"


@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_page_has_no_inline_script_or_style(
    stage: Stage, path: str, method: str
) -> None:
    body = stage.fetch(stage.owner(ROLES[path]), path, method).body
    text = body.decode("latin-1")  # files to download are no text
    own = r'<script src="/audit/static/(live|htmx)\.[0-9a-f]{16}\.js" defer></script>'
    assert len(re.findall(own, text)) == (2 if path in LIVE else 0)
    text = re.sub(own, "", text)
    if path == SCRIPTED:
        text = FILE.sub("", text, count=1)
    assert not re.search(r"<script|\sstyle=|\son[a-z]+=\"|http-equiv", text)


# -- forms -----------------------------------------------------------------------------

Bad = tuple[int, str]
"""The status and the code that a bad form is answered with."""


def _encoded(fields: dict[str, str], **more: str) -> bytes:
    return urlencode(fields | more).encode()


BODIES: dict[str, tuple[Callable[[dict[str, str]], bytes], Bad]] = {
    "without its stamp": (lambda f: _encoded({"key": f["key"]}), (403, "STO-E016")),
    "with another's": (lambda f: _encoded(f, form="f" * 64), (403, "STO-E016")),
    "no ASCII stamp": (lambda f: _encoded(f, form="é" * 64), (403, "STO-E016")),
    "over-long": (lambda f: _encoded(f, key="k" * FORM_BYTES), (413, "STO-E012")),
    "too many": (
        lambda f: _encoded(f, **{f"n{n}": "" for n in range(FORM_FIELDS)}),
        (400, "STO-R010"),
    ),
    "not UTF-8": (lambda f: _encoded(f) + b"&x=%ff%fe", (400, "STO-R010")),
    "raw bytes": (lambda f: _encoded(f) + b"&x=\xff", (400, "STO-R010")),
    "twice": (lambda f: _encoded(f) + b"&form=x", (400, "STO-R010")),
    "control": (lambda f: _encoded(f, x="\x00\u202e"), (400, "STO-R010")),
    "no pairs": (lambda _: b"{}", (400, "STO-R010")),
}
FROM: dict[str, tuple[dict[str, str], Bad]] = {
    "another site": ({"origin": "https://evil.example"}, (403, "STO-E016")),
    "a hidden one": ({"origin": "null"}, (403, "STO-E016")),
    "one that a browser names": ({"sec_fetch_site": "same-site"}, (403, "STO-E016")),
    "no form": ({"content_type": "text/plain"}, (400, "STO-R010")),
    "a file's": (
        {"content_type": "multipart/form-data; boundary=x"},
        (400, "STO-R010"),
    ),
}


def check_refused(visitor: Visitor, answer: Answer, bad: Bad) -> None:
    assert (answer.status, bad[1] in answer.words) == (bad[0], True), answer.words
    assert visitor.ask(visitor.home).status == 200  # still signed in


@pytest.mark.parametrize("what", BODIES)
@pytest.mark.parametrize("path", FORMS_OF)
def test_bad_form_is_refused_and_changes_nothing(
    stage: Stage, path: str, what: str
) -> None:
    visitor, (make, bad) = stage.owner(ROLES[path]), BODIES[what]
    before, form = stage.rows(), stage.form(visitor, path)
    answer = visitor.post(stage.path(path), make(form))
    check_refused(visitor, answer, bad)
    assert stage.rows() == before
    assert visitor.post(stage.path(path), form).status == good_status(path)  # control


FIELDS = [(path, "form") for path in FORMS_OF]
FIELDS += [(path, "key") for path in FORMS_OF if path.endswith("resubmit")]


@pytest.mark.parametrize(("path", "name"), FIELDS)
def test_field_too_long_in_a_form_that_is_not_is_refused(
    stage: Stage, path: str, name: str
) -> None:
    visitor = stage.owner(ROLES[path])
    before, form = stage.rows(), stage.form(visitor, path)
    long = form | {name: "k" * (FORM_BYTES // 2)}
    answer = visitor.post(stage.path(path), long)
    check_refused(visitor, answer, (403, "STO-E016"))
    assert stage.rows() == before
    assert visitor.post(stage.path(path), form).status == good_status(path)  # control


@pytest.mark.parametrize("path", FORMS_OF)
def test_form_kept_from_before_signing_out_is_of_no_use(
    stage: Stage, path: str
) -> None:
    visitor = stage.owner()
    before, form, cookies = stage.rows(), stage.form(visitor), dict(visitor.cookies)
    assert visitor.post("/console/sign-out", form).status == 303
    replayed = Visitor(visitor.url, cookies).post(stage.path(path), form)
    assert (replayed.status, "Sign in" in replayed.words) == (401, True)
    assert stage.rows() == before


@pytest.mark.parametrize("where", FROM)
@pytest.mark.parametrize("path", FORMS_OF)
def test_form_of_another_site_is_refused(stage: Stage, path: str, where: str) -> None:
    visitor, (headers, bad) = stage.owner(ROLES[path]), FROM[where]
    before, form = stage.rows(), stage.form(visitor, path)
    answer = visitor.post(stage.path(path), form, **headers)
    check_refused(visitor, answer, bad)
    assert stage.rows() == before
    headers = {"sec_fetch_site": "same-origin"}
    answer = visitor.post(stage.path(path), form, **headers)
    assert answer.status == good_status(path)  # control


@pytest.mark.parametrize("path", FORMS_OF)
def test_form_without_an_origin_is_refused(stage: Stage, path: str) -> None:
    visitor = stage.owner(ROLES[path])
    before, body = stage.rows(), _encoded(stage.form(visitor, path))
    kind = "application/x-www-form-urlencoded"
    answer = visitor.ask(stage.path(path), "POST", body, content_type=kind)
    check_refused(visitor, answer, (403, "STO-E016"))
    assert stage.rows() == before


@pytest.mark.parametrize("path", FORMS_OF)
def test_form_of_another_session_is_refused(stage: Stage, path: str) -> None:
    visitor, other = stage.owner(ROLES[path]), stage.owner(ROLES[path])
    before = stage.rows()
    answer = visitor.post(stage.path(path), stage.form(other, path))
    check_refused(visitor, answer, (403, "STO-E016"))
    assert stage.rows() == before


@pytest.mark.parametrize("what", BODIES)
def test_bad_sign_in_form_opens_nothing_and_keeps_the_link(
    shared: ConsoleBench, what: str
) -> None:
    shared.steady.now += 60
    visitor, link, (make, bad) = shared.nobody(), shared.link(), BODIES[what]
    form = visitor.ask("/console/sign-in").forms()["/console/sign-in"]
    answer = visitor.post("/console/sign-in", make(form | {"secret": link, "key": ""}))
    assert (answer.status, bad[1] in answer.words) == (bad[0], True)
    assert visitor.ask("/console/").status == 401
    assert visitor.sign_in(link).ask("/console/").status == 200  # control


@pytest.mark.parametrize("where", FROM)
def test_sign_in_form_of_another_site_opens_nothing(
    shared: ConsoleBench, where: str
) -> None:
    shared.steady.now += 60
    visitor, link, (headers, bad) = shared.nobody(), shared.link(), FROM[where]
    form = visitor.ask("/console/sign-in").forms()["/console/sign-in"]
    answer = visitor.post("/console/sign-in", form | {"secret": link}, **headers)
    assert (answer.status, bad[1] in answer.words) == (bad[0], True)
    assert visitor.sign_in(link).ask("/console/").status == 200  # control


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_page_that_is_read_takes_no_other_method(stage: Stage, method: str) -> None:
    for path in [one for one, how in ROUTES if how == "GET"]:
        assert stage.owner().ask(stage.path(path), method).status == 405


def test_account_that_sends_too_many_forms_is_told_to_wait(stage: Stage) -> None:
    visitor = stage.owner()
    form, path = stage.form(visitor), stage.path("/console/task/{task_id}/cancel")
    answers = [visitor.post(path, form) for _ in range(FORMS + 1)]
    assert [one.status for one in answers] == [303] * FORMS + [429]
    assert "STO-E068" in answers[-1].words
