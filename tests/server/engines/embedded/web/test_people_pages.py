"""The front page: what for, how much, how to join; nothing that runs."""

from __future__ import annotations

import re
from contextlib import contextmanager

import pytest
import urllib3

from stoilo.executor.volunteer.addresses import find_scheduler
from stoilo.server.engines.embedded.engine import EmbeddedEngine
from stoilo.server.engines.embedded.web.app import HttpOptions
from stoilo.server.engines.embedded.web.people_pages import Front, render_front
from tests.support.engine import ProjectServer

URL = "https://example.org/project/"
PRINT = "ab" * 32


def test_line_to_copy_names_address_and_fingerprint() -> None:
    page = render_front("ours", URL, Front(fingerprint=PRINT))
    (line,) = re.findall(r"<pre><code>(.*)</code></pre>", page)
    assert line == f"stoilo volunteer attach {URL} --fingerprint {PRINT}"


def test_operators_words_are_paragraphs_and_never_markup() -> None:
    page = render_front("<b>", URL, Front("What <script>\n for?\n\n$url & more"))
    assert "<p>What &lt;script&gt;\n for?</p>\n<p>$url &amp; more</p>" in page
    assert "<h1>&lt;b&gt;</h1>" in page
    assert "<script" not in page


def test_figures_are_shown_where_there_are_any() -> None:
    page = render_front("ours", URL, Front(figures=lambda: {"tasks <done>": 12345}))
    assert "<dt>tasks &lt;done&gt;</dt><dd>12,345</dd>" in page
    assert "<dl" not in render_front("ours", URL, Front())


def test_volunteers_find_the_scheduler_on_the_page() -> None:
    page = render_front("ours", URL, Front("long " * 800)).encode()
    assert find_scheduler(page, URL) == f"{URL}sched"


@contextmanager
def serve(tmp_path, front):
    engine = EmbeddedEngine(tmp_path / "engine")
    with ProjectServer(engine, options=HttpOptions(front=front)) as server:
        yield server
    engine.close()


@pytest.mark.parametrize("pages", ["", "preferences"])
def test_pages_run_nothing_and_style_only_ours(tmp_path, pages) -> None:
    with serve(tmp_path, Front("What for?")) as server:
        answer = urllib3.request("GET", server.url + pages)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert re.search(r"style-src 'sha256-[A-Za-z0-9+/=]{44}'", policy)
    assert b"style=" not in answer.data
    title = b"stoilo: your preferences" if pages else b"stoilo"
    assert b"<title>" + title + b"</title>" in answer.data
