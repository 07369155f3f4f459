"""One archive with every kind of entry, its pages on a port, and a real browser."""

import contextlib
import http.client
import os
import shutil
import socket
import threading
import time
from dataclasses import dataclass
from functools import cache

import pytest
import uvicorn
from starlette.applications import Starlette

from stoilo.audit.format.facts import (
    CodeCount,
    FlavorRecord,
    KeyRecord,
    LevelRecord,
    OperatorAct,
    OperatorRecord,
    OutcomeRecord,
    PolicyRecord,
    RefusalsRecord,
    RetentionRecord,
    ReviewRecord,
)
from stoilo.audit.format.records import task_commitment
from stoilo.audit.log.side import SideStore, side_path
from stoilo.core.digests import content_digest
from stoilo.server.http.log_files import log_routes, side_routes
from stoilo.server.http.web_server import PublicPlace
from stoilo.web.routes import audit_pages
from tests.support.archive import ORIGIN, ArchiveWriter
from tests.support.faulty_log import LogKey

SOURCE = '''\
"""Estimate pi by darts."""
import random

SIDES = 4


def task(kwargs):
    # how many darts fall inside
    inside = 0
    for _ in range(kwargs["n"]):
        x, y = random.random(), random.random()
        inside += x * x + y * y <= 1.0
    return SIDES * inside / kwargs["n"]
'''
HOSTILE = (
    "</code></pre><script>document.title = 'owned'</script>\n"
    "# <img src=x onerror=\"document.title='owned'\">\n"
    "x = 1  # \u202e }return; \u2066 hidden \u200b\n"
    "# a \u05d0\u05d1\u05d2 = 1; b\n"
    "def task(kwargs):\n"
    "    '''{{ 7 * 7 }} {% raw %} &lt;b&gt; ]]> -->'''\n"
    "    return \"<a href='javascript:document.title=1'>\"\n"
)
HEX = "ab" * 32


def fill(archive):
    """Write every kind of entry."""
    common = {"origin": ORIGIN, "time": archive.now}
    archive.add(
        KeyRecord(event="born", role="gate", key=HEX, name="gate/1.json", **common)
    )
    archive.add(PolicyRecord(change="in_force", digest=HEX, **common))
    archive.add(LevelRecord(change="in_force", name="pure", digest=HEX, **common))
    archive.add(FlavorRecord(change="released", name="pure", flavor=HEX, **common))
    archive.add(OperatorRecord(act=OperatorAct.SERVER_STARTED, **common))
    refused = {"submitter": HEX, "start": 1, "end": 9, "count": 2, "root": HEX}
    codes = (CodeCount("STO-P040", 2),)
    archive.add(RefusalsRecord(codes=codes, **refused, **common))
    signed = {"reviewer": HEX, "review": HEX, "source": HEX, "level": "pure"}
    archive.add(ReviewRecord(decision="signed", **signed, **common))
    deleted = {"what": "sources", "before": 5, "count": 1}
    archive.add(RetentionRecord(published=(HEX,), **deleted, **common))
    archive.admit("pi", SOURCE.encode(), codes=("STO-P034",))
    archive.admit("secret", SOURCE.encode(), public=False)
    archive.admit("hostile", HOSTILE.encode())
    archive.admit("revoked", b"def task(kwargs):\n    return 1\n", flavor="cd" * 32)
    archive.admit("gone", b"def task(kwargs):\n    return 2\n")
    archive.side.delete([content_digest(b"def task(kwargs):\n    return 2\n")], 9)
    gone = {"what": "sources", "before": 9, "count": 1}
    gone["published"] = (content_digest(b"def task(kwargs):\n    return 2\n"),)
    archive.add(RetentionRecord(**gone, **common))
    named = {"task": task_commitment("pi"), "result": HEX, "code": ""}
    decided = {"attempt": 1, "admission": 8, "state": "succeeded", "agreeing": 2}
    archive.add(OutcomeRecord(**named, **decided, **common))
    archive.revoke(1, flavors=("cd" * 32,))
    archive.add_leaf(b"<script>an entry of another time</script>")


@contextlib.contextmanager
def serve(make):
    """Serve the application that `make` returns for its URL, on a port of the loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        config = uvicorn.Config(
            make(url), log_level="warning", lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


def make_app(data, url):
    """Return the application of an archive's pages and of its log."""
    log, side = data / "audit" / "log", SideStore.read_file(side_path(data))
    pages = audit_pages(PublicPlace(data, url))
    return Starlette(routes=[*pages, *log_routes(log), *side_routes(log, side)])


@pytest.fixture(scope="session")
def archive(tmp_path_factory):
    """Return the data directory of an archive with every kind of entry, and its key."""
    data, key = (
        tmp_path_factory.mktemp("archive"),
        LogKey(ORIGIN, witness_time=1_795_000_007),
    )
    with ArchiveWriter(data, key) as writer:
        fill(writer)
    return data, key


@pytest.fixture(scope="session")
def site(archive):
    """Serve the archive on a port; gives its URL."""
    with serve(lambda url: make_app(archive[0], url)) as url:
        yield url


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self):
        return self.body.decode()


def ask(url, path, method="GET", **headers):
    """Send one request to the server at `url`."""
    host = url.removeprefix("http://").rstrip("/")
    connection = http.client.HTTPConnection(host, timeout=30)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


@pytest.fixture(scope="session")
def get(site):
    """Return a function that asks the served archive for a path."""
    return lambda path, method="GET", **headers: ask(site, path, method, **headers)


@pytest.fixture
def serve_app():
    """Return a function that serves an application for one request."""

    def once(app, path):
        with serve(lambda _: app) as url:
            return ask(url, path)

    return once


@pytest.fixture(scope="session")
def ask_for():
    return ask


@pytest.fixture
def serving():
    """Return a context manager that serves an application and gives its URL."""
    return lambda app: serve(lambda _: app)


@pytest.fixture(scope="session")
def shown_source():
    return SOURCE


@pytest.fixture(scope="session")
def hostile_source():
    return HOSTILE


def find_chromium():
    """Return the system's Chromium; name what is missing where it may be missing."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    missing = "no chromium here: apt-get install chromium (or `make test` as root)"
    if os.geteuid() == 0 or os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
    return ""


@pytest.fixture(scope="session")
def browser():
    """Return a headless Chromium of the system; nothing is downloaded."""
    path = find_chromium()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only when there is one

    # Chromium's own sandbox refuses to run as root; what it shows is ours.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=arguments)
        yield opened
        opened.close()


class Watched:
    """A browser page that keeps what it complained of and whom it asked."""

    def __init__(self, page):
        self.page = page
        self.complaints, self.asked = [], []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def goto(self, url):
        answer = self.page.goto(url, wait_until="load")
        return answer.status


@pytest.fixture(scope="session")
def windows(browser):
    """Return a function that gives the one window of a given width and scheme."""

    @cache
    def window(width, scheme):
        return browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )

    return window


@pytest.fixture
def open_page(windows):
    """Open pages of a given size and scheme; all are closed at the end."""
    pages = []

    def opener(width=1200, scheme="light"):
        pages.append(windows(width, scheme).new_page())
        return Watched(pages[-1])

    yield opener
    for page in pages:
        page.close()
