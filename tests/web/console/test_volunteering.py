"""What a volunteer sees of his computers, and that leaving and deleting are his alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from stoilo.core.boinc.messages import HostInfo, SchedulerRequest
from stoilo.core.errors import DeniedError
from stoilo.core.types import Redundancy
from stoilo.server.admission import tokens
from stoilo.server.engines.embedded.accounts.passwords import password_digest
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from stoilo.web.console.sessions import IDLE_S, SIGN_INS
from tests.support.console import VOLUNTEERS, Visitor, run
from tests.support.engine import make_spec
from tests.support.serverbench import make_bench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.console import Answer, ConsoleBench, Door

HOME = "/console/volunteer"
VERA, EVE = "vera@example.org", "eve@example.org"
PAIR = Redundancy(min_quorum=2, target_results=2, max_total=4)
PASSWORD = "correct horse battery"


class Project:
    """A console over an embedded engine that is driven by hand."""

    def __init__(self, served: ConsoleBench, engine: EmbeddedEngine) -> None:
        self.served, self.engine = served, engine
        self.task = ""

    def offer(self) -> str:
        """Make a task, and its workunit for volunteers; returns its id."""
        workunit, _ = run(self.served.bench.issued("k1"))
        self.engine.create_workunits([make_spec(workunit, redundancy=PAIR)])
        return workunit.rpartition("_")[0]

    def fetch(self, email: str, name: str, wants: float = 1.0) -> int:
        """Let a computer call for work; returns how many results it got."""
        now = self.served.bench.clock()
        account = self.engine.accounts.ensure(email, now)
        cpid = password_digest(name, email)  # 32 hex digits
        request = SchedulerRequest(
            account.weak_key, 0, 1, cpid,
            ncpus=1, own_program=True, cpu_req_instances=wants, host=HostInfo(name),
        )  # fmt: skip
        answer = self.engine.scheduler.handle(request, self.served.url, now)
        return len(answer.results)


@pytest.fixture
def project(door: Door, tmp_path: Path) -> Iterator[Project]:
    bench = make_bench(tmp_path)
    engine = EmbeddedEngine(tmp_path / "engine", clock=bench.clock)
    with contextlib.closing(engine):
        yield Project(door.show(bench, engine.roster), engine)


def press(visitor: Visitor, what: str, **fields: str) -> Answer:
    """Send one of the page's forms, and follow it."""
    answer = visitor.press(HOME, f"{HOME}/{what}", **fields)
    return visitor.ask(answer.headers["location"]) if answer.status == 303 else answer


def test_page_tells_what_ran_where_and_leads_to_its_proof(project: Project) -> None:
    task = project.offer()
    assert project.fetch(VERA, "vera-pc") == 1
    answer = project.served.volunteer().ask(HOME)
    assert "task, pure vera-pc on a host" in answer.words
    assert f'href="/audit/task/{task}"' in answer.text
    assert "1 computer, credit 0.00" in answer.words


def test_other_volunteer_sees_none_of_it(project: Project) -> None:
    task = project.offer()
    project.fetch(VERA, "vera-pc")
    text = project.served.volunteer(EVE).ask(HOME).text
    assert {one for one in (task, "vera", VERA) if one in text} == set()
    assert "vera-pc" in project.served.volunteer().ask(HOME).text  # control


def test_name_that_a_host_gives_itself_is_text(project: Project) -> None:
    project.offer()
    project.fetch(VERA, "<script>alert(1)</script>")
    text = project.served.volunteer().ask(HOME).text
    assert "&lt;script&gt;alert(1)" in text
    assert "<script" not in text


def test_choices_are_shown_as_the_project_knows_them(project: Project) -> None:
    project.engine.accounts.ensure(VERA, 1, max_level="numeric")
    words = project.served.volunteer().ask(HOME).words
    assert "Levels pure, numeric" in words
    assert "Only reviewed tasks no" in words


# -- signing in ---------------------------------------------------------------------------


def sign_in(project: Project, **fields: str) -> Answer:
    project.served.steady.now += 60
    return project.served.nobody().press(VOLUNTEERS, VOLUNTEERS, **fields)


def test_address_and_password_sign_in(project: Project) -> None:
    digest = password_digest(PASSWORD, VERA)
    project.engine.accounts.create(VERA, digest, 1)
    assert sign_in(project, email=f" {VERA.upper()}", password=PASSWORD).status == 303
    wrong = sign_in(project, email=VERA, password="another one")
    assert (wrong.status, "STO-E016" in wrong.words) == (403, True)


