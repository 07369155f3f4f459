"""Landmarks, headings, names of fields by the HTML; contrast, width, axe in a real Chromium."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from stoilo.core.boinc.messages import HostInfo, SchedulerRequest
from stoilo.core.codec.skeleton import encode
from stoilo.core.rpc import progress_pb2 as pb
from stoilo.core.types import Redundancy
from stoilo.server.admission.tokens import find_owner
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from stoilo.web.pages import load_assets
from tests.support.axe import find_grave
from tests.support.console import ConsoleBench, Visitor, run
from tests.support.contrast import CONTRAST, WIDE
from tests.support.engine import make_spec
from tests.support.server import make_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.reviews import Desk

LABEL = f"label/training {'long' * 20}"
PAGES = (
    "sign-in",
    "sign-in?link=x",
    "",
    "?state=expired",
    "labels",
    "account",
    "account?said=removed",
    LABEL,
    "label/",
    "task/DONE",
    "task/OPEN?said=ended",
    "task/FAILED",
    "task/nothing",
    "project",
    "hosts",
    "traffic",
    "traffic?tree=version+2",
    "accounts",
    "settings",
    "reviews",
    "review/WAITS",
    "review/SIGNED",
    "volunteer",
    "volunteer/sign-in",
)
SAVED = {  # what a browser saves and never shows
    "/console/task/{task_id}/source.py",
    "/console/task/{task_id}/result/{name}",
    "/console/review/{task_id}/folder.zip",
}
NAMED = frozenset(
    {"a", "button", "summary", "th", "caption", "h1", "h2", "h3", "option"}
)
EMPTY = frozenset({"meta", "link", "input", "br"})
SOURCES = {
    "SIGNED": b"def task(kwargs):\n    return kwargs['x'] + 1\n",
    "WAITS": b"def task(kwargs):\n    " + b"# a long line " * 20 + b"\n    return 2\n",
}
PAIR = Redundancy(min_quorum=2, target_results=2, max_total=4)
ASSETS = load_assets()


@dataclass
class Node:
    """An element, the text in it, and what surrounds it."""

    tag: str
    attributes: dict[str, str]
    above: tuple[str, ...]
    text: str = ""


@dataclass
class Document(HTMLParser):
    """A page as its elements in order; what is not closed in order is a fault."""

    html: str
    nodes: list[Node] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[Node] = []
        self.feed(self.html)
        self.faults += [f"<{one.tag}> is not closed" for one in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        above = tuple(one.tag for one in self._open)
        node = Node(tag, {name: value or "" for name, value in attrs}, above)
        self.nodes.append(node)
        if tag not in EMPTY:
            self._open.append(node)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop().tag != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        for node in self._open:
            node.text += data

    def all(self, *tags: str) -> list[Node]:
        return [one for one in self.nodes if one.tag in tags]


def find_faults(html: str) -> list[str]:
    """Return what would keep somebody with a screen reader or a keyboard from a page."""
    page = Document(html)
    faults = [*page.faults, *_structure(page), *_headings(page)]
    return faults + _names(page) + _references(page) + _tables(page)


def _structure(page: Document) -> list[str]:
    once = ("html", "title", "header", "nav", "main", "footer", "h1")
    counts = [(len(page.all(tag)), tag) for tag in once]
    faults = [f"{count} <{tag}>" for count, tag in counts if count != 1]
    if not all(one.attributes.get("lang") for one in page.all("html")):
        faults.append("no language")
    if not any(one.attributes.get("href") == "#content" for one in page.all("a")):
        faults.append("no way past the navigation")
    landmarks = {"header", "main", "footer"}
    outside = [
        one.tag
        for one in page.all("p", "form", "table", "dl", "h1", "h2")
        if not landmarks & set(one.above)
    ]
    return faults + [f"<{tag}> outside of any landmark" for tag in outside]


def _headings(page: Document) -> list[str]:
    levels = [int(one.tag[1]) for one in page.all("h1", "h2", "h3", "h4")]
    jumps = [(a, b) for a, b in itertools.pairwise(levels) if b > a + 1]
    return [f"h{a} before h{b}" for a, b in jumps] + ["h1 is not first"] * (
        levels[:1] != [1]
    )


def _names(page: Document) -> list[str]:
    labels = {one.attributes.get("for") for one in page.all("label")}
    fields = [
        one
        for one in page.all("input", "select", "textarea", "progress")
        if one.attributes.get("type") != "hidden"
    ]
    faults = [
        f"<{one.tag}> without a name"
        for one in fields
        if one.attributes.get("id") not in labels
        and not one.attributes.get("aria-label")
    ]
    return faults + [
        f"<{one.tag}> says nothing"
        for one in page.all(*NAMED)
        if not (one.text.strip() or one.attributes.get("aria-label"))
    ]


def _references(page: Document) -> list[str]:
    ids = Counter(one.attributes["id"] for one in page.nodes if "id" in one.attributes)
    asked = {
        one.attributes[name].removeprefix("#")
        for one in page.nodes
        for name in ("aria-labelledby", "for", "href")
        if name in one.attributes
        and (name != "href" or one.attributes[name][:1] == "#")
    }
    twice = [f"id {name} twice" for name, count in ids.items() if count > 1]
    return twice + [f"no id {name}" for name in asked - set(ids)]


def _tables(page: Document) -> list[str]:
    tables, captions = page.all("table"), page.all("caption")
    faults = ["a table without a caption"] * (len(tables) != len(captions))
    scopes = [one.attributes.get("scope") for one in page.all("th")]
    faults += ["a heading without a scope"] * (not all(scopes))
    scrolled = [one for one in page.all("pre") if "tabindex" not in one.attributes]
    return faults + ["text that no keyboard scrolls"] * any(
        "wrap" not in one.attributes.get("class", "") for one in scrolled
    )


def fill(desk: Desk) -> dict[str, str]:
    """Make a task of every kind; returns their ids by their words in `PAGES`."""
    bench = desk.bench
    frames: dict[str, object] = {
        "DONE": {"status": "ok", "value": encode({"a": [1.5] * 40})},
        "FAILED": {"status": "user_error", "error_type": "E", "error_text": "x" * 300},
    }
    made = {}
    for name in ("OPEN", *frames):
        label = f"{name} {'long' * 20} 1"
        workunit, statement = run(bench.issued(name, label=label))
        made[name] = workunit[:-2]
        if name in frames:
            files = [
                make_result(f"{workunit}_{n}", statement, frames[name], output=b"o\n")
                for n in (0, 1)
            ]
            bench.engine.deliver(workunit, files)
    for name, source in SOURCES.items():
        made[name] = desk.submit(name, task_module=source, level="numeric")
        if name == "SIGNED":
            desk.hand_in(made[name])
    with bench.store.read() as connection:
        owner = find_owner(connection, bench.token, bench.clock())
    label = LABEL.removeprefix("label/")
    run(bench.submit("training", label=f"{label} 1"))
    points = [
        pb.ProgressPoint(version=n, loss=10.0**30 / n, held_out=n, answers=1)
        for n in range(1, 40)
    ]
    asked = pb.ReportProgressRequest(label=label, points=points)
    bench.server.progress_service.report(owner, asked)
    return made


@pytest.fixture(scope="module")
def tasks(desk: Desk) -> dict[str, str]:
    return fill(desk)


@pytest.fixture(scope="module")
def visitor(shared: ConsoleBench) -> Visitor:
    return shared.visitor("ada", "operator")


@pytest.fixture(scope="module")
def visitors(shared: ConsoleBench, visitor: Visitor) -> dict[str, Visitor]:
    """Return a visitor by the word that the pages of his kind begin with."""
    engine = EmbeddedEngine(shared.bench.directory / "engine", clock=shared.bench.clock)
    with contextlib.closing(engine):
        account = engine.accounts.ensure("vera@example.org", shared.bench.clock())
        engine.create_workunits([make_spec(f"{'a' * 32}_1", redundancy=PAIR)])
        request = SchedulerRequest(
            account.weak_key, 0, 1, "c" * 32,
            ncpus=1, own_program=True, cpu_req_instances=1.0,
            host=HostInfo("a-computer-with-a-name-that-is-long" * 3),
        )  # fmt: skip
        engine.scheduler.handle(request, shared.url, shared.bench.clock())
    return {
        "review": shared.reviewer(),
        "volunteer": shared.volunteer(),
        "volunteer/sign-in": shared.nobody(),
        "": visitor,
    }


def who(visitors: dict[str, Visitor], page: str) -> Visitor:
    return visitors[max((one for one in visitors if page.startswith(one)), key=len)]


def place(tasks: dict[str, str], page: str) -> str:
    for name, task in tasks.items():
        page = page.replace(name, task)
    return f"/console/{page.replace(' ', '%20')}"


def test_every_page_of_the_console_is_looked_at(shared: ConsoleBench) -> None:
    places = [f"/console/{one.partition('?')[0]}" for one in PAGES]
    unseen = {
        route.path
        for route in shared.console.routes()
        if "GET" in (route.methods or ())
        and not any(route.path_regex.match(place) for place in places)
    }
    assert unseen == SAVED


@pytest.mark.parametrize("page", PAGES)
def test_page_can_be_read_and_used_without_seeing_it(
    visitors: dict[str, Visitor], tasks: dict[str, str], page: str
) -> None:
    answer = who(visitors, page).ask(place(tasks, page))
    assert find_faults(answer.text) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('<label for="state">State</label>', "", "<select> without a name"),
        ("<h1>", "<h3>x</h3><h1>", "h1 is not first"),
        ("</main>", "<h4>x</h4></main>", "h1 before h4"),
        ('<th scope="col">', "<th>", "a heading without a scope"),
        ("<caption>Newest first</caption>", "", "a table without a caption"),
        ('lang="en"', "", "no language"),
        ("<header>", "<p>x</p><header>", "<p> outside of any landmark"),
        ('id="content"', 'id="state"', "no id content"),
        (">Show</button>", "></button>", "<button> says nothing"),
        ("</form>", "", "</main> closes nothing"),
        ("</main>", "<pre>x</pre></main>", "text that no keyboard scrolls"),
    ],
)
def test_check_finds_what_is_wrong(
    visitor: Visitor, tasks: dict[str, str], old: str, new: str, fault: str
) -> None:
    html = visitor.ask(place(tasks, "")).text
    assert old in html
    assert fault in find_faults(html.replace(old, new))


# Both schemes and both widths here; all four together in test_server.py.
@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
def test_axe_finds_nothing_grave(
    visitors: dict[str, Visitor],
    tasks: dict[str, str],
    open_page: Callable[..., Any],
    scheme: str,
    width: int,
) -> None:
    watched, url = open_page(width=width, scheme=scheme), visitors[""].url
    for page in PAGES:
        put_on(watched, who(visitors, page))
        status = watched.goto(url + place(tasks, page)[1:])
        assert status == (404 if page == "task/nothing" else 200), page
        assert find_grave(watched.page) == [], page
    put_on(watched, visitors[""])
    watched.goto(f"{url}console/")
    watched.page.evaluate("document.querySelector('main label').remove()")
    found = find_grave(watched.page)[0]
    assert found.startswith("select-name at ['#state']")  # control


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast_and_fits_a_phone(
    visitors: dict[str, Visitor],
    tasks: dict[str, str],
    open_page: Callable[..., object],
    scheme: str,
) -> None:
    watched, url = open_page(width=390, scheme=scheme), visitors[""].url
    status = watched.goto(f"{url}audit/static/{ASSETS['audit.css'].name}")
    assert status == 200  # else all would be as the browser likes
    for page in PAGES:
        put_on(watched, who(visitors, page))
        watched.goto(url + place(tasks, page)[1:])
        ratios = watched.page.evaluate(CONTRAST)
        assert ratios[0][0] >= 4.5, (page, ratios[0])
        assert watched.page.evaluate(WIDE) == 0, page
    # A status that is no success is told by the browser itself; nothing else is.
    assert all("Failed to load resource" in one for one in watched.complaints)


def put_on(watched: object, visitor: Visitor) -> None:
    """Let a browser be a certain visitor."""
    context = watched.page.context
    context.clear_cookies()
    context.add_cookies(
        [
            {"name": n, "value": v, "url": visitor.url}
            for n, v in visitor.cookies.items()
        ]
    )


FOCUSED = """() => {
  const all = [...document.querySelectorAll(
    'a[href], button, select, summary, input:not([type=hidden]), [tabindex="0"]')]
    .filter(one => one.checkVisibility());
  const node = document.activeElement, style = getComputedStyle(node);
  const box = node.getBoundingClientRect();
  return [all.indexOf(node), all.length, style.outlineStyle !== 'none' && box.left >= 0];
}"""


@pytest.mark.parametrize(
    "page",
    [
        *("", "task/DONE", LABEL, "project", "traffic"),
        *("sign-in", "review/WAITS", "volunteer"),
    ],
)
def test_keyboard_alone_reaches_everything_and_shows_where_it_is(
    visitors: dict[str, Visitor],
    tasks: dict[str, str],
    open_page: Callable[..., object],
    page: str,
) -> None:
    watched, visitor = open_page(width=390), who(visitors, page)
    put_on(watched, visitor)
    watched.goto(visitor.url + place(tasks, page)[1:])
    _, total, _ = watched.page.evaluate(FOCUSED)
    seen = []
    for _ in range(total):
        watched.page.keyboard.press("Tab")
        seen.append(watched.page.evaluate(FOCUSED))
    assert [one[0] for one in seen] == list(range(total))
    assert all(one[2] for one in seen)
    watched.page.evaluate("document.activeElement.style.outlineStyle = 'none'")
    assert not watched.page.evaluate(FOCUSED)[2]  # control
