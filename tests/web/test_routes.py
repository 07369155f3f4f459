"""The pages over HTTP: strict headers on everything, hostile paths, caches."""

import html
import re
import urllib.parse

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from stoilo.audit.format.proof import MAX_LEAF_BYTES, check_proof
from stoilo.audit.format.records import task_commitment
from stoilo.server.http.web_server import PublicPlace
from stoilo.web.archive import look
from stoilo.web.pages import PAGE_ENTRIES
from stoilo.web.routes import audit_pages
from tests.support.archive import ArchiveWriter

PAGES = [
    "/audit/",
    "/audit/entry/0",
    "/audit/entry/21",
    "/audit/entry/22",
    "/audit/entry/8.tlog-proof",
    "/audit/task/pi",
    "/audit/task/hostile",
    "/audit/search",
    "/audit/search?q=8",
    "/audit/task/nobody",
    "/audit/search?q=%3Cscript%3E",
    "/audit/static/none.css",
]


@pytest.mark.parametrize("path", PAGES)
def test_every_answer_has_the_strict_headers(get, path):
    headers = get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy  # nothing widens the default
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", PAGES)
def test_no_page_has_a_script_or_an_inline_style(get, path):
    text = get(path).text
    assert not re.search(r"<script|\sstyle=|\son[a-z]+=\"|javascript:[^d]", text)


@pytest.mark.parametrize("name", ["22", "-1", "x", "1e3", "²", "007x", "9" * 400])
def test_entry_that_does_not_exist_is_404(get, name):
    answer = get(f"/audit/entry/{urllib.parse.quote(name)}")
    assert (answer.status, answer.headers["cache-control"]) == (404, "no-store")
    assert "STO-L171" in answer.text


@pytest.mark.parametrize(
    "path",
    ["/audit/task/a%20b", "/audit/task/%3Cb%3E", "/audit/search?q=%00"],
)
def test_malformed_question_is_400_and_escaped(get, path):
    answer = get(path)
    assert answer.status == 400
    assert "<b>" not in answer.text


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=50,
)
@given(text=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40))
def test_any_path_is_answered(get, text):
    safe = re.sub(r"[\\^`{}|\"<>#?%]", "", text)
    assert get(f"/audit/entry/{safe}").status in {200, 307, 404}
    assert get(f"/audit/task/{safe}").status in {200, 307, 400, 404}
    assert get(f"/audit/?before={safe.replace('&', '')}").status in {200, 404}


def test_long_question_is_cut_before_it_is_shown(get):
    answer = get("/audit/search?q=" + "A" * 5000)
    assert answer.status == 400
    assert "A" * 200 not in answer.text


def test_pages_are_compared_and_not_sent_twice(get):
    first = get("/audit/entry/8")
    again = get("/audit/entry/8", **{"if-none-match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert first.headers["cache-control"] == "no-cache"


def test_style_sheet_is_named_by_its_digest_and_kept(get):
    path = re.search(
        r'href="(/audit/static/audit\.[0-9a-f]{16}\.css)"', get("/audit/").text
    )[1]
    answer = get(path)
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]


def test_head_has_no_body(get):
    answer = get("/audit/", "HEAD")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_written(get, method):
    assert get("/audit/", method).status == 405


@pytest.mark.parametrize("place", [0, 8, 21])
def test_proof_of_any_entry_holds_under_the_logs_policy(get, archive, place):
    answer = get(f"/audit/entry/{place}.tlog-proof")
    with look(archive[0]) as view:
        leaf = view.entry(place).data
    assert check_proof(answer.body, leaf, archive[1].policy).index == place
    name = f"entry-{place}.tlog-proof"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'


def test_proof_of_an_entry_does_not_hold_for_another(get, archive):
    answer = get("/audit/entry/8.tlog-proof")
    with pytest.raises(Exception, match="STO-L020"):
        check_proof(answer.body, b"another leaf", archive[1].policy)


def test_log_that_is_not_there_is_503(tmp_path, serve_app):
    routes = audit_pages(PublicPlace(tmp_path, "http://nowhere.test/"))
    answer = serve_app(Starlette(routes=routes), "/audit/")
    assert answer.status == 503
    assert "STO-L056" in answer.text


def test_older_entries_are_reached_by_links(get):
    assert 'href="/audit/?before=' not in get("/audit/").text  # all fit on one page
    older = get("/audit/?before=5").text
    assert "/audit/entry/4" in older
    assert "/audit/entry/5" not in older


@pytest.mark.parametrize(
    ("question", "places"),
    [
        ("STO-P040", {5}),
        ("8", {8}),
        ("pi", {9, 19}),
        (task_commitment("pi"), {9, 19}),
        ("gate", {0}),
    ],
)
def test_search_finds_by_each_kind_of_name(get, question, places):
    text = get(f"/audit/search?q={question}").text
    assert {int(one) for one in re.findall(r'"/audit/entry/(\d+)"', text)} == places


def test_search_without_a_hit_says_so(get):
    assert "No published entry" in get("/audit/search?q=" + "0" * 64).text


def test_search_goes_on_below_the_last_page(tmp_path, serve_app):
    with ArchiveWriter(tmp_path / "data") as writer:
        for _ in range(PAGE_ENTRIES + 1):
            writer.revoke(1)
    app = Starlette(
        routes=audit_pages(PublicPlace(tmp_path / "data", "http://x.test/"))
    )
    first = serve_app(app, "/audit/search?q=online")
    link = re.search(r'href="(/audit/search[^"]*before=[0-9]+)"', first.text)
    assert "50 entries (the newest)" in first.text
    rest = serve_app(app, html.unescape(link[1]))
    assert re.findall(r'"/audit/entry/([0-9]+)"', rest.text) == ["0"]


def test_longest_leaf_has_a_page_and_a_proof_that_holds(tmp_path, serve_app):
    leaf = b"\xff<" * (MAX_LEAF_BYTES // 2)
    with ArchiveWriter(tmp_path / "data") as writer:
        writer.add_leaf(leaf)
    app = Starlette(
        routes=audit_pages(PublicPlace(tmp_path / "data", "http://x.test/"))
    )
    page = serve_app(app, "/audit/entry/0")
    assert "Cut after 8,192 of" in page.text
    assert "\\xff&lt;" in page.text
    proof = serve_app(app, "/audit/entry/0.tlog-proof").body
    assert check_proof(proof, leaf, writer.key.policy).index == 0
