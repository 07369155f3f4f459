"""What the pages say, and what they must not."""

import html
import re
import shlex

import jinja2
import pytest
from starlette.applications import Starlette

from stoilo.audit.format.facts import OutcomeRecord
from stoilo.core.digests import content_digest
from stoilo.server.http.web_server import PublicPlace
from stoilo.web.routes import audit_pages
from tests.support.archive import ORIGIN, ArchiveWriter

KINDS = [
    (0, "Key", "A gate key came into use."),
    (1, "Policy", "A policy came into force."),
    (2, "Level", "The level pure came into force."),
    (3, "Flavor", "The flavor pure was released."),
    (4, "Operator", "The server was started."),
    (5, "Refusals", "The gate refused 2 submissions of one researcher."),
    (6, "Review", "A reviewer signed for a source at level pure."),
    (7, "Retention", "Deleted on purpose: 1 source of tasks that had ended."),
    (8, "Admission", "The gate permitted one attempt of a task."),
    (9, "Workunit", "Attempt 1 of a task at level pure went out as 2 results."),
    (19, "Result", "It succeeded: enough results agreed."),
    (20, "Revocation", "Revocation statement 1: 1 flavor withdrawn."),
    (21, "Unknown", "It cannot be shown: see its page."),
]


def words(text):
    """Return what a reader of a page reads."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", text)))


@pytest.mark.parametrize(("place", "kind", "sentence"), KINDS)
def test_entry_of_every_kind_is_told_in_plain_words(get, place, kind, sentence):
    text = words(get(f"/audit/entry/{place}").text)
    assert f"Entry {place}: {kind.lower()}" in text
    assert sentence in text
    assert sentence in words(get("/audit/").text)


def test_entry_of_no_known_format_is_shown_as_a_fault(get):
    answer = get("/audit/entry/21")
    assert "Something does not fit" in answer.text
    assert "&lt;script&gt;an entry of another time" in answer.text


def test_admission_leads_to_its_explanation_and_task(get):
    text = get("/audit/entry/8").text
    assert 'href="/audit/entry/9"' in text
    assert 'href="/audit/task/' in text


def test_overview_names_the_witnesses(get):
    assert "Cosigned by w, 2026-11-18 11:06:47 UTC" in words(get("/audit/").text)


def test_task_page_tells_verdict_limits_results_and_outcome(get):
    text = words(get("/audit/task/pi").text)
    for part in (
        "It succeeded",
        "Not revoked",
        "Remark: STO-P034 a definition is bound again",
        "Memory 512 MiB",
        "Must agree 2 results",
        "No level lets a task open a file",
    ):
        assert part in text


def test_task_id_never_stands_on_its_page(get):
    assert ">secret<" not in get("/audit/task/secret").text
    assert "/task/secret" not in get("/audit/task/secret").text


def test_published_source_is_shown_with_anchors(get):
    text = get("/audit/task/pi").text
    assert '<span class="line" id="L12"><a href="#L12" aria-label="Line 12"' in text
    assert '<span class="k">def</span> <span class="d">task</span>' in text


def test_unpublished_source_is_a_commitment_and_nothing_else(get, shown_source):
    text = get("/audit/task/secret").text
    assert "Not published" in text
    assert "Estimate pi" not in text
    assert (
        content_digest(shown_source.encode()) not in text
    )  # not even its plain digest


def test_published_source_has_the_digest_that_the_other_lacks(get, shown_source):
    assert (
        content_digest(shown_source.encode()) in get("/audit/task/pi").text
    )  # control


def test_deleted_source_is_said_to_be_deleted(get):
    assert "deleted since by the project's retention rules" in words(
        get("/audit/task/gone").text
    )


def test_deleted_source_leads_to_the_entry_that_says_so(get):
    text = words(get("/audit/task/gone").text)
    assert re.search(r"retention rules \( ?entry 18 ?\)", text)


def test_outcome_is_told_with_its_results(get):
    text = words(get("/audit/task/pi").text)
    assert "Outcome It succeeded: enough results agreed." in text
    assert "Results that agreed 2" in text
    assert "Outcome It" not in words(get("/audit/task/secret").text)


def test_outcome_with_a_code_names_it(tmp_path, serve_app):
    with ArchiveWriter(tmp_path / "data") as writer:
        record = writer.admit("t", b"def task(kwargs):\n    return 1\n")
        named = {"task": record.task, "attempt": 1, "admission": 0, "result": "ab" * 32}
        writer.add(
            OutcomeRecord(
                ORIGIN, writer.now, **named, state="user_error", code="STO-G200"
            )
        )
    place = PublicPlace(tmp_path / "data", "http://x.test/")
    answer = serve_app(Starlette(routes=audit_pages(place)), "/audit/task/t")
    assert "STO-G200 the task raised an exception" in words(answer.text)


def test_revoked_task_says_by_whom_and_why(get):
    text = words(get("/audit/task/revoked").text)
    assert "Revoked. No volunteer runs it any more" in text
    assert "entry 20 (online," in text
    assert "denies its flavor." in text


def test_commands_of_a_page_name_record_and_source(get, site):
    text = html.unescape(get("/audit/task/pi").text)
    (command,) = re.findall(r"stoilo audit check [^<]*", text)
    words = shlex.split(command.replace("\\\n", ""))
    assert words[3:6] == [f"{site}audit/entry/9.tlog-proof", "--policy", "policy.txt"]
    assert re.fullmatch(rf"{site}audit/records/[0-9a-f]{{64}}", words[7])
    assert re.fullmatch(rf"{site}audit/source/[0-9a-f]{{64}}", words[9])


def test_hostile_source_is_text(get):
    text = get("/audit/task/hostile").text
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    assert "{{ 7 * 7 }}" in text  # not rendered as a template either


def test_page_that_escaped_nothing_would_hold_the_script(hostile_source):
    page = jinja2.Environment(autoescape=False).from_string("<pre>{{ source }}</pre>")  # noqa: S701 - the control
    assert "<script" in page.render(source=hostile_source)