def test_weak_key_opens_nothing(project: Project) -> None:
    account = project.engine.accounts.ensure(VERA, 1)
    assert sign_in(project, key=account.weak_key).status == 403
    assert sign_in(project, key=account.key).status == 303  # control


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"key": "x" * 300},
        {"key": "é" * 40},
        {"email": VERA},
        {"email": "é" * 300, "password": "x"},
        {"email": VERA, "password": "p" * 2000},
    ],
)
def test_senseless_fields_open_nothing(
    project: Project, fields: dict[str, str]
) -> None:
    project.engine.accounts.ensure(VERA, 1)  # it has no password
    answer = sign_in(project, **fields)
    assert (answer.status, "STO-E016" in answer.words) == (403, True)


def test_address_that_tries_too_often_is_told_to_wait(project: Project) -> None:
    visitor = project.served.nobody()
    answers = [
        visitor.press(VOLUNTEERS, VOLUNTEERS, key="no") for _ in range(SIGN_INS + 1)
    ]
    assert [one.status for one in answers] == [403] * SIGN_INS + [429]


def test_session_of_a_volunteer_is_no_token_of_the_server(project: Project) -> None:
    visitor, bench = project.served.volunteer(), project.served.bench
    console = project.served.console
    token = visitor.cookies[console.volunteers.cookie]
    with bench.store.read() as connection, pytest.raises(DeniedError, match="STO-R001"):
        tokens.find_owner(connection, token, bench.clock())
    visitor.cookies[console.sessions.cookie] = token
    assert visitor.ask("/console/").status == 401


@pytest.mark.parametrize(("passes", "status"), [(IDLE_S, 200), (IDLE_S + 1, 401)])
def test_session_nobody_uses_ends(project: Project, passes: float, status: int) -> None:
    visitor = project.served.volunteer()
    project.served.steady.now += passes
    assert visitor.ask(HOME).status == status


def test_session_ends_at_last_however_often_it_is_used(project: Project) -> None:
    visitor = project.served.volunteer()
    answers = []
    for _ in range(tokens.SESSION_S // int(IDLE_S) + 1):
        project.served.steady.now += IDLE_S
        answers.append(visitor.ask(HOME).status)
    assert answers == [200] * (len(answers) - 1) + [401]


def test_new_keys_end_a_session(project: Project) -> None:
    visitor = project.served.volunteer()
    assert visitor.ask(HOME).status == 200  # control
    project.engine.accounts.change_keys(1)
    assert visitor.ask(HOME).status == 401


def test_who_signs_out_is_out(project: Project) -> None:
    visitor = project.served.volunteer()
    kept = dict(visitor.cookies)
    press(visitor, "sign-out")
    assert project.served.console.volunteers.cookie not in visitor.cookies
    assert Visitor(visitor.url, kept).ask(HOME).status == 401


def test_stock_project_s_volunteers_are_sent_to_boinc_s_site(
    served: ConsoleBench,
) -> None:
    answer = served.nobody().ask(HOME)
    assert (answer.status, "BOINC's own site" in answer.words) == (401, True)
    assert VOLUNTEERS not in answer.forms()
    visitor = served.nobody()
    fields = visitor.ask("/console/sign-in").forms()["/console/sign-in"]
    assert visitor.post(VOLUNTEERS, fields | {"key": "x"}).status == 403


# -- leaving ------------------------------------------------------------------------------


def test_who_leaves_gets_no_work_until_he_is_back(project: Project) -> None:
    project.offer()
    visitor = project.served.volunteer()
    assert "You left" in press(visitor, "leave", sure="1").words
    assert project.fetch(VERA, "vera-pc") == 0
    assert project.fetch(EVE, "eve-pc") == 1  # control: others do
    back = visitor.press(HOME, f"{HOME}/leave")  # now the form that takes it back
    assert back.status == 303
    assert project.fetch(VERA, "vera-pc") == 1


@pytest.mark.parametrize("what", ["leave", "delete"])
@pytest.mark.parametrize("sure", ["", "yes", EVE])
def test_nothing_happens_unless_he_is_sure(
    project: Project, what: str, sure: str
) -> None:
    visitor = project.served.volunteer()
    before = project.engine.roster.list_accounts()
    answer = press(visitor, what, sure=sure)
    assert (answer.status, "Nothing was changed" in answer.words) == (400, True)
    assert project.engine.roster.list_accounts() == before


def test_deleted_account_is_gone_and_signs_in_no_more(project: Project) -> None:
    project.fetch(VERA, "vera-pc")
    key = project.engine.accounts.ensure(VERA, 1).key
    visitor, other = (project.served.volunteer() for _ in range(2))
    project.served.volunteer(EVE)
    assert "Volunteers: sign in" in press(visitor, "delete", sure=VERA).words
    assert other.ask(HOME).status == 401  # sessions elsewhere too
    assert sign_in(project, key=key).status == 403
    assert [one.email for one in project.engine.roster.list_accounts()] == [EVE]
