"""Parts of pages that are fetched again: what they cost, whom they keep signed in."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from stoilo.core.rpc import progress_pb2 as pb
from stoilo.web.console import sessions
from stoilo.web.console.live import (
    A_SECOND,
    AGAIN,
    FRESH_S,
    LEAST_S,
    MOST_CHARS,
    MOST_PARTS,
    MOST_S,
    Pace,
    Part,
    Parts,
)
from tests.support.console import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.console import Answer, ConsoleBench, Visitor

PAGES = ("/console/labels", "/console/label/darts", "/console/task/TASK")


def submit(served: ConsoleBench, key: str = "k1") -> str:
    """Return the id of a task of the label `darts`."""
    workunit, _ = run(served.bench.issued(key, label=f"darts {key[1:]}"))
    return workunit.rpartition("_")[0]


def look(visitor: Visitor, path: str, tag: str = "") -> Answer:
    """Ask for a page's part as htmx does."""
    return visitor.ask(path, hx_request="true", if_none_match=f'"{tag}"')


def tag_of(answer: Answer) -> str:
    return answer.headers["etag"].strip('"')


@pytest.mark.parametrize("page", PAGES)
def test_part_comes_alone_and_not_again(served: ConsoleBench, page: str) -> None:
    path, visitor = page.replace("TASK", submit(served)), served.visitor()
    first = look(visitor, path)
    again = look(visitor, path, tag_of(first))
    assert first.text.startswith('<div id="live"')
    assert (first.status, again.status, again.body) == (200, 304, b"")
    assert look(visitor, path, "0" * 32).status == 200  # control


@pytest.mark.parametrize("page", PAGES)
def test_page_carries_the_tag_of_its_own_part(served: ConsoleBench, page: str) -> None:
    path, visitor = page.replace("TASK", submit(served)), served.visitor()
    text = visitor.ask(path).text
    (tag,) = re.findall(r"\\\"([0-9a-f]{32})\\\"", text)
    assert f'hx-get="{path}"' in text
    assert look(visitor, path, tag).status == 304


@pytest.mark.parametrize("page", PAGES)
def test_part_is_another_one_once_something_happened(
    served: ConsoleBench, page: str
) -> None:
    task, visitor = submit(served), served.visitor()
    path = page.replace("TASK", task)
    tag = tag_of(look(visitor, path))
    visitor.press(f"/console/task/{task}", f"/console/task/{task}/cancel")
    served.steady.now += FRESH_S
    changed = look(visitor, path, tag)
    assert (changed.status, "cancelled" in changed.text) == (200, True)


def test_part_that_is_final_asks_for_no_more(served: ConsoleBench) -> None:
    task, visitor = submit(served), served.visitor()
    paths = [one.replace("TASK", task) for one in PAGES[1:]]
    assert all("hx-get" in look(visitor, one).text for one in paths)  # control
    visitor.press(f"/console/task/{task}", f"/console/task/{task}/cancel")
    served.steady.now += FRESH_S
    assert not any("hx-get" in look(visitor, one).text for one in paths)


def test_page_that_refreshes_itself_keeps_nobody_signed_in(
    served: ConsoleBench,
) -> None:
    path, visitor = f"/console/task/{submit(served)}", served.visitor()
    served.steady.now += sessions.IDLE_S / 2
    assert look(visitor, path).status == 200
    served.steady.now += sessions.IDLE_S / 2 + 1
    over = look(visitor, path)
    assert (over.status, over.body, over.headers["set-cookie"]) == (401, b"", None)


def test_visit_by_hand_keeps_a_session(served: ConsoleBench) -> None:
    path, visitor = f"/console/task/{submit(served)}", served.visitor()
    for _ in range(2):  # the control of the test above
        served.steady.now += sessions.IDLE_S / 2 + 1
        assert visitor.ask(path).status == 200


def test_refreshing_takes_nothing_of_the_pages_that_a_person_may_ask_for(
    served: ConsoleBench,
) -> None:
    path, visitor = "/console/labels", served.visitor()
    for _ in range(sessions.PAGES + 1):
        assert look(visitor, path).status == 200
    assert visitor.ask(path).status == 200
    for _ in range(sessions.PAGES):
        visitor.ask("/console/settings")
    assert visitor.ask(path).status == 429  # control


def test_refreshing_has_a_bound_of_its_own(
    served: ConsoleBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor, console = served.visitor(), served.console.sessions
    monkeypatch.setattr(
        console, "_parts", sessions.TokenBuckets(3, clock=console._steady)
    )
    found = [look(visitor, "/console/labels").status for _ in range(4)]
    assert found == [200, 200, 200, 429]


def test_page_without_a_part_is_a_page_however_it_is_asked_for(
    served: ConsoleBench,
) -> None:
    answer = look(served.visitor(), "/console/")
    assert "<!doctype html>" in answer.text
    assert "script-src" not in answer.headers["content-security-policy"]


def test_each_answer_says_when_to_come_again(served: ConsoleBench) -> None:
    visitor = served.visitor()
    first = look(visitor, "/console/labels")
    again = look(visitor, "/console/labels", tag_of(first))
    told = [float(one.headers[AGAIN]) for one in (first, again)]
    assert (again.status, told) == (304, [LEAST_S, round(LEAST_S + 1 / A_SECOND, 1)])


def test_many_who_look_come_in_turn_and_one_alone_soon() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    told = [pace.next_s() for _ in range(200)]
    expected = [LEAST_S + turn / A_SECOND for turn in range(200)]
    assert told == pytest.approx(expected)
    assert max(pace.next_s() for _ in range(1000)) == MOST_S
    now += MOST_S
    assert pace.next_s() == LEAST_S


def test_part_is_made_once_for_all_until_its_mark_changes() -> None:
    clock = itertools.count(0.0, FRESH_S)
    parts, numbers = Parts(lambda: next(clock)), itertools.count(1)

    def make() -> Part:
        return Part(str(next(numbers)), "", goes_on=True)

    found = [parts.find("key", lambda m=m: m, make).text for m in (1, 1, 2, 2, 1)]
    assert found == ["1", "1", "2", "2", "3"]


def test_part_is_not_even_asked_after_every_moment() -> None:
    asked: list[float] = []
    times = iter([0.0, FRESH_S / 2, FRESH_S])
    parts = Parts(lambda: next(times))
    for _ in range(3):
        parts.find("key", lambda: asked.append(1), lambda: Part("", "", goes_on=True))
    assert len(asked) == 2


def test_few_parts_are_kept_and_no_large_one() -> None:
    parts, large = Parts(lambda: 0.0), "x" * (MOST_CHARS + 1)
    for number in range(MOST_PARTS + 5):
        parts.find(number, int, lambda: Part("x", "", goes_on=True))
    parts.find("large", int, lambda: Part(large, "", goes_on=True))
    assert len(parts._kept) == MOST_PARTS
    assert "large" not in parts._kept


# -- in a browser ------------------------------------------------------------------------


def report(served: ConsoleBench, visitor: Visitor, versions: int) -> None:
    """Have a trainer of the visitor's account say so many versions of `darts`."""
    console, bench = served.console.sessions, served.bench
    with bench.store.read() as connection:
        token = visitor.cookies[console.cookie]
        owner = sessions.tokens.find_owner(connection, token, bench.clock())
    points = [
        pb.ProgressPoint(version=n, loss=8.0 / n, held_out=9.0 / n, answers=2)
        for n in range(1, versions + 1)
    ]
    asked = pb.ReportProgressRequest(label="darts", points=points)
    bench.server.progress_service.report(owner, asked)


@pytest.fixture
def watched(served: ConsoleBench, open_page: Callable[..., object]):
    """Return a signed-in visitor, and a browser's page with his cookies."""
    visitor, opened = served.visitor(), open_page(width=390)
    jar = [
        {"name": n, "value": v, "url": visitor.url} for n, v in visitor.cookies.items()
    ]
    opened.page.context.clear_cookies()
    opened.page.context.add_cookies(jar)
    return visitor, opened


def test_training_s_page_changes_under_the_eyes_of_who_looks(
    served: ConsoleBench, watched
) -> None:
    visitor, opened = watched
    submit(served)
    report(served, visitor, 3)
    opened.goto(f"{visitor.url}console/label/darts")
    page = opened.page
    page.evaluate("window.kept = true")
    page.focus("#losses")
    served.bench.clock.now += 20
    served.steady.now += 20
    report(served, visitor, 40)
    page.wait_for_selector("svg.chart[aria-label*='to 40;']", timeout=60_000)
    assert page.evaluate("window.kept")  # it was not loaded again
    assert page.evaluate("document.activeElement.id") == "losses"
    assert "% have ended" in page.text_content("#said")
    assert opened.complaints == []  # of policies for scripts and trusted types, say


def test_page_asks_no_sooner_than_it_is_told(watched) -> None:
    visitor, opened = watched
    page, asked = opened.page, []

    def tell(route) -> None:
        asked.append(route)
        route.fulfill(status=304, headers={AGAIN: "20.0"})

    page.clock.install()
    opened.goto(f"{visitor.url}console/labels")
    page.route("**/labels", tell)
    found = []
    for seconds in (3, 3, 15, 10):
        page.clock.run_for(1000 * seconds)
        page.wait_for_timeout(200)  # for the answer
        found.append(len(asked))
    assert found == [0, 1, 1, 2]


def test_page_of_a_session_that_ended_says_so(served: ConsoleBench, watched) -> None:
    visitor, opened = watched
    submit(served)
    opened.goto(f"{visitor.url}console/label/darts")
    visitor.press("/console/", "/console/sign-out")
    opened.page.wait_for_selector(
        "#said:has-text('not fetched any more')", state="visible", timeout=60_000
    )


@pytest.mark.parametrize("lost", ["**/htmx.*.js", "**/*.js"])
def test_page_without_its_scripts_is_whole(
    served: ConsoleBench, watched, lost: str
) -> None:
    visitor, opened = watched
    submit(served)
    report(served, visitor, 3)
    opened.page.route(lost, lambda route: route.abort())
    opened.goto(f"{visitor.url}console/label/darts")
    assert opened.page.is_visible("svg.chart")
    opened.page.click("text=Load again")
    assert opened.page.is_visible("#losses")
    assert not [one for one in opened.complaints if "ERR_FAILED" not in one]


# Later, as what a debugger itself evaluates is bound by no policy.
TRIAL = """what => new Promise(tell => setTimeout(() => {
  const ways = {
    eval: () => eval("1"),
    script: () => { document.createElement("script").text = "1"; },
    html: () => { document.createElement("p").innerHTML = "<b>1</b>"; },
  };
  try { ways[what](); tell("done"); } catch (error) { tell(error.name); }
}))"""


def test_no_script_may_be_made_of_text(watched) -> None:
    visitor, opened = watched
    opened.goto(f"{visitor.url}console/labels")
    found = [opened.page.evaluate(TRIAL, one) for one in ("eval", "script", "html")]
    assert found == ["EvalError", "TypeError", "done"]  # the last one is the control
